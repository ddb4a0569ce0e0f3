"""A user's program, which is checked with mypy --strict and never run: what each call gives is what its page says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type
from uuid import UUID

from holdfast import (
    AsyncClient,
    AsyncContext,
    AsyncTopic,
    BrokerQueue,
    Client,
    HeartbeatManager,
    Job,
    Objects,
    Queue,
    Record,
    Result,
    Retry,
    SyncContext,
    TopicConfig,
    Worker,
    async_context,
    models,
    sql,
    sync_context,
)
from holdfast.testing import Service


async def with_the_async_client(client: AsyncClient) -> None:
    mail = client.topic("mail")
    assert_type(mail, AsyncTopic)
    await mail.put(TopicConfig(max_deliveries=5))
    assert_type(await mail.enqueue({"to": "ada"}, priority=3), models.Enqueued)
    assert_type((await mail.enqueue_many([Record(data=b"raw"), {"to": "bob"}])).seqs, tuple[int, ...])
    for job in (await mail.claim(max=10, wait_ms=20_000)).jobs:
        assert_type(job, models.ClaimedJob)
        assert_type(await mail.ack(job, results=[None]), models.Acked)
    async for one in mail.jobs(state="failed"):
        assert_type(one, models.Job)
    assert_type(await mail.jobs().page(), models.Page[models.Job])
    async with mail.work(max=10) as stream:
        async for job in stream:
            assert_type(job.data, Any)
    async with client.watches.events("wid") as news:
        async for event in news:
            if isinstance(event, models.Records):
                assert_type(event.records, tuple[models.LogRecord, ...])


def with_the_sync_client(client: Client) -> None:
    mail = client.topic("mail")
    assert_type(mail.enqueue("x"), models.Enqueued)
    for job in mail.claim(max=10).jobs:
        assert_type(mail.nack(job, delay_ms=1_000), models.Nacked)
    for one in client.schedules.list():
        assert_type(one, models.ScheduleSummary)
    with mail.work() as stream:
        for job in stream:
            assert_type(job, models.ClaimedJob)
    with client.with_options(timeout=5) as patient:
        assert_type(patient, Client)


async def with_a_queue() -> None:
    async with BrokerQueue("http://127.0.0.1:8080", "mail") as queue:
        assert_type(await queue.enqueue("send", b"payload"), Job)
        for taken in await queue.dequeue("send", batch_size=2):
            async with HeartbeatManager(queue, taken.id):
                assert_type(taken.payload, bytes)


handlers = Queue("http://127.0.0.1:8080")


@handlers.handler("mail", concurrency=20, retry=(1, 10), schedule="0 7 * * *")
async def send(letter: dict[str, str], context: AsyncContext) -> Result | Retry:
    assert_type(await context.self().group("ada").push(letter), str)
    assert_type(await context.send("progress", 50), int)
    return Result(letter["to"]) if context.received_count == 1 else Retry(5)


@handlers.handler("images", pool="process")
def shrink(name: str, context: SyncContext) -> None:
    assert_type(context.push("mail", name), str)


async def with_a_worker(service: Service) -> None:
    assert_type(await send({"to": "ada"}, AsyncContext.__new__(AsyncContext)), Result | Retry)
    assert_type(await handlers.get("mail").dedupe("order 7").push("x", priority=3), str)
    await Worker(handlers, topics=["mail"], lease=60).run()
    await service.run_until_empty(handlers, within=10, raise_errors=True)
    service.clock.advance(60)


class Asyncpg:
    async def fetchval(self, query: str, *args: Any) -> Any: ...


class Psycopg:
    def execute(self, query: str | bytes, params: Sequence[Any] | None = None) -> Any: ...


async def in_transactions(db: Asyncpg, connection: Psycopg, store: Any) -> None:
    objects = Objects(store, over=1_000_000)
    call = sql.enqueue("mail", await objects.put_async("mail", b"x"), priority=3, group="ada")
    assert_type(call, sql.Call)
    id: UUID = await db.fetchval(*call.asyncpg)
    assert_type(sql.seq_of(id), int)
    connection.execute(*sql.complete(sync_context().token, result={"a": 1}).psycopg)
    sql.assert_lease(async_context().token)
    Client(objects=objects)


def refused_by_mypy(client: Client, jobs: AsyncTopic) -> None:
    """Each of these is a mistake, and mypy says so: else its comment would be one that is not needed."""
    client.topic("mail").claim(maximum=1)  # type: ignore[call-arg]
    client.topic("mail").enqueue()  # type: ignore[call-arg]
    client.topic("mail").claim(max="1")  # type: ignore[arg-type]
    for job in jobs.jobs():  # type: ignore[attr-defined]
        job.seq  # noqa: B018
    claimed: models.Claimed = jobs.claim()  # type: ignore[assignment]
    claimed.jobs  # noqa: B018
    jobs.pause()  # type: ignore[unused-coroutine]
    sql.enqueue("mail", 1, priority="high")  # type: ignore[arg-type]
