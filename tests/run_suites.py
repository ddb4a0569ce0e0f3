"""What ./test runs: the suites in order, each against its budget of minutes."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
NO_TESTS_FOUND = 5  # pytest's exit code; fine for a suite out of which `-k` picks nothing
PATIENCE = 2.5  # a suite is killed after this many budgets: by then it hangs
# It fails beyond so many. Machines are slower in more ways than slowness() sees, by half on one and the same day: in
# starts of processes, in memory that has to be had back.
TOLERANCE = 1.5
STEPS = 2_000_000
STEPS_SECONDS = 0.065  # what they take on the machine that the budgets are for
SLOWEST = 2.0  # times

# Of what `make pgbouncer` runs: jobs, streams, settings of topics, sign-in.
BEHIND_PGBOUNCER = [f"tests/api/test_{name}.py" for name in ("smoke", "work", "topic_configs", "sign_in")]

SUITES: Mapping[str, Sequence[Sequence[str]]] = {
    "checks": (
        (PYTHON, "-m", "ruff", "check"),
        (PYTHON, "-m", "ruff", "format", "--check"),
        (PYTHON, "-m", "mypy"),
        ("env", f"PYTHONPATH={ROOT / 'sdk/src'}", str(Path(PYTHON).with_name("lint-imports"))),
        (PYTHON, "deploy/check_pins.py"),
        (PYTHON, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "app", "deploy", "migrations", "sdk/src", "spark"),
    ),
    "tests": (
        (PYTHON, "-m", "pytest", "-n", "3", "-m", "not alone and not spark"),
        ("env", "HOLDFAST_TEST_PGBOUNCER=1", PYTHON, "-m", "pytest", "-n", "2", *BEHIND_PGBOUNCER),
    ),
    "spark": ((PYTHON, "-m", "pytest", "-m", "spark", "tests/spark"),),  # one process, so one Spark session
    "alone": ((PYTHON, "-m", "pytest", "-m", "alone"),),
    "bench": ((PYTHON, "-m", "tests.benchmarks", "--quick"),),  # that every bar can be taken, not what it says
}


class Result(Enum):
    PASSED = "passed"
    LATE = "passed, late"
    FAILED = "failed"
    OVER_BUDGET = "over its budget"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a suite ended; `budget` in minutes of this machine."""

    suite: str
    result: Result
    seconds: float
    budget: float


def main(argv: Sequence[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    own, passed_on = argv[:end], argv[end + 1 :]
    parser = argparse.ArgumentParser(
        prog="./test", description="Run the tests.", epilog="What follows -- goes to pytest: ./test tests -- -k claim"
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(SUITES)}; without one: all")
    parser.add_argument("--list", action="store_true", help="name the suites, their commands and budgets")
    parser.add_argument("--allow-missing", action="store_true", help="skip what needs a tool that is not installed")
    args = parser.parse_args(own)
    unknown = [name for name in args.suites if name not in SUITES]
    if unknown:
        parser.error(f"there is no suite {unknown[0]}: choose of {', '.join(SUITES)}")
    budgets = read_budgets()
    if args.list:
        for name, commands in SUITES.items():
            print(f"{name}  ({budgets[name]:g} min)")
            for command in commands:
                print(f"    {_shown(command)}")
        return 0
    if args.allow_missing:
        os.environ["HOLDFAST_TEST_ALLOW_MISSING"] = "1"
    chosen = [name for name in SUITES if name in args.suites or not args.suites]
    outcomes = [run_suite(name, SUITES[name], budgets[name], passed_on) for name in chosen]
    print(table(outcomes), flush=True)
    return 0 if all(outcome.result in {Result.PASSED, Result.LATE} for outcome in outcomes) else 1


def read_budgets() -> dict[str, float]:
    """Minutes by suite."""
    with (ROOT / "tests/budget.toml").open("rb") as file:
        return {name: float(minutes) for name, minutes in tomllib.load(file)["minutes"].items()}


def run_suite(name: str, commands: Sequence[Sequence[str]], budget: float, more: Sequence[str] = ()) -> Outcome:
    """Run every command of a suite, also after one has failed. `more` goes to those that are pytest's. `budget` is in
    minutes of the machine that it is for: one that was slower before or after the suite has as much more."""
    times = slowness()
    began = time.monotonic()
    worst = 0
    for command in commands:
        is_pytest = "pytest" in command
        left = budget * 60 * times * PATIENCE - (time.monotonic() - began)
        code = _run([*command, *more] if is_pytest else command, max(1.0, left))
        if is_pytest and more and code == NO_TESTS_FOUND:
            code = 0
        worst = worst or code
    seconds = time.monotonic() - began
    allowed = budget * max(times, slowness())
    return Outcome(name, verdict(worst, seconds, allowed), seconds, allowed)


def slowness() -> float:
    """How many times as long as there the same work takes here now: 1 to SLOWEST."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        count = 0
        for step in range(STEPS):
            count += step
        took.append(time.perf_counter() - began)
    return min(max(min(took) / STEPS_SECONDS, 1.0), SLOWEST)


def verdict(code: int, seconds: float, budget: float) -> Result:
    """What an exit code and a time amount to; `budget` in minutes."""
    if code != 0:
        return Result.FAILED
    if seconds <= budget * 60:
        return Result.PASSED
    return Result.LATE if seconds <= budget * 60 * TOLERANCE else Result.OVER_BUDGET


def table(outcomes: Sequence[Outcome]) -> str:
    lines = ["", f"{'suite':<10} {'result':<16} {'time':>9} {'budget':>9}"]
    for one in outcomes:
        lines.append(
            f"{one.suite:<10} {one.result.value:<16} {_minutes(one.seconds):>9} {_minutes(one.budget * 60):>9}"
        )
    total, allowed = sum(one.seconds for one in outcomes), sum(one.budget for one in outcomes)
    return "\n".join([*lines, f"{'':<27} {_minutes(total):>9} {_minutes(allowed * 60):>9}"])


def _run(command: Sequence[str], seconds: float) -> int:
    print(f"\n== {_shown(command)}", flush=True)
    # A group of its own, so that a command that hangs is ended with what it started.
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"== still running after {_minutes(seconds)}: killed", flush=True)
        return 1
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _shown(command: Sequence[str]) -> str:
    words = ["python" if word == PYTHON else word.removeprefix(str(Path(PYTHON).parent) + "/") for word in command]
    return " ".join(words)


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60)}:{seconds % 60:04.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
