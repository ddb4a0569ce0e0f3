"""Ids are UUIDs that name a job, and nothing else is one."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.errors import NotFound
from app.http.messages.ids import job_of
from app.kernel.model import id_of

TOPICS, SEQS = some.integers(1, 2**31 - 1), some.integers(1, 2**63 - 1)


@given(TOPICS, SEQS)
def test_an_id_says_which_job_it_is(topic_id: int, seq: int) -> None:
    shown = id_of(topic_id, seq)
    parsed = uuid.UUID(shown)
    assert str(parsed) == shown
    assert (parsed.version, parsed.variant) == (8, uuid.RFC_4122)
    assert job_of(shown) == job_of(shown.upper()) == (topic_id, seq)


@given(some.integers(0, 2**128 - 1))
def test_no_two_ids_are_of_one_job(number: int) -> None:
    text = str(uuid.UUID(int=number))
    try:
        job = job_of(text)
    except NotFound:
        return
    assert id_of(*job) == text


GOOD = id_of(7, 9)


NONE = [
    *("", "x", f"{GOOD} ", f" {GOOD}", f"{GOOD}\n", f"{{{GOOD}}}", GOOD.replace("-", ""), f"urn:uuid:{GOOD}"),
    *("6c4836cc-0f55-4b9e-b9db-f721bc642d01", "4c2ff564-e5f1-11f1-9cb9-02fc00000001", str(uuid.UUID(int=0))),
    *(id_of(0, 9), id_of(7, 0), id_of(2**31, 9), GOOD[:-1] + "٩"),
    *(GOOD.replace("-0000-", "-0001-"), GOOD.replace("-8000-", "-8002-")),
]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(NotFound):
        job_of(text)
