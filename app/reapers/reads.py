"""Writes down, now and then, which topics were read and written to. A service that nobody uses asks nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from app.base.outages import UNREACHABLE

if TYPE_CHECKING:
    from app.engine.engine import Engine

EVERY_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


async def follow(engine: Engine) -> None:
    """Until cancelled; what is lost with a process is the last seconds."""
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        try:
            await engine.uses.flush()
        except UNREACHABLE as error:
            log.warning("can't write down which topics are used: %r", error)
        except Exception:
            log.exception("can't write down which topics are used")
