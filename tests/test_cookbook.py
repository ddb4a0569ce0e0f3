"""Recipes of the manual: commands, Python and SQL run as they stand, from the top down, on a service of their own."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.conftest import Running
from tests.manual import Shell, Step
from tests.sdk.pages import run
from tests.sql.test_page import psql
from tests.test_manual import wrong

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/cookbook").glob("*.md"))
# Up to their scripts, which tests/sdk/test_migrating.py runs.
STEPS = [ROOT / f"docs/migrating/{name}.md" for name in ("celery", "cloud-tasks")]
PARTS = ["Why it works", "Limits", "See also"]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str, int, str | None]]:
    """Language, code, line, and the output printed below it, of each block of code."""
    found = list(_FENCED.finditer(text))
    made = []
    for i, match in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else None
        follows = after is not None and after[1] == "" and text[match.end() : after.start()].strip() == ""
        if match[1]:
            line = text.count("\n", 0, match.start()) + 1
            made.append((match[1], match[2], line, after[2] if after is not None and follows else None))
    return made


@pytest.mark.parametrize("page", PAGES + STEPS, ids=lambda page: page.stem)
async def test_a_page_runs_as_it_stands(
    page: Path, serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    database = await new_database()
    service = await serve(database_url=SecretStr(database))
    monkeypatch.setenv("DATABASE_URL", database)
    names: dict[str, Any] = {}
    found = blocks(page.read_text().partition("\n## Script\n")[0])
    assert found
    with closing(Shell(tmp_path, service.url)) as shell:
        for language, code, line, output in found:
            where = f"{page.name}:{line}"
            if language == "bash":
                await _run_commands(shell, code, output, where)
            elif language == "python":
                assert await run(code, service.url, names) == (output or ""), where
            else:
                assert language == "sql", where
                printed = await asyncio.to_thread(_run_sql, database, code)
                assert output is None or printed.strip() == output.strip(), where


async def _run_commands(shell: Shell, code: str, output: str | None, where: str) -> None:
    status, _, answer = (output or "").partition("\n")
    ran = await asyncio.to_thread(shell.run, Step(0, code, int(status or 0), answer or None))
    *before, last = ran.calls
    assert all(call.status < 300 for call in before), (where, before)
    assert last.status == int(status or last.status), (where, last)
    assert status or last.status < 300, (where, last)
    assert not answer or wrong(last, answer) == [], where


def _run_sql(database: str, code: str) -> str:
    command = [psql(), "-X", "-v", "ON_ERROR_STOP=1", "-d", database]
    ran = subprocess.run(command, input=code, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_have_one_form(page: Path) -> None:
    text = page.read_text()
    assert [line for line in re.findall(r"^## (.+)$", text, re.MULTILINE) if line in PARTS] == PARTS
    assert len(text.splitlines()) <= 120
    assert [line for line in text.splitlines() if len(line) > 120] == []
