"""Payloads by type hint, there and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast._wire import encode
from holdfast._worker.payloads import PayloadError, decoder, plain


class Colour(Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    at: datetime


class Struct(msgspec.Struct):
    at: datetime


@dataclass
class Inner:
    name: str


@dataclass
class Outer:
    inner: Inner
    many: list[Inner]
    by_name: dict[str, Inner]
    pair: tuple[int, ...]
    kind: Literal["a", "b"]
    colour: Colour
    price: Decimal
    id: UUID
    model: Model
    struct: Struct
    score: float
    due: date | None = None
    more: dict[str, Any] = field(default_factory=dict)


AT = datetime(2026, 11, 22, 8, tzinfo=UTC)
OUTER = Outer(
    Inner("x"),
    [Inner("y")],
    {"z": Inner("z")},
    (1, 2),
    "b",
    Colour.RED,
    Decimal("1.10"),
    UUID(int=7),
    Model(at=AT),
    Struct(at=AT),
    1,
    date(2026, 11, 22),
)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Outer, OUTER),
        (list[Outer], [OUTER]),
        (Model, Model(at=AT)),
        (Struct, Struct(at=AT)),
        (Model | None, None),
        (int | str, "text"),
        (datetime, AT),
        (set[int], {1, 2}),
        (str, "text"),
        (bytes, b"\0"),
        (bool, True),
    ],
)
def test_what_is_pushed_comes_back_as_it_was(hint: Any, value: Any) -> None:
    sent = plain(value)
    came = sent if isinstance(sent, bytes) else msgspec.json.decode(encode(sent))
    assert decoder(hint)(came, None) == value


def test_without_a_hint_it_comes_as_it_is() -> None:
    assert decoder(Any)({"a": [1]}, None) == {"a": [1]}


def test_bytes_are_had_of_text_and_json() -> None:
    decode = decoder(bytes)
    assert (decode("é", "text/plain"), decode({"a": 1}, None)) == ("é".encode(), b'{"a": 1}')


def test_what_a_newer_producer_adds_is_left_out() -> None:
    assert decoder(Inner)({"name": "x", "more": 1}, None) == Inner("x")


@pytest.mark.parametrize(
    ("hint", "value", "why"),
    [
        (Inner, {"name": 1}, "payload.name is no str: 1"),
        (Inner, [], r"payload is no Inner: \[\]"),
        (Inner, {}, "payload is no Inner: .*name"),
        (list[Inner], [{"name": "x"}, {}], r"payload\[1\] is no Inner"),
        (int, True, "payload is no int: True"),
        (int | None, "1", "payload is no int: '1'"),
        (Literal["a"], "b", "payload is no"),
        (date, "tomorrow", "payload is no date"),
        (Model, {"at": "never"}, "payload is no Model"),
        (Struct, {}, "payload is no Struct"),
    ],
)
def test_what_does_not_fit_is_said(hint: Any, value: Any, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        decoder(hint)(value, None)


def test_the_hook_makes_something_of_the_rest() -> None:
    class Point:
        pass

    assert plain({"at": [Point()]}, lambda one: type(one).__name__) == {"at": ["Point"]}
    with pytest.raises(TypeError, match="has no JSON"):
        encode(plain(Point()))
