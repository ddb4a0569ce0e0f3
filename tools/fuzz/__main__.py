"""make fuzz: every target by atheris, in turn, for some minutes in all; what breaks one is kept in var/fuzz."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.fuzz.targets import TARGETS, seeds

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "var/fuzz"
LENGTH = 4_096


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="this one alone; may be repeated")
    args = parser.parse_args()
    chosen = args.target or list(TARGETS)
    seconds = max(1, round(args.minutes * 60 / len(chosen)))
    broken = []
    for place, target in enumerate(chosen, 1):
        grown, crashes = FOUND / target, FOUND / f"crashes-{target}"
        for folder in (grown, crashes):
            folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(target)):
            (grown / f"seed-{number}").write_bytes(seed)
        print(f"[{place}/{len(chosen)}] {target}: {seconds} s", flush=True)
        command = [sys.executable, "-m", "tools.fuzz.by_atheris", target]
        command += [f"-max_total_time={seconds}", f"-max_len={LENGTH}", f"-artifact_prefix={crashes}/", "-timeout=20"]
        command += ["-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0", str(grown)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            broken.append(target)
            print(f"{target} broke: what it was given is in {crashes}", flush=True)
    found = list(FOUND.glob("crashes-*/*"))
    print(f"{len(chosen)} targets, {seconds} s each: " + (f"{', '.join(broken)} broke" if broken else "none broke"))
    for path in found:
        target = path.parent.name.removeprefix("crashes-")
        print(
            f"  {path}: mend it, and add this line to tools/fuzz/corpus/{target}.txt:\n  {path.read_bytes()!r}"[:2_000]
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
