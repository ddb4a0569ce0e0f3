"""`keys` and `users`: called in this process where what they say matters, and as processes, as an operator has them."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.http.signin import commands
from tests.api.keyring import Services

if TYPE_CHECKING:
    from tests.conftest import Running

ROOT = Path(__file__).parents[2]
BCRYPT_COST = 10


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


Run = Callable[..., Awaitable[Ended]]


@pytest.fixture(scope="module")
async def services(serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture
def run(services: Services, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls `keys …` or `users …` on the database of the services, with this on its stdin."""

    async def run(name: str, *words: str, stdin: str = "", redis_url: str | None = None) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        try:
            args = commands.parse(name, words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        else:
            code = await commands.run(name, services.url, redis_url, BCRYPT_COST, args)
        return Ended(code, *capsys.readouterr())

    return run


def environment(url: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return clean | {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_BCRYPT_COST": str(BCRYPT_COST)}


async def run_process(url: str, *words: str, stdin: str = "") -> Ended:
    """Run `python -m app` with these words on a database."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", *words),
        cwd=ROOT,
        env=environment(url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode, out.decode(), err.decode())
