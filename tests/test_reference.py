"""The pages that are made of the code are what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from app import errors
from app.settings import Settings
from tests import reference
from tests.reference import OF_MESSAGES, errors_page, every

SETTINGS: Final = reference.DOCS / "configuration.md"
PROMISES: Final = reference.DOCS / "semantics.md"
TESTS: Final = Path(__file__).parent


@pytest.mark.parametrize("path", reference.pages(), ids=lambda path: path.name)
def test_a_page_is_what_the_code_says(path: Path) -> None:
    assert path.read_text() == reference.pages()[path], "run `make reference` and read its diff"


def test_every_error_is_there_once() -> None:
    codes = [error.code for error in every(errors.HoldfastError)]
    assert len(codes) == len(set(codes))
    assert set(codes) > {"internal", "throttled", "not_ready"} | OF_MESSAGES
    page = errors_page()
    assert errors.MANUAL == "docs/errors.md"
    assert [code for code in codes if page.count(f'| `{code}` <a id="{code}"></a> |') != 1] == []


def test_the_table_of_settings_is_what_they_are() -> None:
    """Names, defaults and bounds; its words are written by hand, as they have links and the page around them."""
    rows = re.findall(r"^\| `HOLDFAST_([A-Z_]+)` \| ([^|]*) \|([^|]*)\|", SETTINGS.read_text(), re.MULTILINE)
    table = {name.lower(): (default, bounds) for name, default, bounds in rows}
    assert len(rows) == len(table)
    assert sorted(table) == sorted(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        default, bounds = table[name]
        shown = str(int(field.default) if isinstance(field.default, bool) else field.default)
        assert default == ("none" if field.default in (None, (), "") else f"`{shown}`"), name
        # One bound is another setting's, which is this much at least.
        bounds = bounds.replace("2^62", str(2**62)).replace("`HOLDFAST_MAX_BODY_BYTES`", "1024")
        known = set(re.findall(r"\d[\d.]*", bounds))
        limits = {getattr(limit, end) for limit in field.metadata for end in ("ge", "le") if hasattr(limit, end)}
        assert {str(limit) for limit in limits} <= known, name


def test_every_promise_names_a_test_that_exists() -> None:
    """Each rule of docs/semantics.md is numbered by its section, in order, and names a test by its path and name."""
    text = PROMISES.read_text()
    numbered: list[str] = []
    for section, body in re.findall(r"^## (\d+)\. [^\n]+\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
        rules = re.findall(r"^- \*\*(\d+\.\d+)\*\* (.*?)(?=^- \*\*|\n\n|\Z)", body, re.MULTILINE | re.DOTALL)
        assert [number for number, _ in rules] == [f"{section}.{n}" for n in range(1, len(rules) + 1)]
        assert [number for number, rule in rules if "::test_" not in rule] == []
        numbered += [number for number, _ in rules]
    assert len(numbered) > 200
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    assert len(named) == text.count("::test_")
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (TESTS / path).read_text()]
    assert missing == []
