"""How far the tree is from one place for each thing: counts beside their goals. make house.

`python -m tests.house loops caches` names the places too. Nothing fails by it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
# Files that a program of the tree writes. docs/schema.sql is left out: it is the reviewed snapshot that the migrations
# are compared with. So are the locks and pictures.
GENERATED: Final = (
    "docs/routes.txt",
    *("docs/errors.md", "docs/http.md"),
    "docs/benchmarks/*.json",
    "app/http/examples.json",
)
PAUSES: Final = {"sleep", "wait", "wait_for", "timeout"}
# What ends by itself there is no reading that is shared: keys, sessions and tokens by their own time, the pace of looks
# and turns of a claim, the changes that a copy in Redis is not to outlive, and what a demonstration draws.
OWN_ENDS: Final = {
    *("app/http/access.py", "app/http/signin/directory.py", "app/http/signin/sessions.py"),
    *("app/kernel/claim/fairness.py", "app/kernel/claim/ordering.py", "app/kernel/topics/tier.py", "app/demo/run.py"),
}
# A class that declares this many of these is a configuration of a topic.
SETTINGS: Final = {"max_retries", "lease_ms", "cap_records", "max_depth", "retry_order", "aging_ms", "dead_ttl_ms"}
MANY: Final = 3
# Names that say what was done, and not to what: `shown`, `_settled`. Adjectives of the field (`expired`) count as well.
PARTICIPLE: Final = re.compile(
    r"_*(\w*[a-z]ed|shown|told|found|kept|seen|taken|given|met|made|known|held|sent|written|begun|done|drawn|left)"
)


def _tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "-z", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a node except what is in functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _within(child)


def _called(node: object) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "attr", getattr(function, "id", "")))


def _pauses(node: ast.AST) -> bool:
    forever = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value is True
    return forever and any(_called(inner) in PAUSES for inner in _within(node))


def _asks_expiry(node: ast.AST) -> bool:
    """`time.monotonic() < self.until`, or a `now` that was read before: of what outlives the call."""
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    clock = any(_called(side) == "monotonic" or getattr(side, "id", "") == "now" for side in sides)
    return clock and any(isinstance(side, ast.Attribute | ast.Subscript) for side in sides)


def _declares_settings(node: ast.AST) -> bool:
    fields = [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.AnnAssign)]
    return isinstance(node, ast.ClassDef) and len({ast.unparse(item.target) for item in fields} & SETTINGS) >= MANY


def _late_callbacks(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """`other.on_work = ...`, where a class declares the attribute as a Callable."""
    declared = [node for node in nodes if isinstance(node, ast.AnnAssign)]
    hooks = {ast.unparse(one.target) for one in declared if ast.unparse(one.annotation).startswith("Callable")}
    for node in nodes:
        # In lower case, so no constant, and not the outcome of a call.
        named = isinstance(node, ast.Assign) and ast.unparse(node.value).islower() and not _called(node.value)
        given = node.targets if named and isinstance(node, ast.Assign) else []
        stored = [one for target in given for one in ast.walk(target) if isinstance(one, ast.Attribute)]
        yield from (one for one in stored if f"self.{one.attr}" in hooks and ast.unparse(one.value) != "self")


def _is_participle(node: ast.AST) -> bool:
    named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return named and "_" not in node.name.strip("_") and PARTICIPLE.fullmatch(node.name.lower()) is not None  # type: ignore[attr-defined]


def _names_again(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Classes of app/ whose name another one has as well."""
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    count = Counter(node.name for node in classes)
    yield from (node for node in classes if count[node.name] > 1)


def _circles() -> list[str]:
    """Sets of modules that import each other, directly or through others; imports for types alone count."""
    graph = grimp.build_graph("app", "spark", "holdfast", cache_dir=None)
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    circles = {
        tuple(sorted({module, *(one for one in ones if module in above[one])})) for module, ones in above.items()
    }
    return [" ".join(circle) for circle in sorted(circles) if len(circle) > 1]


def main(*named: str) -> None:
    trees = {path: [*ast.walk(ast.parse(path.read_text()))] for path in _tracked("app/*.py", "spark/*.py")}
    nodes = [node for tree in trees.values() for node in tree]
    app = [node for path, tree in trees.items() if path.is_relative_to(ROOT / "app") for node in tree]
    timed = [node for path, tree in trees.items() if "monotonic()" in path.read_text() for node in tree]
    paths = {id(node): str(path.relative_to(ROOT)) for path, tree in trees.items() for node in tree}

    def at(found: Iterable[ast.AST]) -> list[str]:
        return sorted(f"{paths[id(node)]}:{getattr(node, 'lineno', 0)}" for node in found)

    for name, places, goal, of in (
        ("migrations", [path.name for path in _tracked("migrations/*/0*.py", "migrations/0*.py")], 1, "files"),
        ("loops", at(filter(_pauses, nodes)), 1, "`while True` that pauses, in app and spark"),
        (
            "caches",
            sorted({paths[id(node)] for node in filter(_asks_expiry, timed)} - OWN_ENDS),
            1,
            "modules that keep readings for a time",
        ),
        ("settings", at(filter(_declares_settings, nodes)), 2, "classes that declare a topic's configuration"),
        ("callbacks", at(_late_callbacks(nodes)), 0, "assigned from outside to an object that exists"),
        ("circles", _circles(), 0, "sets of modules that import each other"),
        ("names", at(filter(_is_participle, app)), 0, "definitions in app that are a bare participle"),
        ("classes", at(_names_again(app)), 0, "in app whose name another one has"),
        ("decisions", [str(path) for path in _tracked("docs/adr/*.md")], 30, "pages in docs/adr"),
        ("sql", [str(path) for path in _tracked("app/*.sql")], 70, "files in app"),
        ("modules", [str(path) for path in _tracked("app/*.py")], 240, "files in app"),
    ):
        print(f"{name:<11} {len(places):>7}  goal {goal:>6}  {of}")
        if name in named:
            print(*(f"    {place}" for place in places), sep="\n")
    for name, goal in {"generated": 3_000, "app": 34_000, "tests": 45_000, "tools": 12_000}.items():
        files = _tracked(*(GENERATED if name == "generated" else [f"{name}/*.py"]))
        lines = sum(path.read_bytes().count(b"\n") for path in files)
        print(f"{name:<11} {lines:>7,}  goal {goal:>6,}  tracked lines, in {len(files)} files")


if __name__ == "__main__":
    main(*sys.argv[1:])
