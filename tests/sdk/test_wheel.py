"""What users install: the wheel, in an environment that has nothing else but what it asks for."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.api.keyring import Services
from tests.sdk.conftest import Serve
from tests.sdk.test_pages import examples

ROOT = Path(__file__).parents[2]
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


async def test_the_programs_of_the_pages_run_with_nothing_but_the_wheel(
    python: Path, serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    service = await (await Services.make(serve, new_database)).start()
    pages = [(ROOT / page).read_text() for page in ("sdk/README.md", "docs/sdk.md")]
    programs = [example for page in pages for example in examples(page) if "asyncio.run(" in example.code]
    assert len(programs) == 2
    for example in programs:
        code = example.code.replace("http://127.0.0.1:8080", service.url)
        assert await asyncio.to_thread(output_of, python, code) == example.prints


def output_of(python: Path, code: str) -> str:
    ran = subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60, cwd=python.parent
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_users_program_is_typed_against_the_wheel(python: Path, tmp_path: Path) -> None:
    program = shutil.copy(USER_PROGRAM, tmp_path)
    words = ["--strict", "--config-file=", f"--python-executable={python}", f"--cache-dir={tmp_path / 'cache'}"]
    env = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *words, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=tmp_path,
        env=env,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
