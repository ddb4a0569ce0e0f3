"""A mutant, a copy of the tree, and what a check says of the two."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PATCHES: Final = Path(__file__).parent
LEFT_OUT: Final = shutil.ignore_patterns(".git", ".venv", ".tools", ".*_cache", "var", "dist")
PYTEST: Final = ("pytest", "-p", "no:cacheprovider", "-x", "--tb=short")
GRACE_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Check:
    """What to run, what it must say, and within how many seconds."""

    words: str
    says: re.Pattern[str]
    within: float

    @property
    def is_test(self) -> bool:
        return self.words.startswith(("tests/", "@tests/"))  # @: a file that names them


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch with its header. The first check is the quick one."""

    patch: Path
    breaks: str
    checks: tuple[Check, ...]

    @property
    def name(self) -> str:
        return self.patch.stem


class Verdict(Enum):
    CAUGHT = "caught"
    SURVIVED = "SURVIVED"  # the check is as green as without it
    ASTRAY = "ANOTHER REASON"  # the check is red, and does not say what it should
    HUNG = "NOT IN TIME"
    STALE = "DOES NOT APPLY"


@dataclass(frozen=True, slots=True)
class Run:
    """A check's run in a copy of the tree; `code` is None where it took too long."""

    code: int | None
    words: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    mutant: Mutant
    check: Check
    verdict: Verdict
    seconds: float = 0.0
    words: str = ""


def read(patch: Path) -> Mutant:
    """A mutant by its file. Raises ValueError where its header lacks something."""
    header = patch.read_text().partition("\n\ndiff --git ")[0]
    (breaks,), *blocks = ([line.split(": ", 1) for line in block.splitlines()] for block in header.split("\n\n"))
    checks = []
    for block in blocks:
        (_, words), (_, says), (_, within) = block
        checks.append(Check(words, re.compile(says), float(within)))
    return Mutant(patch, breaks[1], tuple(checks))


def every() -> list[Mutant]:
    """All of them, by name."""
    return [read(patch) for patch in sorted(PATCHES.glob("*.patch"))]


def of_day(day: int, count: int) -> list[Mutant]:
    """Those whose turn it is: `count` a day, and all of them in turn."""
    mutants = every()
    return [mutants[(day * count + i) % len(mutants)] for i in range(count)]


def apply(mutant: Mutant, tree: Path, *words: str) -> bool:
    """Change the files of a tree; with `--check`, only look whether that can be done."""
    # Of a repository that the tree is in, or stands beside, git knows nothing here: the copy has none.
    mine = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "apply", *words, str(mutant.patch)]
    ceiling = {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    return subprocess.run(command, cwd=tree, env=mine | ceiling, capture_output=True, check=False).returncode == 0


@contextmanager
def copied() -> Iterator[Path]:
    """The tree's files, elsewhere; as they are, whether or not git knows them."""
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        if (ROOT / ".tools").exists():
            (tree / ".tools").symlink_to(ROOT / ".tools")
        yield tree


def try_out(mutant: Mutant, check: Check) -> Trial:
    """Apply it to a copy, and see whether the check finds it."""
    with copied() as tree:
        if not apply(mutant, tree):
            return Trial(mutant, check, Verdict.STALE)
        ran = run([check], tree, check.within)
    return Trial(mutant, check, judge(check, ran), ran.seconds, ran.words)


def judge(check: Check, ran: Run) -> Verdict:
    """What a check's run with a mutant amounts to."""
    if ran.code is None:
        return Verdict.HUNG
    if ran.code == 0:
        return Verdict.SURVIVED
    lines = ran.words.splitlines()
    if check.is_test:
        lines = [line for line in lines if line.startswith("E  ")]  # not the test's text, which is shown as well
    return Verdict.CAUGHT if any(map(check.says.search, lines)) else Verdict.ASTRAY


def green(checks: Iterable[Check]) -> Run:
    """All these checks, each once, in a copy without any mutant."""
    every = {check.words: check for check in checks}.values()
    tests = [check for check in every if check.is_test]
    words, seconds = "", 0.0
    with copied() as tree:
        for one in [*([tests] if tests else []), *([check] for check in every if not check.is_test)]:
            ran = run(one, tree, sum(check.within for check in one))
            words, seconds = words + ran.words, seconds + ran.seconds
            if ran.code != 0:
                return Run(ran.code, words, seconds)
    return Run(0, words, seconds)


def run(checks: Sequence[Check], tree: Path, seconds: float) -> Run:
    """Run tests together, or one check of another kind, in a tree, in a process of its own."""
    words = [word for check in checks for word in shlex.split(check.words)]
    command = [sys.executable, "-m", *(PYTEST if checks[0].is_test else ()), *words]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    mine["PYTHONPATH"] = f"{tree}{os.pathsep}{tree / 'sdk/src'}"
    with tempfile.TemporaryFile("w+") as said:
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=tree, env=mine, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                _end(process)
        took = time.monotonic() - began
        said.seek(0)
        return Run(code, said.read(), took)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
