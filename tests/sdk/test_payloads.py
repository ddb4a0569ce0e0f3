"""Payloads by type hint, there and back: as JSON, and as MessagePack where a job is enqueued as that."""

from __future__ import annotations

import base64
import sys
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

import httpx
import msgspec
import pydantic
import pytest
from obstore.store import MemoryStore

from holdfast import AsyncClient, AsyncTopic, Objects, Queue, Record, Result, SyncContext, TopicConfig, sql
from holdfast._msgpack import pack
from holdfast._transport import Account
from holdfast._wire import encode
from holdfast._worker.child import Order, perform
from holdfast._worker.payloads import PayloadError, decoder, plain
from tests.conftest import Running
from tests.sdk.workers import fact, outcome, working

KIND = "application/msgpack"
AT = datetime(2026, 11, 22, 8, tzinfo=UTC)
PNG = b"\x89PNG\xff"


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


class Picture(msgspec.Struct):
    at: datetime
    png: bytes


OUTER = Outer(
    *(Inner("x"), [Inner("y")], {"z": Inner("z")}, (1, 2), "b", Colour.RED, Decimal("1.10"), UUID(int=7)),
    *(Model(at=AT), Struct(at=AT), 1, date(2026, 11, 22)),
)
PICTURE, PLAIN = Picture(AT, PNG), {"at": AT, "png": PNG}


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        *((Outer, OUTER), (list[Outer], [OUTER]), (Model, Model(at=AT)), (Struct, Struct(at=AT)), (Model | None, None)),
        *((int | str, "text"), (datetime, AT), (set[int], {1, 2}), (str, "text"), (bool, True), (Any, {"a": [1]})),
    ],
)
def test_what_is_pushed_comes_back_as_it_was(hint: Any, value: Any) -> None:
    assert decoder(hint)(msgspec.json.decode(encode(plain(value))), None) == value
    assert decoder(hint)(pack(value), KIND) == value


@pytest.mark.parametrize(
    ("hint", "value"), [(Picture, PICTURE), (dict[str, Picture], {"a": PICTURE}), (Any, PLAIN), (dict, PLAIN)]
)
def test_bytes_within_are_packed(hint: Any, value: Any) -> None:
    assert decoder(hint)(pack(value), KIND) == value
    assert plain(b"\0") == b"\0"


def test_bytes_are_had_of_text_and_json_and_what_a_newer_producer_adds_is_left_out() -> None:
    decode = decoder(bytes)
    assert (decode("é", "text/plain"), decode({"a": 1}, None)) == ("é".encode(), b'{"a": 1}')
    assert decoder(Inner)({"name": "x", "more": 1}, None) == Inner("x")


