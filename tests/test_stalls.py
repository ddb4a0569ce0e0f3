"""Which tests are run again, and that none is for longer than there is a reason: runs of tests that fail at first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import stalls

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests import stalls

def pytest_configure(config):
    config.pluginmanager.register(stalls.Plugin())

@pytest.fixture
def browser():
    pass
"""
FAILS_AT_FIRST = """
import subprocess
from pathlib import Path

import pytest

@pytest.mark.parametrize("n", range({tests}))
def test_moody({fixture}n):
    with Path(f"runs-{{n}}").open("a") as runs:
        runs.write("x")
    {body}
    assert len(Path(f"runs-{{n}}").read_text()) > {failures}
"""
STANDS_STILL = "subprocess.Popen(['sh', '-c', 'kill -STOP $PPID; sleep 0.8; kill -CONT $PPID']).wait()"


def ran(folder: Path, *, tests: int = 1, fixture: str = "", body: str = "pass", failures: int = 1) -> tuple[int, str]:
    """The exit code of such tests, and what was printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    text = FAILS_AT_FIRST.format(tests=tests, fixture=fixture, body=body, failures=failures)
    (folder / "test_moody.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def runs(folder: Path) -> str:
    """Of each test, in order."""
    return " ".join(str(len(path.read_text())) for path in sorted(folder.glob("runs-*")))


def test_one_in_a_browser_is_run_once_more_and_named(tmp_path: Path) -> None:
    code, said = ran(tmp_path, fixture="browser, ")
    assert (code, runs(tmp_path)) == (0, "2")
    assert f"1 {stalls.MOOD}, and were run again" in said
    assert "test_moody.py::test_moody[0]" in said


def test_one_in_a_browser_that_fails_twice_has_failed(tmp_path: Path) -> None:
    code, said = ran(tmp_path, fixture="browser, ", failures=2)
    assert (code, runs(tmp_path)) == (1, "2"), said


def test_many_in_a_browser_have_failed(tmp_path: Path) -> None:
    code, said = ran(tmp_path, fixture="browser, ", tests=stalls.MOST_MOODS + 1)
    assert (code, runs(tmp_path)) == (1, "2 2 1"), said


def test_no_other_is_run_again(tmp_path: Path) -> None:
    code, said = ran(tmp_path)
    assert (code, runs(tmp_path)) == (1, "1"), said


@pytest.mark.parametrize("failures", [1, 3])
def test_one_during_which_the_machine_stood_still_has_three_runs(tmp_path: Path, failures: int) -> None:
    code, said = ran(tmp_path, body=STANDS_STILL, failures=failures)
    assert (code, runs(tmp_path)) == ((0, "2") if failures == 1 else (1, "3")), said
    assert f"1 {stalls.STILL}, and were run again" in said
