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
import os, sys
from pathlib import Path
from holdfast import Client
from holdfast.testing import start


def begin():
    with start() as service, Client(service.url) as client:
        client.topic("mail").put()


def templates():
    return [path for path in Path(os.environ["XDG_CACHE_HOME"], "holdfast-testing").iterdir() if path.is_dir()]


[template] = templates()
made = template.stat().st_mtime_ns
begin()
os.environ["HOLDFAST_TEST_SERVICE"] = sys.argv[1]
begin()  # a checkout would make the same template, and so finds it
assert templates() == [template]
assert template.stat().st_mtime_ns == made
[version] = template.glob("pg*/PG_VERSION")
version.write_text("9")
begin()  # one that no service starts from is replaced
assert version.read_text() != "9"
"""
KILLED = """
import os, signal
from holdfast.testing import start
with start() as service:
    print(service.url, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    made = Project(folder)
    for source in (ROOT, ROOT / "sdk"):
        uv("build", "--quiet", "--wheel", "--out-dir", folder / "dist", source)
    uv("venv", "--quiet", "--python", sys.executable, folder / "env")
    [client], [service] = (folder.glob(f"dist/{name}-*.whl") for name in ("holdfast", "holdfast_service"))
    # By their places: an index may have others of these names.
    places = (f"holdfast[testing] @ {client.as_uri()}", f"holdfast-service @ {service.as_uri()}")
    uv("pip", "install", "--quiet", "--python", made.python, *places, "pytest-xdist")
    # A module of the name that the service's code has, which must not come before it.
    (folder / "app").mkdir()
    (folder / "app/__main__.py").write_text("raise SystemExit('the wrong app')")
    handlers, tests = examples((ROOT / "docs/testing.md").read_text())
    (folder / "shop.py").write_text(handlers.code)
    for name in ("test_shop.py", "test_shop_again.py"):
        (folder / name).write_text(tests.code.replace("assert sent == []", "sent.clear()"))
    return made


@pytest.mark.index
@pytest.mark.slow
def test_the_page_holds_in_a_project_of_its_own(project: Project) -> None:
    # Two processes want a template, and there is none.
    assert "2 passed" in project.run("-m", "pytest", "-q", "-n", "2")
    project.run("-c", STARTS, str(ROOT))
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
    with pytest.raises(ServiceMissing, match="/nowhere is not a checkout"):
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
