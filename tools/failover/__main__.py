"""Lose primaries: python -m tools.failover, or make failover."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Sequence

from tools.chaos.run import Options, run
from tools.chaos.system import ROOT
from tools.failover.faults import FAULTS
from tools.failover.trio import Trio


def main(argv: Sequence[str]) -> int:
    """0 where nothing was found, 1 where something was."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.failover",
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
