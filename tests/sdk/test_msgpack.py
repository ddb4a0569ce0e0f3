"""Payloads of MessagePack: packed where an object is enqueued as that, and read by the hint, whoever packed them."""

from __future__ import annotations

import base64
import sys
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pydantic
import pytest
from obstore.store import MemoryStore

from holdfast import AsyncClient, AsyncTopic, Objects, Queue, Record, Result, SyncContext, TopicConfig, sql
from holdfast._msgpack import pack
from holdfast._transport import Account
from holdfast._worker.child import Order, perform
from holdfast._worker.payloads import PayloadError, decoder
from tests.conftest import Running
from tests.sdk.workers import fact, outcome, working

KIND = "application/msgpack"
AT = datetime(2026, 11, 22, 8, tzinfo=UTC)


class Struct(msgspec.Struct):
    at: datetime
    png: bytes


class Model(pydantic.BaseModel):
    at: datetime
    png: bytes


@dataclass
class Both:
    struct: Struct
    id: UUID
    price: Decimal
    png: bytes = b""


PNG = b"\x89PNG\xff"
PLAIN = {"at": AT, "png": PNG}
BOTH = Both(Struct(AT, PNG), UUID(int=7), Decimal("1.10"), PNG)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        *((Struct, Struct(AT, PNG)), (Model, Model(at=AT, png=PNG)), (Both, BOTH)),
        *((list[Model], [Model(at=AT, png=PNG)]), (dict[str, Struct], {"a": Struct(AT, PNG)})),
        *((Any, PLAIN), (dict, PLAIN), (str, "text"), (datetime, AT), (int | None, None)),
    ],
)
def test_what_is_packed_comes_back_as_it_was(hint: Any, value: Any) -> None:
    assert decoder(hint)(pack(value), KIND) == value


def test_a_packed_payload_is_read_as_such_by_its_type_alone() -> None:
    packed = pack(PLAIN)
    assert decoder(bytes)(packed, KIND) == packed, "bytes are what was sent"
    assert decoder(Any)(packed, "application/octet-stream") == packed
    assert decoder(Any)(packed, "application/x-msgpack; v=5") == PLAIN
    for broken in (packed[:-1], b"\xc1", b"\x91" * 100_000):
        with pytest.raises(PayloadError, match="payload is no application/msgpack: "):
            decoder(Struct)(broken, KIND)
    with pytest.raises(PayloadError, match="payload is no Struct: "):
        decoder(Struct)(pack({"at": 1}), KIND)


def test_the_hook_makes_something_of_what_msgspec_does_not_know() -> None:
    class Point:
        pass

    assert pack({"at": Point()}, lambda one: type(one).__name__) == pack({"at": "Point"})
    assert pack(MappingProxyType({"a": 1})) == pack({"a": 1})
    for hook in (None, lambda one: one):
        with pytest.raises(TypeError, match="A Point has no MessagePack"):
            pack([Point()], hook)
    with pytest.raises(ValueError, match="no MessagePack: "):
        pack(1 << 70)


def test_without_msgspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
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
    async def handler(struct: Struct) -> Any:
        return Result(struct)

    seqs = [(await queue.enqueue(PLAIN, content_type=KIND)).seq]
    seqs += (await queue.enqueue_many([Record(data=Model(at=AT, png=PNG), content_type=KIND)])).seqs
    seqs.append(int(await handlers.get(topic).push(Struct(AT, PNG), content_type=KIND)))
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
    assert broken.error.startswith("PayloadError: payload is no Struct: ")


async def test_a_claim_says_what_the_data_is(queue: AsyncTopic) -> None:
    await queue.enqueue(PLAIN, content_type=KIND)
    await queue.enqueue("text", content_type="text/plain")
    await queue.enqueue({"a": 1})
    await queue.change((await queue.enqueue(1)).seq, data=PLAIN, content_type=KIND)
    jobs = (await queue.claim(max=4, wait_ms=20_000)).jobs
    packed = pack(PLAIN)
    assert [(job.content_type, job.data) for job in jobs] == [
        *((KIND, packed), ("text/plain", "text"), (None, {"a": 1}), (KIND, packed)),
    ]


async def test_what_is_large_is_packed_in_object_storage(client: AsyncClient, service: Running, topic: str) -> None:
    await client.topic(topic).put()
    got: list[Struct] = []
    async with Queue(service.url, objects=Objects(MemoryStore(), over=1_000)) as handlers:

        @handlers.handler(topic)
        def handler(struct: Struct, _: SyncContext) -> None:
            got.append(struct)

        large = Struct(AT, PNG * 1_000)
        await handlers.get(topic).push(large, content_type=KIND)
        async with working(handlers):
            await fact(lambda: got)
    assert got == [large]


def takes(both: Both) -> Result:
    return Result(both.struct.png == PNG)


def test_a_handler_in_another_process_gets_it_too() -> None:
    body = {"deliveries": 1, "content_type": KIND, "token": "t:1:l", "$seq": 1, "lease_id": "l"}
    account = Account("http://127.0.0.1:9", None, "tests")
    order = Order(takes, "t", pack(BOTH), body, None, account, None, None)
    judged = copy_context().run(perform, order)  # which the job at hand is, is not the next test's business
    assert (judged.verdict.verb, judged.said) == ("ack", True)


def test_a_transaction_enqueues_it() -> None:
    _, *values = sql.enqueue("t", BOTH, content_type=KIND).asyncpg
    assert values[:3] == ["t", pack(BOTH), KIND]
