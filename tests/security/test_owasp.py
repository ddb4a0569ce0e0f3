"""The table of the ten: it names files of tests that there are, and every one of this folder's."""

from __future__ import annotations

from pathlib import Path

from tests.security.owasp import TOP_TEN

TESTS = Path(__file__).parents[1]


def test_the_table_of_the_ten_names_tests_that_there_are() -> None:
    assert list(TOP_TEN) == [f"API{n}" for n in range(1, 11)]
    named = {file for line in TOP_TEN.values() for file in line.tests.split()}
    for file in named:
        assert "\nasync def test_" in (text := (TESTS / f"{file}.py").read_text()) or "\ndef test_" in text, file
    here = {f"security/{path.stem}" for path in Path(__file__).parent.glob("test_*.py")} - {"security/test_owasp"}
    assert here <= named, "proves no line of the table"
