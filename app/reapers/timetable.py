"""Fires topics' schedules when they are due. Every process does, and asks for nothing while none is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from app.base.outages import UNREACHABLE
from app.errors import HoldfastError

if TYPE_CHECKING:
    from app.engine.engine import Engine

RETRY_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


async def follow(engine: Engine) -> None:
    """Look when the next one is due, or this process has changed one, until cancelled."""
    while True:
        engine.schedules.changed.clear()
        try:
            wait = (await engine.fires.run_once()).wait
        except (*UNREACHABLE, HoldfastError) as error:
            log.warning("can't fire schedules at the moment: %r", error)
            wait = RETRY_SECONDS
        except Exception:
            log.exception("can't fire schedules")
            wait = RETRY_SECONDS
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(engine.schedules.changed.wait(), wait)
