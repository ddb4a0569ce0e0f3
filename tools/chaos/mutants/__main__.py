"""Show that every mutant is caught: python -m tools.chaos.mutants [NAME …], or `make mutants`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tools.chaos.mutants import trials
from tools.chaos.mutants.trials import Check, Mutant, Trial, Verdict


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos.mutants", description="Show that mutants are caught.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a mutant, or how it begins; without one: all")
    parser.add_argument("--list", action="store_true", help="name the mutants, what they break, and their checks")
    args = parser.parse_args(argv)
    every = trials.every()
    for name in args.names:
        if not any(mutant.name.startswith(name) for mutant in every):
            parser.error(f"there is no mutant {name}")
    chosen = [mutant for mutant in every if not args.names or mutant.name.startswith(tuple(args.names))]
    if args.list:
        for mutant in chosen:
            print(f"{mutant.name}\n    {mutant.breaks}")
            for check in mutant.checks:
                print(f"    {check.words}, within {check.within:.0f} s")
        return 0
    return 0 if all_caught([(mutant, check) for mutant in chosen for check in mutant.checks]) else 1


def all_caught(tries: Sequence[tuple[Mutant, Check]]) -> bool:
    """Try mutants out, and print what comes of it. None is tried where a check is not green without it."""
    print("The checks without a mutant …", flush=True)
    clean = trials.green(check for _, check in tries)
    if clean.code != 0:
        print(f"{clean.words}\nThey are not green: nothing was tried.", flush=True)
        return False
    print(f"are green, in {clean.seconds:.0f} s.\n", flush=True)
    width = max(len(mutant.name) for mutant, _ in tries)
    escaped: list[Trial] = []
    for mutant, check in tries:
        trial = trials.try_out(mutant, check)
        if trial.verdict is not Verdict.CAUGHT:
            escaped.append(trial)
        print(f"{mutant.name:<{width}}  {trial.verdict.value:<14}  {trial.seconds:5.1f} s  {check.words}", flush=True)
    for trial in escaped:
        print(f"\n== {trial.mutant.name}: {trial.verdict.value}\n{trial.words[-4000:]}", flush=True)
    return not escaped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
