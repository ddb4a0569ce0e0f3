"""How many machine-made mutants of app/kernel the tests find.

Measures first which tests run which lines of the kernel. Then each mutant, in a copy of the tree, meets the tests that
run its line, those of the kernel first, until one fails. Results go into a file as they come; started again, a run goes
on from there. Two runs of one seed, before and after a change of the tests, meet the same mutants as long as the kernel
is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from coverage import CoverageData

from tools.chaos.mutants.trials import LEFT_OUT, Check, run
from tools.mutation import PACKAGES
from tools.mutation.sites import FOLDER, Mutant, sample

ROOT = Path(__file__).parents[2]
# Tests that call the kernel in their own process, where lines can be seen; those of its own folders come first.
KERNEL = "engine", "topics", "queue", "reapers", "races", "model", "history", "sql"
FOLDERS = *KERNEL, "api"
QUICK = "not alone and not spark and not slow"
MOST = 200  # tests that a mutant meets: of a line that all of them run, one of these finds it, or none does
SECONDS = 420.0  # after which a mutant counts as found: it hangs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose tests are measured; else this one")
    parser.add_argument("--count", type=int, default=150, help="mutants; default: 150")
    parser.add_argument("--seed", type=int, default=1, help="which ones; default: 1")
    parser.add_argument("--jobs", type=int, default=2, help="at a time; default: 2")
    parser.add_argument("--into", type=Path, default=ROOT / "var/mutation", help="where results go: var/mutation")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    tree, results = args.tree.resolve(), args.into / f"results-{args.seed}.jsonl"
    reach = Reach(tree, args.into.resolve() / "coverage")
    mutants = sample(tree, args.count, args.seed)
    known = {one["mutant"] for one in _read(results)}
    left = [mutant for mutant in mutants if mutant.name not in known]
    with copies(tree, args.jobs) as free, results.open("a") as file, ThreadPoolExecutor(args.jobs) as pool:
        trials = pool.map(lambda mutant: trial(mutant, reach.tests(mutant), free), left)
        for n, one in enumerate(trials, len(mutants) - len(left) + 1):
            print(json.dumps(one), file=file, flush=True)
            print(f"{n:4} of {len(mutants)}  {one['verdict']:<9} {one['seconds']:5} s  {one['mutant']}", flush=True)
    names = {mutant.name for mutant in mutants}
    verdicts = Counter(one["verdict"] for one in _read(results) if one["mutant"] in names)
    killed = verdicts["killed"] + verdicts["hung"]
    print(f"{killed} of {len(mutants)} killed, {killed / len(mutants):.1%}: {dict(verdicts)}")


def _read(results: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


class Reach:
    """Which tests run which lines of a tree's kernel."""

    def __init__(self, tree: Path, data: Path) -> None:
        if not data.exists():
            _cover(tree, data)
        measured = CoverageData(str(data))
        measured.read()
        self._size: Counter[str] = Counter()  # lines that a test runs
        self._lines: dict[str, dict[int, set[str]]] = {}
        for path in measured.measured_files():
            contexts = measured.contexts_by_lineno(path)  # "tests/a.py::test_b|run", or "" of an import
            lines = {n: {name.partition("|")[0] for name in names if name} for n, names in contexts.items()}
            self._lines[Path(path).relative_to(tree).as_posix()] = lines
            self._size.update(name for names in lines.values() for name in names)

    def tests(self, mutant: Mutant) -> list[str]:
        """Tests that run its line; of SQL, and of what runs at import alone, those that run anything of the same part.

        The kernel's own come first, and of these the ones that run little else.
        """
        names = self._lines.get(mutant.file, {}).get(mutant.line, set())
        if not names:
            part = "/".join(Path(mutant.file).parts[:3]) + "/"
            near = [lines for file, lines in self._lines.items() if file.startswith(part)] or [*self._lines.values()]
            names = {name for lines in near for found in lines.values() for name in found}
        own = tuple(f"tests/{name}/" for name in KERNEL)
        return sorted(names, key=lambda name: (not name.startswith(own), self._size[name], name))[:MOST]


def _cover(tree: Path, data: Path) -> None:
    folders = [f"tests/{name}" for name in FOLDERS if (tree / "tests" / name).exists()]
    cover = ["-p", "pytest_cov", f"--cov={FOLDER}", "--cov-context=test", "--cov-report="]
    env = os.environ | {"COVERAGE_FILE": str(data), "PYTHONPATH": str(PACKAGES)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", QUICK, *cover, *folders]
    subprocess.run(command, cwd=tree, env=env, check=False)


@contextmanager
def copies(tree: Path, count: int) -> Iterator[Queue[Path]]:
    """Copies of the tree, one for each that works at a time."""
    free: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutation-", ignore_cleanup_errors=True) as folder:
        for n in range(count):
            copy = Path(folder) / str(n)
            shutil.copytree(tree, copy, ignore=LEFT_OUT)
            free.put(copy)
        yield free


def trial(mutant: Mutant, tests: list[str], free: Queue[Path]) -> dict[str, str]:
    """A mutant's fate: killed by the test that is named, hung, survived, or unreached by any test."""
    if not tests:
        return {"mutant": mutant.name, "verdict": "unreached", "by": "", "seconds": "0"}
    copy = free.get()
    path = copy / mutant.file
    text = path.read_text()
    try:
        path.write_text(mutant.text)
        (copy / "tests/mutation.txt").write_text("\n".join(tests))
        ran = run([Check("@tests/mutation.txt", re.compile(""), SECONDS)], copy, SECONDS)
    finally:
        path.write_text(text)
        free.put(copy)
    verdict = "hung" if ran.code is None else "killed" if ran.code else "survived"
    by = next((line for line in ran.words.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return {"mutant": mutant.name, "verdict": verdict, "by": by[:200], "seconds": f"{ran.seconds:.0f}"}


if __name__ == "__main__":
    main()
