"""Mutants are caught: one in `./test`, each day another, three in `./test all`; all of them by `make mutants`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tools.chaos.mutants import __main__ as table
from tools.chaos.mutants import trials
from tools.chaos.mutants.trials import Check, Mutant, Run, Verdict

MUTANTS = trials.every()
DAY = 86_400


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_applies_to_the_tree_and_its_quick_check_is_there(mutant: Mutant) -> None:
    assert trials.apply(mutant, trials.ROOT, "--check"), "it does not apply: the product has changed where it breaks it"
    file, _, test = mutant.checks[0].words.partition("::")
    assert f"def {test.partition('[')[0]}(" in (trials.ROOT / file).read_text()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_those_of_today_are_caught(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        assert table.all_caught([(one, one.checks[0]) for one in trials.of_day(int(time.time() // DAY), count)])


@pytest.mark.parametrize("count", [1, 3])
def test_each_has_its_day(count: int) -> None:
    days = [trials.of_day(day, count) for day in range(len(MUTANTS))]
    assert {mutant.name for day in days for mutant in day} == {mutant.name for mutant in MUTANTS}
    assert all(len({mutant.name for mutant in day}) == count for day in days)


FAILED = "tests/test_it.py:3: in test_it\n    assert kept, 'a job is gone'\nE   AssertionError: %s\n"


@pytest.mark.parametrize(
    ("words", "code", "told", "verdict"),
    [
        ("tests/test_it.py", 1, FAILED % "a job is gone", Verdict.CAUGHT),
        ("tests/test_it.py", 1, FAILED % "there is no such table", Verdict.ASTRAY),
        ("tests/test_it.py", 4, "ERROR: not found: a job is gone", Verdict.ASTRAY),
        ("tests/test_it.py", 0, "a job is gone, said nobody", Verdict.SURVIVED),
        ("tests/test_it.py", None, FAILED % "a job is gone", Verdict.HUNG),
        ("tests.it", 1, "seed 1\nlost: a job is gone\n", Verdict.CAUGHT),
    ],
)
def test_a_check_must_be_red_for_its_own_reason(words: str, code: int | None, told: str, verdict: Verdict) -> None:
    assert trials.judge(Check(words, re.compile("a job is gone"), 10), Run(code, told, 1)) is verdict


def test_a_patch_of_what_is_not_there_is_told(tmp_path: Path) -> None:
    patch = tmp_path / "00-old.patch"
    header = "Breaks: it\n\nCheck: tests/test_it.py::test_it\nSays: gone\nWithin: 10\n\n"
    diff = "diff --git a/LICENSE b/LICENSE\n--- a/LICENSE\n+++ b/LICENSE\n@@ -1 +1 @@\n-Nobody wrote it.\n+Nor this.\n"
    patch.write_text(header + diff)
    mutant = trials.read(patch)
    assert trials.try_out(mutant, mutant.checks[0]).verdict is Verdict.STALE


def test_a_check_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    endless = Check("timeit -n 1 -r 1 -s 'import time' 'time.sleep(60)'", re.compile(""), 0.5)
    assert trials.run([endless], tmp_path, endless.within).code is None
