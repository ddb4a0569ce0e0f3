"""What users install: the wheel, in an environment that has nothing else but what it asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.launch import services
from tests.sdk.pages import ROOT

USER_PROGRAM = ROOT / "tests/sdk/user_program.py"

pytestmark = pytest.mark.index


def uv(*words: str | Path) -> None:
    """Run uv. What it can't fetch fails the test, or skips it where missing things are allowed."""
    binary = shutil.which("uv") or ROOT / ".tools/bin/uv"
    ran = subprocess.run([binary, *words], capture_output=True, text=True, check=False, timeout=240)
    if ran.returncode and os.environ.get("HOLDFAST_TEST_ALLOW_MISSING"):
        pytest.skip(f"no package index: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--wheel", "--out-dir", folder, ROOT / "sdk")
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel, and what that asks for."""
    folder = tmp_path_factory.mktemp("env")
    uv("venv", "--quiet", "--python", sys.executable, folder)
    uv("pip", "install", "--quiet", "--python", folder / "bin/python", wheel)
    return folder / "bin/python"


def test_the_wheel_has_the_package_and_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "holdfast/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"holdfast", "pytest_holdfast.py"}
    sources = {str(path.relative_to(ROOT / "sdk/src")) for path in (ROOT / "sdk/src").rglob("*.*") if _is_source(path)}
    assert {name for name in names if _is_source(Path(name))} == sources


def _is_source(path: Path) -> bool:
    return path.suffix in (".py", ".sql")


def test_the_command_says_what_it_needs(python: Path) -> None:
    ran = subprocess.run([python.parent / "holdfast"], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (1, "The command line needs the package's extra: cli\n")


@pytest.mark.slow
async def test_the_pages_hold_with_nothing_but_the_wheel_and_a_service_that_has_just_been_started(
    python: Path, new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    with services(tmp_path) as start:
        url = start(DATABASE_URL=await new_database()).up()
        for page in ("docs/sdk.md", "sdk/README.md"):
            words: list[str | Path] = [python, "-I", ROOT / "tests/sdk/pages.py", ROOT / page, url]
            ran = subprocess.run(
                words, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path, env=without_ours()
            )
            assert ran.returncode == 0, f"{page}: {ran.stderr}"


def without_ours() -> dict[str, str]:
    """The environment, without what has Python find packages of this repository."""
    return {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}


@pytest.mark.slow
def test_a_users_program_is_typed_against_the_wheel(python: Path, tmp_path: Path) -> None:
    program = shutil.copy(USER_PROGRAM, tmp_path)
    words = ["--strict", "--config-file=", f"--python-executable={python}", f"--cache-dir={tmp_path / 'cache'}"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *words, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=tmp_path,
        env=without_ours(),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
