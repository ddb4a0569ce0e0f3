"""make fuzz: every target by atheris, in turn, for some minutes in all; what breaks one is kept in var/fuzz."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
FOUND = ROOT / "var/fuzz"
LENGTH = 4_096


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="this one alone; may be repeated")
    parser.add_argument("--child", choices=TARGETS, help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return fuzz(args.child, args.rest)
    chosen = args.target or list(TARGETS)
    seconds = max(1, round(args.minutes * 60 / len(chosen)))
    broken = []
    for place, target in enumerate(chosen, 1):
        grown, crashes = FOUND / target, FOUND / f"crashes-{target}"
        for folder in (grown, crashes):
            folder.mkdir(parents=True, exist_ok=True)
        print(f"[{place}/{len(chosen)}] {target}: {seconds} s", flush=True)
        command = [sys.executable, "-m", "tests.fuzz", "--child", target, "--"]
        command += [f"-max_total_time={seconds}", f"-max_len={LENGTH}", f"-artifact_prefix={crashes}/", "-timeout=20"]
        command += ["-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0", str(grown), str(CORPUS / target)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            broken.append(target)
            print(f"{target} broke: what it was given is in {crashes}", flush=True)
    found = [str(path) for path in FOUND.glob("crashes-*/*")]
    print(f"{len(chosen)} targets, {seconds} s each: " + (f"{', '.join(broken)} broke" if broken else "none broke"))
    for path in found:
        print(f"  {path}: mend it, and keep it in tests/fuzz/corpus")
    return 1 if broken else 0


def fuzz(target: str, options: list[str]) -> int:
    """One target in this process, which ends with it."""
    try:
        import atheris
    except ImportError:
        print("atheris is not there: it is built for Linux on x86-64, and Python 3.11 to 3.13", file=sys.stderr)
        return 2
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *options], TARGETS[target])
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
