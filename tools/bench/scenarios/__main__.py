"""Play the scenarios: python -m tools.bench.scenarios, or make scenarios. About half a minute each."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import asyncpg

from tools.bench.bench import say
from tools.bench.facts import facts_of
from tools.bench.figures import table
from tools.bench.scenarios.play import FULL, QUICK, SCENARIOS, SHARE, Played, capacity, play
from tools.bench.scenarios.stand import standing

CAPACITY_SECONDS = 3.0


def main(argv: Sequence[str]) -> int:
    """The exit code: 1 if one did not come back to 95 per cent of its base rate, except with --quick."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.scenarios", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="only this one; may be given again")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--quick", action="store_true", help="some seconds each, to see that they run")
    parser.add_argument("--payload", type=int, default=256, metavar="BYTES", help="size of a job's data (256)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the machine there")
    args = parser.parse_args(argv)
    if args.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:20} {(scenario.fault.__doc__ or '').strip()} Times the load: {scenario.factor:g}.")
        return 0
    known, played = asyncio.run(_play(args.scenario or list(SCENARIOS), args.payload, quick=args.quick))
    print("\n".join(f"{name:20} {value}" for name, value in known.items()), end="\n\n")
    print(table([figure for one in played for figure in one.figures], verdicts=not args.quick))
    for one in played:
        back = "never" if one.recovered_s is None else f"{one.recovered_s:.1f} s"
        print(f"{one.name:20} back after {back}, {one.broken} requests failed, {one.left} jobs left")
    if args.json:
        shown = [asdict(one) | {"passed": one.passed} for one in played]
        args.json.write_text(json.dumps({"facts": known, "scenarios": shown}, indent=1) + "\n")
    return 0 if args.quick or all(one.passed for one in played) else 1


async def _play(names: Sequence[str], payload: int, *, quick: bool) -> tuple[dict[str, object], list[Played]]:
    load = round(os.getloadavg()[0], 2)  # of the machine's last minute: before the run, others' work
    async with standing() as stand:
        db = await asyncpg.connect(stand.postgres.url)
        known = await facts_of(db, payload) | {"quick": quick, "load": load}
        await db.close()
        rate = SHARE * await capacity(stand, 1.0 if quick else CAPACITY_SECONDS, payload)
        known["rate"] = round(rate)
        played = []
        for name in names:
            say(name)
            played.append(
                await play(stand, name, SCENARIOS[name], QUICK if quick else FULL, rate=rate, payload=payload)
            )
            say(table(played[-1].figures, verdicts=not quick))
    return known, played


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
