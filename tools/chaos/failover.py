"""Primaries are lost, killed and silent by turns, and standbys promoted, as docs/operations/postgres.md has it: beside
the traffic of a usual run, whose history is checked by the same rules. Each fault is over when another server takes
writes."""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from app.base.db.connect import UNHEARD_SECONDS
from tools.chaos.faults import Fault, Stage
from tools.chaos.run import Options, run
from tools.chaos.system import ROOT
from tools.chaos.trio import Trio


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
    what the service's own kernel would give up (tools/chaos/herd/silence.py has that one), and only that."""
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


def main(argv: Sequence[str]) -> int:
    """0 where nothing was found, 1 where something was."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.chaos failover",
        description="Primaries are lost, killed and silent by turns, and standbys promoted, beside traffic whose "
        "history is checked. A report is written to var/failover/<seed>.",
    )
    parser.add_argument("--minutes", type=float, default=3, help="for how long, drains not counted (%(default)s)")
    parser.add_argument("--only", choices=FAULTS, action="append", help="this way alone; may be given again")
    parser.add_argument("--seed", type=int, help="do as an earlier run did")
    args = parser.parse_args(argv)
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    options = Options(
        seed,
        args.minutes * 60,
        args.only or list(FAULTS),
        folder=ROOT / "var/failover" / str(seed),
        build=Trio,
        faults=FAULTS,
        pairs=0.0,  # one primary can be lost at a time
    )
    return 1 if asyncio.run(run(options)).faults else 0
