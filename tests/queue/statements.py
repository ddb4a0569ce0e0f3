"""Every statement of the service: the .sql files, and the modules that load them."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from app.base.db import sql
from app.kernel.topics import store  # noqa: F401  which fills in what its statements leave open

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A file `app/<package>/sql/<name>.sql`, or a part of `app/<package>/statements.sql`."""

    package: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.package}/{self.name}"

    @property
    def header(self) -> str:
        """The comment that the file begins with."""
        lines = []
        for line in self.text.splitlines():
            if not line.startswith("--"):
                break
            lines.append(line.removeprefix("--").strip())
        return "\n".join(lines)

    @property
    def body(self) -> str:
        """The statement without its comments, on one line."""
        return " ".join(re.sub(r"--.*", "", self.text).split())

    @property
    def parameters(self) -> set[int]:
        """The numbers of the parameters that it uses."""
        return {int(number) for number in CALL.findall(self.body)}


@functools.cache
def every() -> list[Statement]:
    """All of them, by path."""
    alone = [
        Statement(
            package := _package(path.parents[1]), path.stem, sql.text_of(f"{package}/{path.stem}") or path.read_text()
        )
        for path in sorted((ROOT / "app").rglob("sql/*.sql"))
    ]
    together = [
        Statement(_package(path.parent), name, text)
        for path in sorted((ROOT / "app").rglob("statements.sql"))
        for name, text in sql.split(path.read_text())
    ]
    return alone + together


def named(name: str, package: str | None = None) -> Statement:
    """A statement by its name: of this package, or the one about jobs where others use that name as well."""
    others = {"topics", "signin", "audit", "schedules", "sqs"}
    [found] = [s for s in every() if s.name == name and (s.package == package if package else s.package not in others)]
    return found


def loaded() -> set[str]:
    """What the modules load: `<package>/<name>` of each `sql.load(__package__, "<name>")`, and what of a package's
    statements.sql is used: `_SQL["<name>"]`."""
    found = set()
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="sql"), attr="load"),
                    args=[ast.Name(id="__package__"), ast.Constant(value=str(name))],
                ):
                    found.add(f"{_package(path.parent)}/{name}")
                case ast.Subscript(value=ast.Name(id="_SQL"), slice=ast.Constant(value=str(name))):
                    found.add(f"{_package(path.parent)}/{name}")
    return found


def _package(folder: Path) -> str:
    return folder.name
