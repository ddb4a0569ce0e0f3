"""holdfast.sql with real drivers: jobs begin and end with transactions of the user's own. (psycopg without asyncio:
test_running.py.)"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
import psycopg
import pydantic
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import AsyncTopic, errors, sql
from holdfast.sql import Call
from tests.conftest import Running
from tests.sdk.workers import fact

Run = Callable[[Call], Awaitable[Any]]
Transaction = Callable[[], Any]  # an async context manager, which gives a Run


class RollBack(Exception):
    pass


def drivers(url: str) -> dict[str, Transaction]:
    """A transaction of each driver."""
    plain = url.removeprefix("postgresql")

    @asynccontextmanager
    async def of_asyncpg() -> AsyncIterator[Run]:
        connection = await asyncpg.connect(url)
        # As many do, and no business of ours.
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        try:
            async with connection.transaction():
                yield lambda call: connection.fetchval(*call.asyncpg)
        finally:
            await connection.close()

    @asynccontextmanager
    async def of_psycopg() -> AsyncIterator[Run]:
        async with await psycopg.AsyncConnection.connect(url) as connection:

            async def run(call: Call) -> Any:
                row = await (await connection.execute(*call.psycopg)).fetchone()
                assert row
                return row[0]

            yield run

    @asynccontextmanager
    async def of_sqlalchemy() -> AsyncIterator[Run]:
        engine = sqlalchemy.create_engine(f"postgresql+psycopg{plain}")
        with Session(engine) as session, session.begin():

            async def run(call: Call) -> Any:
                return session.scalar(*call.sqlalchemy)

            yield run
        engine.dispose()

    @asynccontextmanager
    async def of_async_sqlalchemy() -> AsyncIterator[Run]:
        engine = create_async_engine(f"postgresql+asyncpg{plain}")
        async with AsyncSession(engine) as session, session.begin():
            yield lambda call: session.scalar(*call.sqlalchemy)
        await engine.dispose()

    return {
        "asyncpg": of_asyncpg,
        "psycopg": of_psycopg,
        "sqlalchemy": of_sqlalchemy,
        "async sqlalchemy": of_async_sqlalchemy,
    }


@pytest.fixture(params=list(drivers("")))
def transaction(request: pytest.FixtureRequest, database_url: str) -> Transaction:
    return drivers(database_url)[request.param]


async def test_jobs_begin_and_end_with_a_transaction(
    service: Running, queue: AsyncTopic, transaction: Transaction
) -> None:
    with suppress(RollBack):
        async with transaction() as run:
            await run(sql.enqueue(queue.name, {"n": 0}))
            raise RollBack
    assert (await queue.jobs().page()).items == ()
    # Nobody is woken: who waits finds it all the same.
    waiting = asyncio.create_task(queue.claim(max=10, wait_ms=20_000, lease_ms=60_000))
    await fact(lambda: service.waiting(queue.name))
    async with transaction() as run:
        id = await run(sql.enqueue(queue.name, {"n": 1}, priority=3, meta={"a": "b"}, group="g", tag="t"))
    [job] = (await waiting).jobs
    assert (job.data, job.meta, job.group, job.tag, job.seq) == ({"n": 1}, {"a": "b"}, "g", "t", sql.seq_of(id))

    with suppress(RollBack):
        async with transaction() as run:
            await run(sql.complete(job.token))
            raise RollBack
    assert (await queue.job(job.seq)).state == "leased"
    for result in (1, 2):  # once more, nothing happens twice
        async with transaction() as run:
            if result == 1:
                await run(sql.assert_lease(job.token))
            await run(sql.complete(job.token, result={"done": result}))
    assert (await queue.ack(job)).acked == 0
    assert (await queue.result(job.seq)).result == {"done": 1}


async def test_a_lease_that_has_ended_fails_the_transaction(queue: AsyncTopic, transaction: Transaction) -> None:
    await queue.enqueue("x")
    [stale] = (await queue.claim(lease_ms=100)).jobs
    [job] = (await queue.claim(wait_ms=20_000, lease_ms=60_000)).jobs
    for call in (sql.complete(stale.token), sql.assert_lease(stale.token)):
        with pytest.raises(Exception, match="has ended") as raised:
            async with transaction() as run:
                await run(call)
        error = call.explain(raised.value)
        assert isinstance(error, errors.LeaseLost)
        assert error.job_id == str(job.seq)
    assert (await queue.ack(job)).acked == 1


async def test_refusals_have_the_clients_names(queue: AsyncTopic, transaction: Transaction) -> None:
    log = f"{queue.name}.log"
    await queue.put()
    refused: list[tuple[Call, type[errors.APIStatusError]]] = [
        (sql.enqueue("nowhere", 1), errors.TopicNotFound),
        (sql.enqueue(queue.name, 1, priority=10), errors.InvalidRequest),
        (sql.enqueue(f"{log}.fifo", 1), errors.InvalidRequest),
        (sql.complete("no token"), errors.InvalidRequest),
    ]
    for call, kind in refused:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - each driver has its own
            async with transaction() as run:
                await run(call)
        error = call.explain(raised.value)
        assert type(error) is kind, raised.value
        assert error.detail["sqlstate"]
    # One of the user's own statements is none of this call's, whatever its SQLSTATE.
    with pytest.raises(Exception) as raised:  # noqa: PT011
        async with transaction() as run:
            await run(Call("no_such_function", {}))
    assert sql.enqueue(queue.name, 1).explain(raised.value) is None
    assert sql.enqueue(queue.name, 1).explain(ValueError("another")) is None


@dataclass
class Letter:
    to: str
    at: datetime


class Model(pydantic.BaseModel):
    to: str


class Struct(msgspec.Struct):
    to: str


AT = datetime(2026, 11, 22, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("data", "comes"),
    [
        (Letter("ada", AT), {"to": "ada", "at": AT.isoformat()}),
        (Model(to="ada"), {"to": "ada"}),
        (Struct("ada"), {"to": "ada"}),
        ("text", "text"),
        (b"\0\xff", b"\0\xff"),
        (None, None),
        ([1, "ü", {"$base64": 1}], [1, "ü", {"$base64": 1}]),
        ({"$base64": "AAE="}, b"\0\1"),
    ],
)
async def test_payloads_come_as_those_of_the_client(
    queue: AsyncTopic, connect: Callable[[], Awaitable[Any]], data: Any, comes: Any
) -> None:
    db = await connect()
    await db.fetchval(*sql.enqueue(queue.name, data).asyncpg)
    [job] = (await queue.claim(wait_ms=20_000)).jobs
    assert job.data == comes


async def test_every_option_is_the_clients(queue: AsyncTopic, connect: Callable[[], Awaitable[Any]]) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    options: dict[str, Any] = {
        **{"tag": "t", "meta": {"a": {"b": 1}}, "priority": 4, "ttl_ms": 9_000_000, "max_deliveries": 7, "key": "k"},
        **{"group": "g", "user_id": "ada", "tenant": "acme", "traceparent": trace, "content_type": "text/plain"},
        "run_at": datetime.now(UTC) + timedelta(hours=1),
        "delay_ms": 60_000,
    }
    db = await connect()
    mine = sql.seq_of(await db.fetchval(*sql.enqueue(queue.name, "hello", **options).asyncpg))
    theirs = (await queue.enqueue("hello", **{**options, "key": "l", "group": "h"})).seq
    one, other = [await queue.job(seq) for seq in (mine, theirs)]
    for name in ("tag", "meta", "priority", "max_deliveries", "tenant", "content_type", "data", "state"):
        assert getattr(one, name) == getattr(other, name), name
    assert (one.key, one.group, one.visible_at) == ("k", "g", other.visible_at)
    # What waits under its key is the same job, and so is the first one of a dedupe id.
    again = await db.fetchval(*sql.enqueue(queue.name, "hello", **options).asyncpg)
    assert sql.seq_of(again) == mine
    ids = [await db.fetchval(*sql.enqueue(queue.name, n, dedupe_id="once", tenant="b").asyncpg) for n in range(2)]
    assert ids[0] == ids[1] != again


async def test_what_cant_be_sent_is_said_before() -> None:
    with pytest.raises(TypeError, match="can't be encoded as JSON"):
        sql.enqueue("t", object())
    assert sql.enqueue("t", object(), encode=lambda _: "something").asyncpg[2] == b'"something"'
    with pytest.raises(ValueError, match="has no time zone"):
        sql.enqueue("t", 1, run_at=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="not a valid traceparent"):
        sql.enqueue("t", 1, traceparent="x")
    with pytest.raises(TypeError, match="sent as image/png"):
        sql.enqueue("t", {"a": 1}, content_type="image/png")


def test_a_call_holds_no_values_in_its_text() -> None:
    secret = secrets.token_hex(8)
    call = sql.enqueue("t", secret, tag=secret)
    assert secret not in call.asyncpg[0] + call.psycopg[0] + str(call.sqlalchemy[0]) + repr(call)
