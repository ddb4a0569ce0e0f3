"""README from the top: a job survives a killed worker. In a fresh copy of what git has, and from a release's archives.

The packages of the copy are those of this environment: installing them takes as long as the network does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from app.base.db import programs
from tests import command_lines, manual
from tests.command_lines import ROOT
from tests.processes import until
from tests.sdk.pages import examples
from tests.test_tree import tree

ONE_MINUTE, TWO_MINUTES = 60, 120
LIVED = ["enqueued", "claimed", "released", "claimed", "acked"]
SURVIVAL = ("-X PUT", "records", "kill -9", "/claim", "worker-1", "worker-2", "/history")


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


def shell(command: str, folder: Path, environ: dict[str, str]) -> str:
    """What a command that is typed in a folder prints; it must end well."""
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{command}: {ran.stderr}"
    return ran.stdout


def address(process: subprocess.Popen[bytes], out: Path) -> str:
    """Where the service runs, once it says so."""

    def printed() -> str | None:
        assert process.poll() is None, out.read_text()
        match = re.search(r"is running on (\S+) ", out.read_text())
        return match and match[1]

    return until(printed, ONE_MINUTE, or_show=out.read_text) or ""


def survive(run: Callable[[str], str], url: str) -> None:
    """README's commands, as they are typed."""
    said = [one.text for one in command_lines.of_page("README.md")]
    calls = [one for one in said if one.startswith("curl ")][: len(SURVIVAL)]
    assert [sign for sign, call in zip(SURVIVAL, calls, strict=True) if sign not in call] == []
    _, _, _, claim, late, ack, history = (run(call.replace(manual.AS_PRINTED, url)) for call in calls)
    assert '"deliveries":2' in claim
    assert '"acked":0,"skipped":[1]' in late
    assert '"acked":1,"skipped":[]' in ack
    assert [one["event"] for one in json.loads(history)["events"]] == LIVED


def clean() -> dict[str, str]:
    """The environment without this project's settings."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    return mine | {"HOLDFAST_PORT": "0"}


@pytest.mark.alone
def test_a_job_survives_a_kill_by_copying_from_the_readme(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = clean()
    environ["PATH"] += f":{programs.find_programs(None).bindir}"
    start, demo, *_ = [one.text for one in command_lines.of_page("README.md")]
    assert (start, demo) == ("./run", "./run demo")
    run = partial(shell, folder=copy, environ=environ)
    began = time.monotonic()
    with typed(start, copy, environ) as (process, out):
        url = address(process, out)
        running = time.monotonic() - began
        survive(run, url)
        done = time.monotonic() - began
        environ["HOLDFAST_PORT"] = url.rpartition(":")[2]
        assert "every digest is right, and the queue is empty" in run(demo)
        of_folder = "psql", "make spark-zip"
        others = [
            one.text
            for page in ("docs/configuration.md", "docs/spark.md")
            for one in command_lines.of_page(page)
            if one.text.startswith(of_folder)
        ]
        assert len(others) == len(of_folder)
        for command in others:
            run(command)
    assert (copy / "holdfast-spark.zip").is_file()
    with capsys.disabled():
        print(f"\nfresh copy: running after {running:.1f} s, its job survived after {done:.1f} s, without the install")
    assert running < ONE_MINUTE
    assert done < TWO_MINUTES


@pytest.mark.alone
@pytest.mark.index
def test_the_same_from_the_archives_of_a_release(tmp_path: Path) -> None:
    """`make release`, installed into an empty environment; the service in a folder that has nothing else."""
    archives, empty = tmp_path / "release", tmp_path / "empty"
    empty.mkdir()
    shell(f"make --silent release RELEASE={archives}", ROOT, dict(os.environ))
    assert "FAILED" not in shell("sha256sum -c SHA256SUMS", archives, clean())
    client, service = sorted(archives.glob("*.whl"))
    assert len([*archives.iterdir()]) == len([client, service]) * 2 + 1
    uv = shutil.which("uv") or ROOT / ".tools/bin/uv"
    environ = clean() | {"UV_PYTHON": sys.executable}
    shell(f"{uv} venv --quiet env && {uv} pip install --quiet --python env/bin/python {client}", tmp_path, environ)
    with typed(f"{uv} tool run --quiet --isolated --from {service} holdfast-service", empty, environ) as (process, out):
        url = address(process, out)
        survive(partial(shell, folder=empty, environ=environ), url)
        (program,) = examples((ROOT / "README.md").read_text())
        (tmp_path / "tasks.py").write_text(program.code.replace(manual.AS_PRINTED, url))
        enqueue = next(one.text for one in command_lines.of_page("README.md") if '"records"' in one.text)
        shell(enqueue.replace(manual.AS_PRINTED, url).replace("ada", "alan"), empty, environ)
        with typed("env/bin/python -u tasks.py", tmp_path, environ) as (_, said):
            until(lambda: "to alan" in said.read_text(), ONE_MINUTE, or_show=said.read_text)
