"""The command line: `python -m tools.chaos`, and its other profiles: `python -m tools.chaos failover`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.chaos import failover, soak
from tools.chaos.faults import FAULTS
from tools.chaos.herd import play as herd
from tools.chaos.run import ROUND_SECONDS, Options, run
from tools.chaos.system import ROOT

# What is done to which system, for how long, and how it is judged. Without a profile's name: faults of all kinds.
PROFILES: Final = {"failover": failover.main, "herd": herd.main, "soak": soak.main}


def main(argv: Sequence[str]) -> int:
    """0 where nothing was found, 1 where something was."""
    if argv[:1] and argv[0] in PROFILES:
        return PROFILES[argv[0]](argv[1:])
    parser = argparse.ArgumentParser(
        prog="python -m tools.chaos",
        description="Faults, one at a time and in pairs, beside traffic whose history is checked. "
        "A report is written to var/chaos/<seed>.",
        epilog=f"Faults: {', '.join(FAULTS)}. Other profiles, each with its --help: {', '.join(PROFILES)}.",
    )
    parser.add_argument("--seconds", type=float, help="for how long to inflict faults, drains not counted")
    parser.add_argument("--minutes", type=float, default=30, help="the same in minutes (30)")
    parser.add_argument("--seed", type=int, help="do as an earlier run did: the same traffic, the same faults in order")
    parser.add_argument("--only", default="", metavar="FAULT,…", help="these faults alone; none: no faults at all")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree whose service and SDK are run")
    parser.add_argument("--round", type=float, default=ROUND_SECONDS, help="seconds between two drains (%(default)s)")
    args = parser.parse_args(argv)
    kinds = [] if args.only == "none" else args.only.split(",") if args.only else list(FAULTS)
    if unknown := set(kinds) - FAULTS.keys():
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    seconds = args.minutes * 60 if args.seconds is None else args.seconds
    options = Options(seed, seconds, kinds, args.root.resolve(), args.round)
    return 1 if asyncio.run(run(options)).faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
