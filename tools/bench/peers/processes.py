"""A driver as a process of its own: a question is a line of JSON, and so is its answer. See drivers/protocol.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

STOP_SECONDS: Final = 10.0
LONGEST_LINE: Final = 1024 * 1024


class Failed(Exception):
    """A driver that can't go on; says why."""


class DriverProcess:
    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def ask(self, patience: float, /, **question: object) -> dict[str, Any]:
        """The answer. Raises Failed if it is an error, is none, or doesn't come within `patience` seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            await self._process.stdin.drain()
            line = await asyncio.wait_for(self._process.stdout.readline(), patience)
        except TimeoutError:
            raise Failed(f"no answer to {question['verb']} within {patience:.0f} s") from None
        except (OSError, ValueError) as error:
            raise Failed(f"{error}; {self._last_words()}") from None
        if not line:
            raise Failed(f"the driver ended; {self._last_words()}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise Failed(f"not a line of JSON: {line[:200]!r}") from None
        if not isinstance(answer, dict):
            raise Failed(f"not an answer: {line[:200].decode(errors='replace').strip()}")
        if "error" in answer:
            raise Failed(str(answer["error"])[:400])
        return answer

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"it said: {lines[-1][:300]}" if lines else "it said nothing"


@asynccontextmanager
async def started(command: Sequence[str], folder: Path, log: Path) -> AsyncIterator[DriverProcess]:
    """A driver, started in `folder`; what it says beside its answers is in `log`. Raises Failed if there is no such
    program."""
    with log.open("wb") as said:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=said,
                limit=LONGEST_LINE,
            )
        except OSError as error:
            raise Failed(str(error)) from None
    driver = DriverProcess(process, log)
    try:
        yield driver
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            driver.kill()
            await process.wait()
