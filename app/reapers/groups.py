"""Looks for groups whose next job was not let through by the process whose verb took the one before it out: that was
killed in between, did not know the topic's groups, or met a job that somebody had locked."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from app.base.outages import UNREACHABLE
from app.errors import HoldfastError

if TYPE_CHECKING:
    from app.engine.engine import Engine

LOOK_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 15.0  # while it has met no group, and none of its verbs took a job out: an idle one asks little

log = logging.getLogger(__name__)


async def follow(engine: Engine) -> None:
    """Make passes until cancelled; the first at once, for what was left when the service was killed."""
    while True:
        try:
            await engine.groups.sweep()
        except (*UNREACHABLE, HoldfastError) as error:
            log.warning("can't look for groups at the moment: %r", error)
        except Exception:
            log.exception("can't look for groups")
        # Apart from other processes, that started at the same moment.
        part = random.uniform(0.8, 1.0)  # noqa: S311
        await asyncio.sleep(LOOK_SECONDS * part)
        if not engine.groups.any_met:
            await engine.groups.departure(IDLE_SECONDS * part)
