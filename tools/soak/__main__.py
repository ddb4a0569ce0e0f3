"""Run for hours: python -m tools.soak, or make soak HOURS=6."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from tools.chaos.faults import FAULTS
from tools.chaos.report import figures
from tools.chaos.run import Options, Run, run
from tools.chaos.system import ROOT
from tools.soak.slopes import judge, table

# A service that is killed takes with it what it has leaked.
FEW: Final = [name for name in FAULTS if name != "kill_api"]
CALM: Final = (20.0, 60.0)  # seconds between two faults
ROUND_SECONDS: Final = 600.0
SAMPLES: Final = 120  # at least, in a run
MOST_SECONDS: Final = 60.0  # between two of them


def main(argv: Sequence[str]) -> int:
    """0 where nothing was found, 1 where something was, or something grew."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description="The traffic of tools/chaos for hours, with a fault now and then; its history is checked, and what "
        "the service and the database take is measured. A report is written to var/soak/<seed>.",
    )
    parser.add_argument("--hours", type=float, default=6, help="for how long, drains not counted (%(default)s)")
    parser.add_argument("--seed", type=int, help="do as an earlier run did: the same traffic, the same faults in order")
    args = parser.parse_args(argv)
    seed, seconds = secrets.randbelow(2**32) if args.seed is None else args.seed, args.hours * 3600
    options = Options(
        seed,
        seconds,
        FEW,
        round_seconds=ROUND_SECONDS,
        folder=ROOT / "var/soak" / str(seed),
        calm=CALM,
        every=min(MOST_SECONDS, seconds / SAMPLES),
        until_each=False,
    )
    return 1 if report(asyncio.run(run(options))) else 0


def report(done: Run) -> list[str]:
    """Write it down and print it; what was found."""
    lines = list(judge(done.watched))
    found = [*done.faults, *(f"{one.name}: {one.value:+.2f} {one.unit}" for one in lines if not one.passed)]
    told = figures(done) | {"watched": [asdict(one) for one in done.watched], "judged": [asdict(one) for one in lines]}
    (done.folder / "report.json").write_text(json.dumps(told | {"found": found}, indent=1) + "\n")
    sums = told["sums"]
    words = [
        f"# Soak, seed {done.seed}: {'FAILED' if found else 'passed'}",
        f"{told['at']}, {told['seconds'] / 60:.0f} minutes in {told['rounds']} rounds, {len(done.watched)} samples, "
        f"{sums.get('deliveries', 0):,} deliveries, {sums.get('faults inflicted', 0)} faults inflicted, "
        f"on {told['machine']['cores']} cores.",
        table(lines),
        *found,
    ]
    text = "\n\n".join(words) + "\n"
    (done.folder / "report.md").write_text(text)
    print(f"\n{text}\n{done.folder / 'report.md'}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
