"""The command line, called in this process or as one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from holdfast._cli.root import app

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str
    both: str = ""  # as a terminal has them, of a command that ran in this process

    @property
    def objects(self) -> list[Any]:
        """What `--json` printed: one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> Any:
        [one] = self.objects
        return one

    @property
    def error(self) -> Any:
        return json.loads(self.err.splitlines()[-1])["error"]


class Cli:
    """Calls commands of one service."""

    def __init__(self, url: str, **env: str) -> None:
        self.env = {"HOLDFAST_URL": url, "HOLDFAST_NODE": "tests", "NO_COLOR": "1", **env}

    async def ended(self, *words: object, stdin: str = "") -> Ended:
        """Run a command in this process, but not in this thread, whose loop is the service's."""
        ran = await asyncio.to_thread(CliRunner().invoke, app, [str(word) for word in words], stdin, self.env)
        if ran.exception and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return Ended(ran.exit_code, ran.stdout, ran.stderr, ran.output)

    async def __call__(self, *words: object, stdin: str = "", code: int = 0) -> Ended:
        """The same of one that has to end with `code`."""
        ended = await self.ended(*words, stdin=stdin)
        assert ended.code == code, ended
        return ended

    def process(
        self, *words: object, env: Mapping[str, str] | None = None, stdin: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        """Begin a command as a process."""
        whole = environment(self.env | dict(env or {}))
        pipe = subprocess.PIPE
        return subprocess.Popen(command(*words), env=whole, stdin=stdin, stdout=pipe, stderr=pipe)

    async def run(
        self, *words: object, stdin: bytes = b"", code: int = 0, env: Mapping[str, str] | None = None
    ) -> Ended:
        """Run a command as a process."""
        process = self.process(*words, env=env)
        out, err = await asyncio.to_thread(process.communicate, stdin, 60)
        ended = Ended(process.returncode, out.decode(), err.decode())
        assert ended.code == code, ended
        return ended


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "holdfast", *map(str, words)]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**clean, "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk/src'}", **env}
