"""The pages that are made of the code are what it says."""

from __future__ import annotations

import pytest

from app import errors
from tests import reference
from tests.reference import OF_MESSAGES, errors_page, every


@pytest.mark.parametrize("path", reference.pages(), ids=lambda path: path.name)
def test_a_page_is_what_the_code_says(path: reference.Path) -> None:
    assert path.read_text() == reference.pages()[path], "run `make reference` and read its diff"


def test_every_error_is_there_once() -> None:
    codes = [error.code for error in every(errors.HoldfastError)]
    assert len(codes) == len(set(codes))
    assert set(codes) > {"internal", "throttled", "not_ready"} | OF_MESSAGES
    page = errors_page()
    assert [code for code in codes if page.count(f"| `{code}` |") != 1] == []
