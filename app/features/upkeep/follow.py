"""The loops of a running service that are no sweeps: their work is due at any moment, or every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.base.loops import Loop
from app.features.inbox import admit as inbox
from app.features.inbox.inbox import is_used

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

GROUPS_SECONDS: Final = 0.5
GROUPS_IDLE: Final = 15.0  # while it has met no group, and none of its verbs took a job out: an idle one asks little
INBOX_SECONDS: Final = 0.5
INBOX_IDLE: Final = 5.0  # while no topic has a schema
USES_SECONDS: Final = 10.0
JITTER: Final = 0.2


def inbox_rows(pools: Pools, engine: Engine) -> Loop:
    """Looks at what SQL users have inserted for topics with a schema: at once again as long as there is more."""

    async def once() -> float:
        if not await is_used(pools.rest):
            return INBOX_IDLE
        return 0.0 if await inbox.run_once(pools, engine) else INBOX_SECONDS

    return Loop("look at the inbox", once, INBOX_SECONDS, jitter=JITTER)


def groups(engine: Engine) -> Loop:
    """Looks for groups whose next job was not let through by the process whose verb took the one before it out: that
    was killed in between, did not know the topic's groups, or met a job that somebody had locked. The first time at
    once, for what was left when the service was killed."""

    async def once() -> float:
        await engine.groups.sweep()
        return GROUPS_SECONDS if engine.groups.any_met else GROUPS_IDLE

    loop = Loop("look for groups", once, GROUPS_SECONDS, gap=GROUPS_SECONDS, jitter=JITTER)
    engine.groups.departed.subscribe(loop.wake)
    return loop


def uses(engine: Engine) -> Loop:
    """Writes down, now and then, which topics were read and written to; what is lost with a process is the last
    seconds. A service that nobody uses asks nothing."""

    async def once() -> None:
        await engine.uses.flush()

    return Loop("write down which topics are used", once, USES_SECONDS, first=USES_SECONDS)
