"""Where a mutant can be made in app/kernel: in functions of Python by mutmut's operators, in SQL by swapping one word.

mutmut knows nothing of SQL, and half of what the kernel promises is said there.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import libcst
from libcst.metadata import PositionProvider
from mutmut.mutation.file_mutation import Mutation, create_mutations

FOLDER: Final = "app/kernel"
WORDS: Final = (
    libcst.SimpleString,
    libcst.FormattedString,
    libcst.ConcatenatedString,
)  # texts of messages, names of fields
SQL: Final = {
    r" <= ": " < ",
    r" < ": " <= ",
    r" >= ": " > ",
    r" > ": " >= ",
    r" = (?!ANY)": " <> ",
    r"\bAND\b": "OR",
    r"\bOR\b(?! REPLACE)": "AND",
    r"\bNOT (?!NULL|MATERIALIZED)": "",
    r"\bgreatest\(": "least(",
    r"\bleast\(": "greatest(",
    r" \+ 1\b": " + 2",
    r" SKIP LOCKED": "",
    r"\btrue\b": "false",
    r"\bfalse\b": "true",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file, by what its changed line was and is; `line` from 1."""

    file: str
    line: int
    name: str
    text: str  # the whole of it


def sample(tree: Path, count: int, seed: int) -> list[Mutant]:
    """So many mutants, drawn by the seed: first a line of the kernel, then one of its changes, so that long lines don't
    count for more. Two of three are Python."""
    draw = random.Random(seed)
    chosen: list[Mutant] = []
    for kind, part in (("*.py", count - count // 3), ("*.sql", count // 3)):
        changes: defaultdict[tuple[str, int], list[Callable[[], str]]] = defaultdict(list)
        for path in sorted((tree / FOLDER).rglob(kind)):
            for line, change in (_python if kind == "*.py" else _sql)(path):
                changes[path.relative_to(tree).as_posix(), line].append(change)
        for file, line in draw.sample(sorted(changes), part):
            before, after = (tree / file).read_text(), draw.choice(changes[file, line])()
            pairs = zip(before.split("\n"), after.split("\n"), strict=False)
            old, new = next((old, new) for old, new in pairs if old != new)
            chosen.append(Mutant(file, line, f"{file}:{line}  {old.strip()}  ->  {new.strip()}", after))
    draw.shuffle(chosen)  # the first part of a run is a sample as well
    return chosen


def _python(path: Path) -> Iterator[tuple[int, Callable[[], str]]]:
    """Lines, and how the file's text comes to be when something there is changed."""
    module, mutations, _, _ = create_mutations(path.name, path.read_text())
    places = libcst.MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    for one in mutations:
        if one.contained_by_top_level_function and not isinstance(one.original_node, WORDS):
            yield places[one.original_node].start.line, partial(_replaced, module, one)


def _replaced(module: libcst.Module, one: Mutation) -> str:
    changed = module.deep_replace(one.original_node, one.mutated_node)
    assert isinstance(changed, libcst.Module)
    return str(changed.code)


def _sql(path: Path) -> Iterator[tuple[int, Callable[[], str]]]:
    text = path.read_text()
    for word, other in SQL.items():
        for found in re.finditer(word, text):
            start = text.rfind("\n", 0, found.start()) + 1
            before = text[start : found.start()].lstrip()
            if "--" not in before and not before.startswith("SET "):
                change = text[: found.start()] + other + text[found.end() :]
                yield text.count("\n", 0, start) + 1, partial(str, change)
