"""The Python of a page: run as it stands, it prints what the page says. Nothing but Python's own library is imported
here, so that an environment of a user's can run it too: `python pages.py PAGE URL`."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = str(ROOT / "sdk/src")
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


async def run_page(page: str, url: str, package: str = SOURCE) -> None:
    """Its examples, from the top down, in one session. `package`: a folder that has the package holdfast, "" where that
    is installed."""
    names: dict[str, Any] = {}
    found = examples(page)
    assert found
    for example in found:
        if "import msgspec" in example.code and importlib.util.find_spec("msgspec") is None:
            continue  # an extra of the package
        printed = await run(example.code, url, names, package)
        assert printed == (example.prints or ""), f"{printed}\n\nis printed by\n\n{example.code}"
    if "client" in names:
        await names["client"].aclose()


async def run(code: str, url: str, names: dict[str, Any], package: str = SOURCE) -> str:
    """What it prints: a whole program in a process of its own, anything else in the session that `names` are of."""
    code = code.replace(AS_PRINTED, url)
    if "asyncio.run(" in code:
        return await asyncio.to_thread(_program, code, package)
    compiled: CodeType = compile(code, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        done = eval(compiled, names)
        if inspect.iscoroutine(done):
            await done
    return out.getvalue()


def _program(code: str, package: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": package},
        timeout=60,
        check=False,
        cwd="/",
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


if __name__ == "__main__":
    asyncio.run(run_page(Path(sys.argv[1]).read_text(), sys.argv[2], ""))
