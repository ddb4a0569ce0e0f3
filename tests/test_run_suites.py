"""The runner behind ./test: what fails a run, and what does not."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import run_suites
from tests.run_suites import MINUTES, SUITES, Outcome

PASSES = [sys.executable, "-c", ""]


def test_every_suite_says_how_long_it_should_take() -> None:
    assert set(MINUTES) == set(SUITES)


def test_time_never_fails_a_run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run_suites, "SUITES", {"checks": [PASSES]})
    monkeypatch.setattr(run_suites, "MINUTES", {"checks": (0.000_001, 1)})
    assert run_suites.main(["checks"]) == 0
    assert "passed, late" in capfd.readouterr().out


def test_a_suite_in_time_is_not_called_late() -> None:
    assert Outcome("checks", 0, 1, 0.6).verdict == "passed"
    assert Outcome("checks", 1, 1, 0.6).verdict == "failed"


def test_a_failure_is_one_also_when_a_later_command_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(run_suites, "SUITES", {"checks": [fails, PASSES]})
    assert run_suites.main(["checks"]) == 1


def test_what_follows_the_dashes_goes_to_pytest_only(capfd: pytest.CaptureFixture[str]) -> None:
    show = "import sys; print(sys.argv[1:])"
    commands = [[sys.executable, "-c", show, "pytest"], [sys.executable, "-c", show, "mypy"]]
    run_suites.run_suite("tests", commands, 1, more=["-k", "claim"])
    printed = capfd.readouterr().out
    assert "['pytest', '-k', 'claim']" in printed
    assert "['mypy']" in printed


def test_the_slow_tests_are_left_to_all(capsys: pytest.CaptureFixture[str]) -> None:
    run_suites.main(["--list"])
    quick = capsys.readouterr().out
    run_suites.main(["all", "--list"])
    everything = capsys.readouterr().out
    assert quick.count("and not slow") == 3
    assert "slow" not in everything
    assert "HOLDFAST_TEST_PGBOUNCER" not in quick
    assert "HOLDFAST_TEST_PGBOUNCER" in everything


def test_an_unknown_suite_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run_suites.main(["nonsense"])
    assert end.value.code == 2
    assert "there is no suite nonsense" in capsys.readouterr().err


@pytest.mark.slow
def test_every_make_target_installs_what_it_needs() -> None:
    makefile = (run_suites.ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)) - {"help", "run", "test", "check"}
    assert len(targets) > 25
    for target in targets:
        command = ["make", "--dry-run", target]
        planned = subprocess.run(command, cwd=run_suites.ROOT, capture_output=True, text=True, check=True)
        assert planned.stdout.startswith("./test --list"), f"make {target} finds no .venv in a fresh clone"
