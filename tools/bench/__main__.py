"""Measure the bars: python -m tools.bench, or make bench."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bench.bars import BARS
from tools.bench.bench import Effort, running, say
from tools.bench.facts import facts
from tools.bench.figures import Figure, held, table

FULL = Effort(quick=False, seconds=3.0, rounds=3)
QUICK = Effort(quick=True, seconds=0.5, rounds=1)
MOST_PAYLOAD = 1_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """A figure, by which bar, in which run (from 1)."""

    run: int
    bar: str
    figure: Figure

    def record(self) -> dict[str, object]:
        """For the JSON."""
        return {"bar": self.bar, "run": self.run, **self.figure.record()}


def main(argv: Sequence[str]) -> int:
    """The exit code: 1 if a bar was missed, except with --quick, which only shows that all of them run."""
    args = _parser().parse_args(argv)
    if args.list:
        for name, bar in BARS.items():
            print(f"{name:10}  {' '.join((bar.__doc__ or '').partition('.')[0].split())}.")
        return 0
    known, taken = asyncio.run(_measure(args))
    print("\n".join(f"{name:20} {value}" for name, value in known.items()), end="\n\n")
    for run in range(1, args.runs + 1):
        print(table([one.figure for one in taken if one.run == run], verdicts=not args.quick), end="\n\n")
    if args.runs > 1 and not args.quick:
        print(held([one.figure for one in taken]))
    if args.json:
        report = {"facts": known, "figures": [one.record() for one in taken]}
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if args.quick or all(one.figure.passed for one in taken) else 1


async def _measure(args: argparse.Namespace) -> tuple[dict[str, object], list[Taken]]:
    effort, taken = QUICK if args.quick else FULL, []
    known: dict[str, object] = {}
    for run in range(1, args.runs + 1):
        # A run begins on a new cluster where the cluster is ours: what one leaves behind is no burden to the next.
        async with running(args.payload, args.url) as bench:
            known = known or await facts(bench) | {"quick": args.quick, "runs": args.runs}
            for name in args.bar or BARS:
                say(f"{name}" + (f", run {run} of {args.runs}" if args.runs > 1 else ""))
                figures = await BARS[name](bench, effort)
                taken += [Taken(run, name, figure) for figure in figures]
                say("\n" + table(figures, verdicts=not args.quick))
    return known, taken


def payload(text: str) -> int:
    """Bytes: a number, or one of thousands with a k behind it. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k?)", text)
    size = round(float(match[1]) * (1000 if match[2] else 1)) if match else 0
    if not 1 <= size <= MOST_PAYLOAD:
        raise ValueError(text)
    return size


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--bar", choices=BARS, action="append", help="only this one; may be given again")
    parser.add_argument("--list", action="store_true", help="name the bars")
    parser.add_argument("--quick", action="store_true", help="a short run, without thresholds")
    parser.add_argument("--runs", type=int, choices=range(1, 21), default=1, metavar="N", help="of all bars, 1 to 20")
    parser.add_argument(
        "--payload", type=payload, default=256, metavar="BYTES", help="size of a job's data: 256, 0.1k, 1k, 10k (256)"
    )
    parser.add_argument("--url", help="a PostgreSQL to use instead of an embedded one; its schema is upgraded")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the machine there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
