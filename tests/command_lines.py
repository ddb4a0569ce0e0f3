"""The command lines of README and manual: those of shell blocks, of indented blocks, and of tables' first columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
# An indented or unlabelled block is one of commands if it begins with one of these.
PROGRAMS: Final = {
    *("./run", "./test", "make", "python", "python3", "pip", "uv", "npm", "git", "holdfast", "curl", "psql", "pg_dump"),
    *("pg_restore", "createdb", "createuser", "docker", "kubectl", "nginx", "cp", "for", "spark-submit", "$"),
}
DRAWN: Final = "├──"  # a tree of processes, say
_VARIABLE: Final = re.compile(r"^\w+=(?:\"[^\"]*\"|'[^']*'|\S*)\s+")
_FENCED: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:^ {4,}\S[^\n]*\n|^\n(?= {4,}\S))+", re.MULTILINE)
_IN_TABLE: Final = re.compile(r"^\| (`[^|]+?`) \|", re.MULTILINE)
_OPENS: Final = ("for", "while", "if", "case")
_CLOSES: Final = ("done", "fi", "esac")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page, without comments. `line` is where it begins, or the block that it is in."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page} $ {self.text}"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page that is not a shell's by its label: its first line tells what it is."""

    page: str
    line: int
    text: str

    @property
    def is_shell(self) -> bool:
        first = _VARIABLE.sub("", self.text.lstrip()).split(None, 1)[0]
        return (first in PROGRAMS or first.startswith(".venv/bin/")) and DRAWN not in self.text


def pages() -> list[str]:
    """README and manual, and what else tells people what to type; by their paths."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "sdk/README.md")]
    found += [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("README*"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def of_page(page: str) -> list[Command]:
    """Its commands, in their order."""
    text = (ROOT / page).read_text()
    found = []
    for match in _FENCED.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        if match[2] in ("bash", "sh", "shell"):
            found += [Command(page, line, one) for one in split(match[3])]
        elif match[2] == "console":
            found += [Command(page, line, one) for one in _typed(match[3])]
    for block in unlabelled(page):
        if block.is_shell:
            lines = _typed(block.text) if block.text.lstrip().startswith("$ ") else split(block.text)
            found += [Command(page, block.line, one) for one in lines]
    for match in _IN_TABLE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        spans = re.findall("`([^`]+)`", match[1])
        found += [Command(page, line, one) for one in spans if Block(page, line, one).is_shell]
    return sorted(found, key=lambda one: one.line)


def unlabelled(page: str) -> Iterator[Block]:
    """Indented blocks, and fenced ones without a label that no command's output is in."""
    text = (ROOT / page).read_text()
    before = ""
    for match in _FENCED.finditer(text):
        answers = text[: match.start()].rstrip("\n").endswith("```") and before != "json"
        if match[2] == "" and match[3].strip() and not answers:
            yield Block(page, text.count("\n", 0, match.start()) + 2, match[3])
        before = match[2]
    bare = _FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in _INDENTED.finditer(bare):
        if match[0].strip():
            yield Block(page, bare.count("\n", 0, match.start()) + 1, match[0].strip("\n"))


def _typed(text: str) -> list[str]:
    """The lines behind a prompt."""
    return [line[2:].strip() for line in text.splitlines() if line.lstrip().startswith("$ ")]


def split(script: str) -> list[str]:
    """A shell script's commands, without comments and continuations; a loop or what is in parentheses is one."""
    found: list[str] = []
    depth = 0
    for line in _logical(script):
        words = line.split()
        if depth:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
        depth += (words[0] in _OPENS) - sum(word.rstrip(";") in _CLOSES for word in words)
    return found


def _logical(script: str) -> Iterator[str]:
    """Lines as a shell reads them: none ends within quotes or parentheses, or before a backslash or a pipe."""
    line, quote, depth, i = "", "", 0, 0
    while i < len(script):
        sign = script[i]
        if quote:
            quote = "" if sign == quote else quote
        elif sign == "\\" and script[i + 1 : i + 2] == "\n":
            sign = ""
            i += 1
        elif sign == "#" and (not line or line[-1].isspace()):
            sign = ""
            i = script.find("\n", i) % (len(script) + 1) - 1
        elif sign == "\n" and not depth and not line.rstrip().endswith(("|", "&&")):
            if line.strip():
                yield line.strip()
            line, sign = "", ""
        else:
            quote = sign if sign in "'\"" else ""
            depth += (sign == "(") - (sign == ")")
        line += sign
        i += 1
    if line.strip():
        yield line.strip()
