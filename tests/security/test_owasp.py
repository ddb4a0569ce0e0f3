"""The table of the ten: it names tests that there are, and every one of this folder's files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.security.owasp import ALL, TOP_TEN

TESTS = Path(__file__).parents[1]
MARKS_THAT_SKIP = {"skip", "skipif", "xfail"}


def named_in(path: Path) -> dict[str, bool]:
    """The tests that a file has, and whether each may be left out."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks = {
                part.attr for one in node.decorator_list for part in ast.walk(one) if isinstance(part, ast.Attribute)
            }
            found[node.name] = bool(marks & MARKS_THAT_SKIP)
    return found


def test_it_has_the_ten() -> None:
    assert list(TOP_TEN) == [f"API{n}" for n in range(1, 11)]


@pytest.mark.parametrize("line", TOP_TEN)
def test_what_it_names_is_there(line: str) -> None:
    """And is always run: a test that may be skipped proves nothing on the machine that skips it."""
    assert TOP_TEN[line].tests
    for file, names in TOP_TEN[line].tests.items():
        there = named_in(TESTS / f"{file}.py")
        assert there, file
        if names != ALL:
            assert [name for name in names if name not in there] == [], file
            assert [name for name in names if there[name]] in ([], ["test_secrets_are_in_no_environment_once_it_runs"])


def test_every_file_of_this_folder_is_in_it() -> None:
    named = {file for line in TOP_TEN.values() for file in line.tests}
    here = {f"security/{path.stem}" for path in Path(__file__).parent.glob("test_*.py")} - {"security/test_owasp"}
    assert here <= named, "proves no line of the table"
