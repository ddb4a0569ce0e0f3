"""README from the top in a fresh copy of what git has: the service runs, the first job is done, each by its own words.

The packages are those of this environment: installing them takes as long as the network does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.base.db import programs
from tests import command_lines
from tests.command_lines import ROOT
from tests.manual import AS_PRINTED
from tests.processes import until
from tests.test_tree import tree

ONE_MINUTE, TWO_MINUTES = 60, 120
FIRST_JOB = ("-X PUT", "records", "/claim", "/ack")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has, and an environment that looks as if ./run and ./test had installed it."""
    folder = tmp_path_factory.mktemp("fresh") / "holdfast"
    for path in tree():
        to = folder / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, to)
    venv = folder / ".venv"
    venv.mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".holdfast":
            (venv / path.name).symlink_to(path)
    sums = ""
    for name in ("run", "client", "dev", "spark"):
        pins = (folder / f"deploy/requirements/{name}.txt").read_bytes()
        ran = subprocess.run(["cksum"], input=pins, capture_output=True, check=True)
        sums += f"{name} {ran.stdout.decode().strip()}\n"
    (venv / ".holdfast").write_text(sums)
    (folder / ".venv-spark").symlink_to(".venv")
    return folder


@contextmanager
def typed(command: str, folder: Path, environ: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A command in a terminal of its own, where Ctrl+C ends it; and the file that it writes to."""
    out = folder.parent / "out"
    with out.open("wb") as written:
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environ, stdout=written, stderr=written, start_new_session=True
        )
    try:
        yield process, out
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)


@pytest.mark.alone
def test_the_first_job_is_done_by_what_the_readme_says(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    tools = programs.find_programs(None).bindir
    environ = clean | {"PATH": f"{clean['PATH']}:{tools}", "HOLDFAST_PORT": "0"}
    start, demo, *_ = said = [one.text for one in command_lines.of_page("README.md")]
    calls = [one for one in said if one.startswith("curl ")]
    assert (start, demo) == ("./run", "./run demo")
    assert [next((sign for sign in FIRST_JOB if sign in call), "") for call in calls[:4]] == list(FIRST_JOB)

    def run(command: str) -> str:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=copy, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        return ran.stdout

    began = time.monotonic()
    with typed(start, copy, environ) as (process, out):

        def printed() -> str | None:
            assert process.poll() is None, out.read_text()
            match = re.search(r"is running on (\S+) ", out.read_text())
            return match and match[1]

        url = until(printed, ONE_MINUTE, or_show=out.read_text) or ""
        running = time.monotonic() - began
        answers = [run(call.replace(AS_PRINTED, url)) for call in calls[:4]]
        done = time.monotonic() - began
        # The comment above that command promises dead letters: deliveries are bounded only where there are some.
        assert '"on_exhausted":"dead_letter"' in answers[0].replace(" ", "")
        assert '"acked":1' in answers[3].replace(" ", "")
        environ["HOLDFAST_PORT"] = url.rpartition(":")[2]
        assert "every digest is right, and the queue is empty" in run(demo)
        of_folder = "psql", ".venv-spark/bin/python -c", "make spark-zip"
        others = [
            one.text
            for page in ("docs/configuration.md", "docs/spark.md", "docs/operations/spark.md")
            for one in command_lines.of_page(page)
            if one.text.startswith(of_folder)
        ]
        assert len(others) == len(of_folder)
        for command in others:
            run(command)
    assert (copy / "holdfast-spark.zip").is_file()
    with capsys.disabled():
        print(f"\nfresh copy: running after {running:.1f} s, first job done after {done:.1f} s, without the install")
    assert running < ONE_MINUTE
    assert done < TWO_MINUTES
