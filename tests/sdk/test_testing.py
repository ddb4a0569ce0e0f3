"""`holdfast.testing` as its users have it: installed from the two wheels, in a project of their own, run by pytest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import ServiceMissing, _home
from tests.launch import answers
from tests.processes import until
from tests.sdk.pages import ROOT, examples
from tests.sdk.test_wheel import uv

STARTS = """
import os, resource, subprocess, sys, time
from pathlib import Path
from holdfast import Client
from holdfast.testing import start


def spent():
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def fastapi():
    before = spent()
    subprocess.run([sys.executable, "-c", "import asyncio, fastapi"], check=True)
    return spent() - before


def seconds():
    began, before = time.monotonic(), spent()
    with start() as service, Client(service.url) as client:
        client.topic("mail").put()
        took = time.monotonic() - began
    return took, spent() - before


templates = Path(os.environ["XDG_CACHE_HOME"], "holdfast-testing")
[template] = (path for path in templates.iterdir() if path.is_dir())
for _ in range(2):
    print(*seconds(), fastapi())
os.environ["HOLDFAST_TEST_SERVICE"] = sys.argv[1]
seconds()  # a checkout would make the same template, and so finds it
assert [path for path in templates.iterdir() if path.is_dir()] == [template]
[version] = template.glob("pg*/PG_VERSION")
version.write_text("9")
seconds()  # one that no service starts from is replaced
assert version.read_text() != "9"
"""
SECONDS = 20.0  # docs/testing.md has what it takes on a machine that does nothing else
KILLED = """
import os, signal
from holdfast.testing import start
with start() as service:
    print(service.url, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
# However busy the machine is: a start takes as much of its processors as so many times `import fastapi`, at most.
IMPORTS = 6.0


class Project:
    """Somebody's project, with an environment that has the client and the service, and a cache folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.python = folder / "env/bin/python"

    def run(self, *words: str, ends: int = 0) -> str:
        """What Python says, which ends with this code."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PY"))}
        ran = subprocess.run(
            [self.python, *words],
            cwd=self.folder,
            env=clean | {"XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(self.temporary)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert ran.returncode == ends, ran.stdout + ran.stderr
        return ran.stdout


def one(folder: Path, pattern: str) -> Path:
    """The wheel that was built."""
    (found,) = (folder / "dist").glob(pattern)
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    made = Project(folder)
    for source in (ROOT, ROOT / "sdk"):
        uv("build", "--quiet", "--wheel", "--out-dir", folder / "dist", source)
    uv("venv", "--quiet", "--python", sys.executable, folder / "env")
    uv(
        "pip",
        "install",
        "--quiet",
        "--python",
        made.python,
        # By their places: an index may have others of these names.
        f"holdfast[testing] @ {one(folder, 'holdfast-*.whl').as_uri()}",
        f"holdfast-service @ {one(folder, 'holdfast_service-*.whl').as_uri()}",
        "pytest-xdist",
    )
    # A module of the name that the service's code has, which must not come before it.
    (folder / "app").mkdir()
    (folder / "app/__main__.py").write_text("raise SystemExit('the wrong app')")
    handlers, tests = examples((ROOT / "docs/testing.md").read_text())
    (folder / "shop.py").write_text(handlers.code)
    for name in ("test_shop.py", "test_shop_again.py"):
        (folder / name).write_text(tests.code.replace("assert sent == []", "sent.clear()"))
    return made


@pytest.mark.index
def test_the_page_holds_in_a_project_of_its_own(project: Project) -> None:
    # Two processes want a template, and there is none.
    assert "2 passed" in project.run("-m", "pytest", "-q", "-n", "2")
    starts = [map(float, line.split()) for line in project.run("-c", STARTS, str(ROOT)).splitlines()]
    took, spent, imports = (min(column) for column in zip(*starts, strict=True))
    print(
        f"a start from the template: {took:.2f} s, {spent:.2f} s of processors; import fastapi: {imports:.2f} s of them"
    )
    assert took < SECONDS
    assert spent < IMPORTS * imports
    assert list(project.temporary.glob("holdfast-testing-*")) == []
    assert project.run("-m", "holdfast_service", "--version").startswith("holdfast ")
    if shutil.which("setpriv"):
        url = project.run("-c", KILLED, ends=-signal.SIGKILL).strip()
        until(lambda: not answers(url), 30)  # nobody was left to stop it


def test_where_no_service_is_installed_a_test_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(holdfast_service): pass")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_holdfast", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "sdk/src")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert _home.MISSING.splitlines()[0] in ran.stdout.replace("\nE ", "")
    assert "Traceback" not in ran.stdout + ran.stderr


def test_what_is_named_is_to_be_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_home.VARIABLE, "/nowhere")
    with pytest.raises(ServiceMissing, match="/nowhere is no checkout"):
        _home.find()


@pytest.mark.parametrize("path", ["migrations/versions/0001_x.py", "migrations/schema/x.sql", "app/x/functions/x.sql"])
def test_what_makes_the_schema_makes_the_version(tmp_path: Path, path: str) -> None:
    """A template of an earlier schema is not taken for one of today."""
    home = _home.Home(tmp_path, ())
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("SELECT 1")
    before = home.version()
    (tmp_path / path).write_text("SELECT 2")
    assert home.version() != before
