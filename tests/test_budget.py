"""The tests' own rules: every suite has a budget, and running far over it is a failure."""

from __future__ import annotations

import sys

import pytest

from tests import run_suites
from tests.run_suites import Result


def test_every_suite_has_a_budget_and_the_whole_takes_25_minutes() -> None:
    budgets = run_suites.read_budgets()
    assert set(budgets) == set(run_suites.SUITES)
    assert sum(budgets.values()) <= 25


def test_a_suite_that_takes_longer_than_its_budget_fails() -> None:
    passes = [[sys.executable, "-c", ""]]
    assert run_suites.run_suite("tiny", passes, budget=1).result is Result.PASSED
    late = run_suites.run_suite("tiny", passes, budget=0.00001)
    assert late.result is Result.OVER_BUDGET
    assert "over its budget" in run_suites.table([late])


def test_one_that_is_a_little_late_is_said_to_be() -> None:
    assert run_suites.verdict(0, 60, budget=1) is Result.PASSED
    assert run_suites.verdict(0, 61, budget=1) is Result.LATE
    assert run_suites.verdict(0, 60 * run_suites.TOLERANCE + 1, budget=1) is Result.OVER_BUDGET
    assert run_suites.verdict(1, 1, budget=1) is Result.FAILED


def test_a_slower_machine_has_more_time_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = [[sys.executable, "-c", ""]]
    for seconds, budget in ((1000.0, 1.0), (0.0001, run_suites.SLOWEST)):
        monkeypatch.setattr(run_suites, "STEPS_SECONDS", seconds)
        assert run_suites.run_suite("tiny", passes, budget=1).budget == budget


def test_a_suite_that_hangs_is_ended() -> None:
    hangs = [[sys.executable, "-c", "import time; time.sleep(60)"]]
    ended = run_suites.run_suite("tiny", hangs, budget=0.001)
    assert ended.result is Result.FAILED
    assert ended.seconds < 30


def test_a_failure_is_one_also_when_a_later_command_passes() -> None:
    commands = [[sys.executable, "-c", "raise SystemExit(3)"], [sys.executable, "-c", ""]]
    assert run_suites.run_suite("tiny", commands, budget=1).result is Result.FAILED


def test_what_follows_the_dashes_goes_to_pytest_only(capfd: pytest.CaptureFixture[str]) -> None:
    show = "import sys; print(sys.argv[1:])"
    commands = [[sys.executable, "-c", show, "pytest"], [sys.executable, "-c", show, "mypy"]]
    run_suites.run_suite("tiny", commands, budget=1, more=["-k", "claim"])
    printed = capfd.readouterr().out
    assert "['pytest', '-k', 'claim']" in printed
    assert "['mypy']" in printed


def test_an_unknown_suite_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run_suites.main(["nonsense"])
    assert end.value.code == 2
    assert "there is no suite nonsense" in capsys.readouterr().err
