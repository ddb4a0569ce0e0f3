"""What ./test runs: the suites in order. `./test all` adds the slow tests and the suites that only it has.

A suite that takes longer than it should is called late. Time alone never fails a run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
NO_TESTS_FOUND = 5  # pytest's exit code; fine for a suite out of which `-k` picks nothing

# Of what `make pgbouncer` runs: jobs, streams, settings of topics, sign-in.
BEHIND_PGBOUNCER = [f"tests/api/test_{name}.py" for name in ("smoke", "work", "topic_configs", "sign_in")]

# How long each suite should take on two cores that do nothing else: in ./test, and in ./test all.
MINUTES: Mapping[str, tuple[float, float]] = {
    "checks": (0.6, 0.6),
    "tests": (7.6, 11.5),
    "spark": (1.8, 2.8),
    "alone": (1.9, 7.4),
    "pgbouncer": (0, 0.3),
    "bench": (0, 1.15),
}
ALL = "all"
ONLY_IN_ALL = {"pgbouncer", "bench"}


SUITES: Mapping[str, Sequence[Sequence[str]]] = {
    "checks": (
        (PYTHON, "-m", "ruff", "check"),
        (PYTHON, "-m", "ruff", "format", "--check"),
        (PYTHON, "-m", "mypy"),
        ("env", f"PYTHONPATH={ROOT / 'sdk/src'}", str(Path(PYTHON).with_name("lint-imports"))),
        (PYTHON, "deploy/check_pins.py"),
        (PYTHON, "-m", "tests.wording"),
        (PYTHON, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "app", "deploy", "migrations", "sdk/src", "spark"),
    ),
    "tests": ((PYTHON, "-m", "pytest", "-n", "3", "-m", "not alone and not spark"),),
    "spark": ((PYTHON, "-m", "pytest", "tests/spark", "-m", "spark"),),  # one process, so one Spark session
    "alone": ((PYTHON, "-m", "pytest", "-m", "alone"),),
    "pgbouncer": (
        ("env", "HOLDFAST_TEST_PGBOUNCER=1", PYTHON, "-m", "pytest", "-n", "2", *BEHIND_PGBOUNCER, "-m", "not alone"),
    ),
    "bench": ((PYTHON, "-m", "tools.bench", "--quick"),),  # that every bar can be taken, not what it says
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a suite ended: the worst exit code of its commands, and how long they took."""

    suite: str
    code: int
    seconds: float
    minutes: float  # it should take

    @property
    def verdict(self) -> str:
        if self.code != 0:
            return "failed"
        return "passed, late" if self.seconds > self.minutes * 60 else "passed"


def main(argv: Sequence[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    own, passed_on = argv[:end], argv[end + 1 :]
    parser = argparse.ArgumentParser(
        prog="./test",
        description="Run the tests that belong to every change. `./test all` runs the slow ones, too.",
        epilog="What follows -- goes to pytest: ./test tests -- -k claim",
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"all; or some of {', '.join(SUITES)}")
    parser.add_argument("--list", action="store_true", help="name the suites, their commands and their usual minutes")
    parser.add_argument("--allow-missing", action="store_true", help="skip what needs a tool that is not installed")
    args = parser.parse_args(own)
    unknown = [name for name in args.suites if name not in {ALL, *SUITES}]
    if unknown:
        parser.error(f"there is no suite {unknown[0]}: choose all, or of {', '.join(SUITES)}")
    everything = ALL in args.suites
    named = set(args.suites) - {ALL} or set(SUITES) - (set() if everything else ONLY_IN_ALL)
    chosen = {name: [_for_tier(command, everything) for command in SUITES[name]] for name in SUITES if name in named}
    if args.list:
        for name, commands in chosen.items():
            print(f"{name}  ({MINUTES[name][everything]:g} min)")
            for command in commands:
                print(f"    {_shown(command)}")
        return 0
    if args.allow_missing:
        os.environ["HOLDFAST_TEST_ALLOW_MISSING"] = "1"
    outcomes = [run_suite(name, commands, MINUTES[name][everything], passed_on) for name, commands in chosen.items()]
    print(table(outcomes), flush=True)
    return 1 if any(outcome.code for outcome in outcomes) else 0


def _for_tier(command: Sequence[str], everything: bool) -> Sequence[str]:
    """A command of pytest's without the slow tests, unless it is for all; others as they are."""
    if everything or "pytest" not in command:
        return command
    *words, marked = command
    return [*words, f"{marked} and not slow"]


def run_suite(name: str, commands: Sequence[Sequence[str]], minutes: float, more: Sequence[str] = ()) -> Outcome:
    """Run every command of a suite, also after one has failed. `more` goes to those that are pytest's."""
    began = time.monotonic()
    worst = 0
    for command in commands:
        is_pytest = "pytest" in command
        code = _run([*command, *more] if is_pytest else command)
        if is_pytest and more and code == NO_TESTS_FOUND:
            code = 0
        worst = worst or code
    return Outcome(name, worst, time.monotonic() - began, minutes)


def table(outcomes: Sequence[Outcome]) -> str:
    lines = ["", f"{'suite':<10} {'result':<16} {'time':>9} {'should take':>13}"]
    for one in outcomes:
        lines.append(f"{one.suite:<10} {one.verdict:<16} {_minutes(one.seconds):>9} {_minutes(one.minutes * 60):>13}")
    total, expected = sum(one.seconds for one in outcomes), sum(one.minutes for one in outcomes)
    return "\n".join([*lines, f"{'':<27} {_minutes(total):>9} {_minutes(expected * 60):>13}"])


def _run(command: Sequence[str]) -> int:
    """Its exit code. There is no limit of time: pytest ends a test that hangs, by its name."""
    print(f"\n== {_shown(command)}", flush=True)
    # A group of its own, so that an interrupt ends a command with all that it started.
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait()
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
