"""The runner behind ./test: what fails a run, and what does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import durations, run_suites
from tests.run_suites import MINUTES, SUITES, Outcome

PASSES = [sys.executable, "-c", ""]


def test_every_suite_says_how_long_it_should_take() -> None:
    assert set(MINUTES) == set(SUITES)


def test_time_never_fails_a_run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run_suites, "SUITES", {"checks": [PASSES]})
    monkeypatch.setattr(run_suites, "MINUTES", {"checks": 0.000_001})
    assert run_suites.main([]) == 0
    assert "passed, late" in capfd.readouterr().out


def test_a_suite_in_time_is_not_called_late() -> None:
    assert Outcome("checks", 0, 1).verdict == "passed"
    assert Outcome("checks", 1, 1).verdict == "failed"


def test_a_failure_is_one_also_when_a_later_command_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(run_suites, "SUITES", {"checks": [fails, PASSES]})
    assert run_suites.main([]) == 1


def test_what_follows_the_dashes_goes_to_pytest_only(capfd: pytest.CaptureFixture[str]) -> None:
    show = "import sys; print(sys.argv[1:])"
    commands = [[sys.executable, "-c", show, "pytest"], [sys.executable, "-c", show, "mypy"]]
    run_suites.run_suite("tests", commands, more=["-k", "claim"])
    printed = capfd.readouterr().out
    assert "['pytest', '-k', 'claim']" in printed
    assert "['mypy']" in printed


def test_durations_are_summed_by_test_and_sorted_by_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tmp_path / "test_two.py"
    ours.write_text("import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_n(n): pass\ndef test_a(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(ours)]
    monkeypatch.setattr(run_suites, "SUITES", {"tests": [command]})
    monkeypatch.setattr(run_suites, "REPORTS", tmp_path / "junit")
    monkeypatch.setattr(durations, "FILE", tmp_path / "durations.txt")
    assert run_suites.main(["--durations"]) == 0
    lines = [line.split() for line in durations.FILE.read_text().splitlines()]
    assert [test for _, test in lines] == ["test_two.py::test_a", "test_two.py::test_n"]
    assert all(0 <= float(spent) < 60 for spent, _ in lines)
    assert "durations.txt: 2 tests" in capsys.readouterr().out


def test_an_unknown_suite_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run_suites.main(["nonsense"])
    assert end.value.code == 2
    assert "there is no suite nonsense" in capsys.readouterr().err


def test_every_make_target_installs_what_it_needs() -> None:
    makefile = (run_suites.ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)) - {"help", "run", "test", "check"}
    assert len(targets) > 25
    for target in targets:
        command = ["make", "--dry-run", target]
        planned = subprocess.run(command, cwd=run_suites.ROOT, capture_output=True, text=True, check=True)
        assert planned.stdout.startswith("./test --list"), f"make {target} finds no .venv in a fresh clone"
