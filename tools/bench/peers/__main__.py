"""Measure Holdfast beside its rivals: python -m tools.bench.peers

Without --held: how many jobs a second each of them enqueues, runs, and does in the whole cycle. With it: the rate of
the run over the jobs done, while an old REPEATABLE READ snapshot is held on the queue's database.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from functools import partial
from pathlib import Path

from tools.bench.bench import running
from tools.bench.facts import facts
from tools.bench.peers.contest import SLICES, Standing, contest
from tools.bench.peers.rivals import HOLDFAST, PEERS, Rival

RIVALS = {rival.name: rival for rival in (HOLDFAST, *PEERS)}
HELD_JOBS = 100_000
HELD_CLAIM = 10  # each claim walks over what was consumed before; large ones hide it for longer


def main() -> int:
    """0; what could not be measured is named in the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=RIVALS, action="append", help="only this one; may be given again")
    parser.add_argument("--held", action="store_true", help="while an old snapshot is held")
    parser.add_argument("--claim", type=int, metavar="N", help="jobs at a time (what is best for each; with --held 10)")
    parser.add_argument("--jobs", type=int, metavar="N", help="of each; else what each does in some seconds")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="medians of so many (1)")
    parser.add_argument("--payload", type=int, default=256, metavar="BYTES", help="size of a job's data (256)")
    parser.add_argument("--url", help="a PostgreSQL to use instead of an embedded one; databases are made there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the machine there")
    args = parser.parse_args()
    rivals = [RIVALS[name] for name in args.only or RIVALS]
    known, standing = asyncio.run(_measure(args, rivals))
    print("  ".join(f"{name} {value}" for name, value in known.items()))
    print(_courses(standing, rivals) if args.held else standing.table(rivals))
    if args.json:
        slices = {name: [outcome.slices for outcome in taken] for name, taken in standing.outcomes.items()}
        report = {
            "facts": known,
            "held": args.held,
            "claim": args.claim or (HELD_CLAIM if args.held else None),
            **standing.record(rivals),
            "series": [_series(args, rival, standing) for rival in rivals if rival.name in standing.outcomes],
            "jobs_per_s_by_slice": slices,
        }
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _asked(args: argparse.Namespace, rival: Rival) -> int:
    """How many jobs of a rival."""
    return args.jobs or (max(HELD_JOBS, rival.jobs) if args.held and rival.jobs > 10_000 else rival.jobs)


def _series(args: argparse.Namespace, rival: Rival, standing: Standing) -> dict[str, object]:
    """The course of a rival's last round, for the picture. One that was cut short ends early."""
    outcome, step = standing.outcomes[rival.name][-1], _asked(args, rival) // SLICES
    slices = [[(i + 1) * step, rate] for i, rate in enumerate(outcome.slices)]
    return {"system": rival.name, "version": outcome.version, "held": args.held, "slices": slices}


async def _measure(args: argparse.Namespace, rivals: list[Rival]) -> tuple[dict[str, object], Standing]:
    claim = args.claim or (HELD_CLAIM if args.held else None)
    async with running(args.payload, args.url) as bench:
        known = await facts(bench)
        return known, await contest(bench, rivals, args.rounds, partial(_asked, args), claim=claim, held=args.held)


def _courses(standing: Standing, rivals: list[Rival]) -> str:
    """Jobs a second, slice by slice of the jobs, of the last round."""
    lines = []
    for rival in rivals:
        if rival.name in standing.missing:
            lines.append(f"{rival.name:16} could not be measured: {standing.missing[rival.name]}")
        else:
            outcome = standing.outcomes[rival.name][-1]
            course = " ".join(f"{rate:,.0f}" for rate in outcome.slices)
            lines.append(f"{rival.name:16} {outcome.jobs:,} jobs: {course}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
