"""The filter of the list of jobs: what it says is what is asked for."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidRequest
from app.features.jobs import filters
from app.features.jobs.filters import WORDS, data_of, match_of, path_of
from app.kernel.jobs import Datum


@given(st.dictionaries(st.sampled_from(WORDS), st.text(max_size=40) | st.text('\\" :a', max_size=6)))
def test_what_is_written_is_read_again(values: dict[str, str]) -> None:
    assert filters.parse(filters.text_of(values)) == values


@given(st.text(max_size=80))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        found = filters.parse(text)
        assert filters.parse(filters.text_of(found)) == found
    for offered in filters.completions(text):
        assert filters.parse(offered if offered[-1] != ":" else f"{offered}x")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("  state:ready  tenant:acme\tkey:abc ", {"state": "ready", "tenant": "acme", "key": "abc"}),
        ('tenant:"" tag:"two words"', {"tenant": "", "tag": "two words"}),
        (r'key:"say \"no\" \\ twice"', {"key": 'say "no" \\ twice'}),
        (r"key:a\b:c", {"key": r"a\b:c"}),
        ("tag=a=b priority=3", {"tag": "a=b", "priority": "3"}),
        ('data.id = 17  tag = "x y" key:a', {"data.id": "17", "tag": "x y", "key": "a"}),
        (r'data.id:17 data.items.0.a\ b\.c\:="x y"', {"data.id": "17", r"data.items.0.a\ b\.c\:": "x y"}),
    ],
)
def test_words_and_quotes(text: str, values: dict[str, str]) -> None:
    assert filters.parse(text) == values


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("state:ready worker:w1", "A filter has no name worker"),
        ("prio:3", "The names are state, priority, tenant, tag, key, group, node, error, older and data.path."),
        ("ready", "ready is not name:value"),
        ("tag:a tag:b", "tag is given twice"),
        ("tag:", "tag: needs a value"),
        ("tag= key:a", "tag: needs a value"),
        ("key:a tag =", "tag is not name:value"),
        ("tag = ", "tag: needs a value"),
        ('tag:"a', 'A quote is not closed, or is not followed by a space: tag:"a'),
        ('tag:"a"b', "is not followed by a space"),
        ("x" * 1_001, "1000 characters"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        filters.parse(text)
    assert named in refused.value.message


def test_lengths_of_time() -> None:
    spans = {"500ms": 500, "30s": 30_000, "10m": 600_000, "2h": 7_200_000, "7d": 604_800_000}
    assert {text: filters.milliseconds(text) for text in spans} == spans
    assert filters.parameters({"older": "10m", "tag": "a"}) == ({"tag": "a", "older_than_ms": "600000"}, [])
    for text in ("", "10", "m", "-1s", "1.5h", "1 h", "9999999999999s"):
        with pytest.raises(InvalidRequest):
            filters.milliseconds(text)


def test_completions_add_what_is_not_there() -> None:
    offered = filters.completions("tenant:acme older:1h")
    assert "tenant:acme older:1h state:ready" in offered
    assert "tenant:acme older:1h key:" in offered
    assert {one.count(word) for one in offered for word in ("tenant:", "older:")} == {1}


def test_what_payloads_have_is_asked_for_by_a_path() -> None:
    values = filters.parse(r'data.order.id:17 tag:t data.a\.b.0="x=\"y\""')
    parameters, data = filters.parameters(values)
    assert (parameters, data) == ({"tag": "t"}, ["order.id=17", r'a\.b.0=x="y"'])
    assert data_of(data) == (Datum(("order", "id"), "17"), Datum(("a.b", "0"), 'x="y"'))
    for wrong in ("x", "=x", ".a=x", "a.=x", "a..b=x", "a" * 257 + "=x", ".".join("a" * 17) + "=x", "a=" + "x" * 1_025):
        with pytest.raises(InvalidRequest):
            data_of([wrong])
    with pytest.raises(InvalidRequest):
        data_of(["a=1"] * 5)


KEYS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=9)


@given(st.lists(KEYS, min_size=1, max_size=9), KEYS)
def test_any_key_can_be_in_a_path(keys: list[str], value: str) -> None:
    values = filters.parse(f"data.{path_of(keys)}:{filters.quote_value(value)}")
    assert data_of(filters.parameters(values)[1]) == (Datum(tuple(keys), value),)


def test_completions_know_what_was_seen() -> None:
    offered = filters.completions("tag:a data.id:1", ["node:w1", "data.id:", "data.total:"])
    assert {"tag:a data.id:1 node:w1", "tag:a data.id:1 data.total:", "tag:a data.id:1 error:"} <= set(offered)
    assert "tag:a data.id:1 data.id:" not in offered


@pytest.mark.parametrize(
    "text",
    [
        'state:leased priority:3 tag:"a b" node:w1 older:5000ms data.a:1',
        'tenant:"" error:x data.x\\.y.0:"" data.b:"=1 "',
    ],
)
def test_a_match_is_said_in_the_same_words(text: str) -> None:
    assert filters.words_of(match_of(*filters.parameters(filters.parse(text)))) == text
