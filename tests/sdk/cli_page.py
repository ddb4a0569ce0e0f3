"""docs/cli.md: its list of commands, made of the commands themselves, and its examples, to be run.

`python -m tests.sdk.cli_page` writes the list anew."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from holdfast._cli.root import app
from tests.sdk.cli import Cli

PAGE: Final = Path(__file__).parents[2] / "docs/cli.md"
MORE: Final = "…"
_LIST: Final = re.compile(r"(<!-- commands -->\n).*?(<!-- /commands -->)", re.DOTALL)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z")
_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(path: tuple[str, ...] = (), group: Any = None) -> Iterator[tuple[str, Any]]:
    """All commands, by their whole names."""
    top: Any = group or get_command(app)
    for name, command in top.commands.items():
        if hasattr(command, "commands"):
            yield from commands((*path, name), command)
        else:
            yield " ".join((*path, name)), command


def command_list() -> str:
    """The table of the page."""
    rows = ["| `holdfast …` | options; all but `worker` take `--json` | |", "|---|---|---|"]
    for name, command in commands():
        options, arguments = [], []
        for param in command.params:
            if param.param_type_name == "argument":
                word = (param.metavar or param.name.upper()) + ("…" if param.nargs == -1 else "")
                arguments.append(word if param.required else f"[{word}]")
            elif not param.hidden and param.name not in ("as_json", "help"):
                options.append(f"`{param.opts[0]}`")
        first = command.help.split(". ")[0].removesuffix(".")
        rows.append(f"| `{' '.join((name, *arguments))}` | {' '.join(options)} | {first} |")
    return "\n".join(rows) + "\n"


def with_the_list(page: str) -> str:
    """The page with the list as it should be."""
    return _LIST.sub(lambda match: match.group(1) + command_list() + match.group(2), page)


@dataclass(frozen=True, slots=True)
class Example:
    """A command of the page, and what it prints there: MORE is anything, and a time is any other one."""

    line: str
    prints: str

    def printed(self, output: str) -> bool:
        parts = (re.escape(part) for part in _TIME.sub("TIME", self.prints).split(MORE))
        return re.fullmatch(".*?".join(parts), _TIME.sub("TIME", output), re.DOTALL) is not None


def examples(page: str) -> list[Example]:
    """Each command of the page, a line each, with what follows it."""
    found = []
    for block in _BLOCK.findall(page):
        for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, prints = shown.partition("\n")
            found.append(Example(line, prints))
    return found


class Reader:
    """Types the page's commands in, one after another, in a folder."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self._cli = cli
        self._folder = folder
        self._code = 0

    async def type(self, line: str) -> str:
        """What it prints. `holdfast` is called in this process, with < and > as a shell has them."""
        if line == "echo $?":
            return f"{self._code}\n"
        words = shlex.split(line)
        if words[0] != "holdfast":
            return subprocess.run(["bash", "-c", line], cwd=self._folder, capture_output=True, text=True).stdout  # noqa: PLW1510
        words = words[1:]
        stdin, into = "", None
        if words[-2] == "<":
            stdin, words = (self._folder / words[-1]).read_text(), words[:-2]
        elif words[-2] == ">":
            into, words = self._folder / words[-1], words[:-2]
        ended = await self._cli.ended(*words, stdin=stdin)
        self._code = ended.code
        if into:
            into.write_text(ended.out)
        return ended.err if into else ended.both


if __name__ == "__main__":
    PAGE.write_text(with_the_list(PAGE.read_text()))