@pytest.mark.parametrize(
    ("hint", "value", "why"),
    [
        (Inner, {"name": 1}, "payload.name is not a valid str: 1"),
        (Inner, [], r"payload is not a valid Inner: \[\]"),
        (Inner, {}, "payload is not a valid Inner: .*name"),
        (list[Inner], [{"name": "x"}, {}], r"payload\[1\] is not a valid Inner"),
        (int, True, "payload is not a valid int: True"),
        (int | None, "1", "payload is not a valid int: '1'"),
        (Literal["a"], "b", "payload is no"),
        (date, "tomorrow", "payload is not a valid date"),
        (Model, {"at": "never"}, "payload is not a valid Model"),
        (Struct, {}, "payload is not a valid Struct"),
    ],
)
def test_a_payload_that_does_not_fit_is_told_where(hint: Any, value: Any, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        decoder(hint)(value, None)


class Point:
    pass


def test_the_hook_makes_something_of_the_rest() -> None:
    assert plain({"at": [Point()]}, lambda one: type(one).__name__) == {"at": ["Point"]}
    with pytest.raises(TypeError, match="can't be encoded as JSON"):
        encode(plain(Point()))
    assert pack({"at": Point()}, lambda one: type(one).__name__) == pack({"at": "Point"})
    assert pack(MappingProxyType({"a": 1})) == pack({"a": 1})
    for hook in (None, lambda one: one):
        with pytest.raises(TypeError, match="A Point can't be encoded as MessagePack"):
            pack([Point()], hook)
    with pytest.raises(ValueError, match="can't be encoded as MessagePack: "):
        pack(1 << 70)


def test_a_packed_payload_is_read_as_such_by_its_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(PLAIN)
    assert decoder(bytes)(packed, KIND) == packed, "bytes are what was sent"
    assert decoder(Any)(packed, "application/octet-stream") == packed
    assert decoder(Any)(packed, "application/x-msgpack; v=5") == PLAIN
    for broken in (packed[:-1], b"\xc1", b"\x91" * 100_000):
        with pytest.raises(PayloadError, match="payload is not valid application/msgpack: "):
            decoder(Picture)(broken, KIND)
    with pytest.raises(PayloadError, match="payload is not a valid Picture: "):
        decoder(Picture)(pack({"at": 1}), KIND)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(RuntimeError, match="needs the package's extra: msgpack"):
        pack(1)
    with pytest.raises(PayloadError, match="needs the package's extra: msgpack"):
        decoder(Any)(b"\x01", KIND)


async def test_handlers_get_what_was_packed_by_whomever(
    client: AsyncClient, service: Running, topic: str, handlers: Queue
) -> None:
    """By a client's enqueue, by a record, by a push, by another language over the other dialect."""
    queue = client.topic(topic)
    await queue.put(TopicConfig(on_exhausted="fail", max_deliveries=1))

    @handlers.handler(topic)
    async def handler(picture: Picture) -> Any:
        return Result(picture)

    seqs = [(await queue.enqueue(PLAIN, content_type=KIND)).seq]
    seqs += (await queue.enqueue_many([Record(data=PICTURE, content_type=KIND)])).seqs
    seqs.append(int(await handlers.get(topic).push(PICTURE, content_type=KIND)))
    async with httpx.AsyncClient(base_url=service.url) as http:
        message = {"topic": topic, "payload": base64.b64encode(pack(PLAIN)).decode(), "encoding": "base64"}
        await http.post("/api/messages", json=message | {"content_type": KIND})
    seqs.append(seqs[-1] + 1)
    seqs.append((await queue.enqueue(pack(7), content_type=KIND)).seq)  # what is packed is not packed again
    async with working(handlers):
        *ends, broken = [await outcome(queue, seq) for seq in seqs]
    # A result is JSON, whatever the payload was.
    assert [end.result for end in ends] == [{"at": "2026-11-22T08:00:00Z", "png": base64.b64encode(PNG).decode()}] * 4
    assert broken.error is not None
    assert broken.error.startswith("PayloadError: payload is not a valid Picture: ")


async def test_a_claim_says_what_the_data_is(queue: AsyncTopic) -> None:
    await queue.enqueue(PLAIN, content_type=KIND)
    await queue.enqueue("text", content_type="text/plain")
    await queue.enqueue({"a": 1})
    await queue.change((await queue.enqueue(1)).seq, data=PLAIN, content_type=KIND)
    jobs = (await queue.claim(max=4, wait_ms=20_000)).jobs
    assert [(job.content_type, job.data) for job in jobs] == [
        *((KIND, pack(PLAIN)), ("text/plain", "text"), (None, {"a": 1}), (KIND, pack(PLAIN))),
    ]


async def test_what_is_large_is_packed_in_object_storage(client: AsyncClient, service: Running, topic: str) -> None:
    await client.topic(topic).put()
    got: list[Picture] = []
    async with Queue(service.url, objects=Objects(MemoryStore(), over=1_000)) as handlers:

        @handlers.handler(topic)
        def handler(picture: Picture, _: SyncContext) -> None:
            got.append(picture)

        large = Picture(AT, PNG * 1_000)
        await handlers.get(topic).push(large, content_type=KIND)
        async with working(handlers):
            await fact(lambda: got)
    assert got == [large]


def takes(picture: Picture) -> Result:
    return Result(picture.png == PNG)


def test_handlers_in_other_processes_and_transactions_have_it_too() -> None:
    body = {"deliveries": 1, "content_type": KIND, "token": "t:1:l", "$seq": 1, "lease_id": "l"}
    account = Account("http://127.0.0.1:9", None, "tests")
    order = Order(takes, "t", pack(PICTURE), body, None, account, None, None)
    judged = copy_context().run(perform, order)  # which the job at hand is, is not the next test's business
    assert (judged.verdict.verb, judged.detail) == ("ack", True)
    _, *values = sql.enqueue("t", PICTURE, content_type=KIND).asyncpg
    assert values[:3] == ["t", pack(PICTURE), KIND]
