"""Ways to lose a primary. Each is over when another one takes writes."""

from __future__ import annotations

import asyncio
from typing import Final

from app.base.db.connect import UNHEARD_SECONDS
from tools.chaos.faults import Fault, Stage
from tools.failover.trio import Trio


async def kill_primary(stage: Stage) -> None:
    """The primary is killed, and the standby that has the most is promoted: connections end, new ones are refused."""
    trio = _of(stage)
    await trio.whole()
    async with trio.busy:
        await trio.lose()
        await trio.promote()


async def lose_primary(stage: Stage) -> None:
    """The same, of a primary whose machine says nothing any more: connections hang, new ones too. It stays away.

    A proxy's kernel acknowledges what nobody reads, and a machine that is gone does not: so the proxy ends in its place
    what the service's own kernel would give up (tools/herd/silence.py has that one), and only that."""
    trio = _of(stage)
    await trio.whole()
    gone = asyncio.get_running_loop().time()
    async with trio.busy:
        trio.silence()
        await trio.lose()
        await trio.promote()
    await asyncio.sleep(max(0.0, gone + UNHEARD_SECONDS - asyncio.get_running_loop().time()))
    trio.give_up()


def _of(stage: Stage) -> Trio:
    assert isinstance(stage.system, Trio)
    return stage.system


FAULTS: Final[dict[str, Fault]] = {fault.__name__: fault for fault in (kill_primary, lose_primary)}
