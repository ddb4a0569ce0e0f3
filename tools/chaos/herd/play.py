"""Play the scenarios of a database that goes away. About three minutes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tools.bench.bench import say
from tools.chaos.herd import outage, silence
from tools.chaos.system import ROOT

SCENARIOS = {"thundering_herd": outage.play, "zombie_connections": silence.play}
TIMES = {"thundering_herd": outage.Times(), "zombie_connections": silence.Times()}
QUICK = {"thundering_herd": outage.QUICK, "zombie_connections": silence.QUICK}


def main(argv: Sequence[str]) -> int:
    """0 where all passed, 1 where one did not, 2 where one can't be played here."""
    parser = argparse.ArgumentParser(prog="python -m tools.chaos herd", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="only this one; may be given again")
    parser.add_argument("--quick", action="store_true", help="some seconds each, to see that they run")
    parser.add_argument("--json", type=Path, default=ROOT / "var/herd.json", metavar="FILE", help="(%(default)s)")
    args = parser.parse_args(argv)
    names = args.scenario or list(SCENARIOS)
    if "zombie_connections" in names and (why := silence.missing()):
        print(f"zombie_connections can't be played here: {why}. --scenario thundering_herd is the other one.")
        return 2
    load = round(os.getloadavg()[0], 2)  # of the machine's last minute: before the run, others' work
    verdicts = []
    for name in names:
        say(name)
        verdicts.append(asyncio.run(SCENARIOS[name](QUICK[name] if args.quick else TIMES[name])))  # type: ignore[operator]
        print(verdicts[-1].lines(), flush=True)
    told = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "load": load},
        "quick": args.quick,
        "scenarios": [verdict.record() for verdict in verdicts],
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if all(verdict.passed for verdict in verdicts) else 1
