"""The pages say what is so: their Python runs as it stands, and prints what they say."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.api.keyring import Services
from tests.sdk.conftest import Serve

ROOT = Path(__file__).parents[2]
AS_PRINTED = "http://127.0.0.1:8080"
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """A block of Python, and what it prints, where the page says so."""

    code: str
    prints: str | None


def examples(page: str) -> list[Example]:
    blocks = [(match.group(1), match.group(2), match.start(), match.end()) for match in _FENCED.finditer(page)]
    found = []
    for i, (kind, text, _, end) in enumerate(blocks):
        if kind == "python":
            follows = i + 1 < len(blocks) and blocks[i + 1][0] == "" and page[end : blocks[i + 1][2]].strip() == ""
            found.append(Example(text, blocks[i + 1][1] if follows else None))
    return found


async def run(code: str, url: str, names: dict[str, Any]) -> str:
    """What it prints: a whole program in a process of its own, anything else in the session that `names` are of."""
    code = code.replace(AS_PRINTED, url)
    if "asyncio.run(" in code:
        return await asyncio.to_thread(program, code)
    compiled: CodeType = compile(code, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        done = eval(compiled, names)
        if inspect.iscoroutine(done):
            await done
    return out.getvalue()


def program(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "sdk/src")}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=False, cwd="/"
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


PAGES = ["docs/sdk.md", "docs/worker.md", "docs/sql-in-your-transaction.md", "docs/objects.md", "sdk/README.md"]


@pytest.mark.parametrize("page", PAGES)
async def test_the_examples_of_a_page(
    serve: Serve, new_database: Callable[[], Awaitable[str]], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await Services.make(serve, new_database)
    service = await services.start()
    monkeypatch.setenv("DATABASE_URL", services.url)
    names: dict[str, Any] = {}
    found = examples((ROOT / page).read_text())
    assert found
    for example in found:
        printed = await run(example.code, service.url, names)
        assert printed == (example.prints or ""), example.code
    if "client" in names:
        await names["client"].aclose()
