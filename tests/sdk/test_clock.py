"""`holdfast.testing`: its clock, what it runs, and what it leaves, on the service as it is."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from holdfast import AsyncClient, Dead, Queue, Record, Retry, TopicConfig, errors, models
from holdfast.testing import NotEmpty, Service, _clock
from holdfast.testing._service import BUSY
from tests.api.keyring import Services
from tests.conftest import Running
from tests.sdk.conftest import Serve

# When something was, or is written by those who look on: time that goes by does not change it.
LEFT = {
    *("lease_events", "archive", "archived_days", "audit", "topic_stats", "topic_stats_progress", "topic_stats_staged"),
    *("topics", "topic_reads", "topic_schemas", "sweeps", "operations", "replays", "writes", "stages", "token_secret"),
    *("depths", "depth_looks", "saved_views", "sign_in_tries", "sqs_queues", "sweep_runs"),
    *("api_keys", "grants", "users", "inbox", "inbox_unchecked", "inbox_rejects", "staged", "schedules"),
    "results.completed_at",
}

HOUR = 3_600
HOUR_MS = HOUR * 1_000


@pytest.fixture(scope="module")
async def running(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> tuple[Running, Services]:
    """A service of its own: its clock moves."""
    services = await Services.make(serve, new_database)
    return await services.start(), services


@pytest.fixture
async def held(running: tuple[Running, Services]) -> AsyncIterator[Service]:
    service = Service(running[0].url, running[1].url)
    yield service
    await asyncio.to_thread(service.clean)


@pytest.fixture
async def client(held: Service) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(held.url) as client:
        yield client


async def advance(held: Service, seconds: float) -> None:
    """The service runs in this thread's loop."""
    await asyncio.to_thread(held.clock.advance, seconds)


async def claimed(client: AsyncClient, topic: str, *, wait_ms: int = 20_000, most: int = 10) -> list[models.ClaimedJob]:
    return list((await client.topic(topic).claim(max=most, wait_ms=wait_ms, lease_ms=HOUR_MS)).jobs)


async def test_delays_end_in_their_order(held: Service, client: AsyncClient) -> None:
    mail = client.topic("mail")
    await mail.put()
    await mail.enqueue_many([Record(data=n, delay_ms=n * HOUR_MS) for n in (4, 2, 3, 9)])
    assert await claimed(client, "mail", wait_ms=0) == []
    await advance(held, 1 * HOUR)
    assert await claimed(client, "mail", wait_ms=0) == []
    await advance(held, 4 * HOUR)
    for data in (2, 3, 4):
        assert [job.data for job in await claimed(client, "mail", most=1)] == [data]
    assert await claimed(client, "mail", wait_ms=0) == []
    with pytest.raises(ValueError, match="back"):
        held.clock.advance(timedelta(seconds=-1))


async def test_leases_end_and_results_windows_and_times_to_live_pass(held: Service, client: AsyncClient) -> None:
    mail = client.topic("mail")
    await mail.put(TopicConfig(result_ttl_ms=2 * HOUR_MS, dedupe_window_ms=HOUR_MS))
    await mail.enqueue("once", dedupe_id="a")
    [first] = await claimed(client, "mail")
    await mail.enqueue("short", ttl_ms=HOUR_MS // 2)
    await advance(held, HOUR / 2)
    assert await claimed(client, "mail", wait_ms=0) == []
    await advance(held, HOUR / 2 + 1)
    [second] = await claimed(client, "mail")
    assert (second.seq, second.deliveries) == (first.seq, 2)
    assert (await mail.ack(first)).skipped == (first.seq,), "its holder is fenced"
    assert (await mail.ack(second, results=["sent"])).skipped == ()
    assert not (await mail.enqueue("anew", dedupe_id="a")).duplicate
    assert (await mail.enqueue("again", dedupe_id="a")).duplicate
    assert (await mail.result(second.seq)).result == "sent"
    await advance(held, 2 * HOUR)
    with pytest.raises(errors.NotFound):
        await mail.result(second.seq)


async def test_what_comes_to_be_due_is_not_below_what_claims_have_passed(
    held: Service, client: AsyncClient, running: tuple[Running, Services]
) -> None:
    """A process remembers up to which time it has handed everything out, and looks no further back."""
    mail = client.topic("mail")
    await mail.put()
    late = await mail.enqueue("late", delay_ms=HOUR_MS)
    enqueued = (await mail.job(late.seq)).created_at
    engine = running[0].context.engine

    async def passed() -> bool:
        await mail.enqueue("now")
        await mail.ack(*await claimed(client, "mail"))
        [cursor] = [one for one in engine.marks.used_since(0) if one.topic.name == "mail"]
        return any(mark.due_low > enqueued.timestamp() * 1e6 for mark in cursor.marks.values())

    end = time.monotonic() + 30
    while not await passed():
        assert time.monotonic() < end
    await advance(held, HOUR)
    assert [job.data for job in await claimed(client, "mail")] == ["late"]


async def test_a_schedule_fires_once_if_its_time_is_in_the_span(held: Service, client: AsyncClient) -> None:
    await client.topic("rare").put()
    for name, in_days in (("soon", 2), ("later", 20)):
        at = datetime.now(UTC) + timedelta(days=in_days)
        cron = f"{at.minute} {at.hour} {at.day} {at.month} *"
        await client.schedules.put(name, topic="rare", cron=cron, record=name)
    await client.schedules.put("paused", topic="rare", cron="* * * * *", record="paused", paused=True)
    await advance(held, 24 * HOUR)
    assert await claimed(client, "rare", wait_ms=0) == []
    await advance(held, 10 * 24 * HOUR)
    assert [job.data for job in await claimed(client, "rare")] == ["soon"]


async def test_every_time_that_is_kept_is_moved_or_left_on_purpose(running: tuple[Running, Services]) -> None:
    rows = await running[1].sql(
        "SELECT c.relname AS of_table, a.attname AS name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
        "AND a.atttypid = 'timestamptz'::regtype AND NOT a.attisdropped"
    )
    there = {f"{row['of_table']}.{row['name']}" for row in rows}
    moved = {
        f"{table}.{name}"
        for table, sets in re.findall(r"UPDATE holdfast\.(\w+)\b.*?SET (.*?)(?=\n\)|\Z)", _clock.ADVANCE, re.DOTALL)
        for name in re.findall(r"\b(\w+_at|at) = ", sets)
    }
    assert len(moved) > 15
    assert moved <= there
    unsaid = {one for one in there - moved if one not in LEFT and one.partition(".")[0] not in LEFT}
    assert unsaid == set()


async def test_it_runs_until_all_that_a_job_led_to_is_done(held: Service, client: AsyncClient) -> None:
    queue = Queue("http://127.0.0.1:1")
    done: list[object] = []

    @queue.handler("first", concurrency=2)
    async def first(number: int, context: Any) -> None:
        done.append(number)
        if number:
            await context.push("second", number)

    @queue.handler("second")
    def second(number: int, context: Any) -> Retry | None:
        if context.received_count == 1 and number == 3:
            return Retry(0, "at once")
        context.push("first", number - 1)
        return None

    for topic in ("first", "second"):
        await client.topic(topic).put()
    held.attach(queue)
    await queue.get("first").push(3)
    await held.run_until_empty(queue)
    assert done == [3, 2, 1, 0]
    await queue.aclose()
    await asyncio.to_thread(held.clean)
    assert queue.account.base_url == "http://127.0.0.1:1"
    assert (await client.topics.list().page()).items == ()


async def test_what_is_returned_while_it_looks_is_left_to_do(held: Service, client: AsyncClient) -> None:
    """What it looks at is newer than its now()."""
    queue = client.topic("first")
    await queue.put()
    await queue.enqueue(1)
    (job,) = (await queue.claim()).jobs
    db = await asyncpg.connect(held.database_url)
    try:
        async with db.transaction():
            await db.fetchval("SELECT now()")  # which it is until the end
            await queue.nack(job, delay_ms=0)
            (left,) = await db.fetch(BUSY, ["first"], [])
        assert (left["topic"], left["n"]) == ("first", 1)
    finally:
        await db.close()


async def test_what_waits_for_its_time_is_left(held: Service, client: AsyncClient) -> None:
    """Here the second job of a group waits for the first, and a handler's schedule for its hour."""
    queue = Queue()
    tries: list[int] = []
    fired: list[str] = []

    @queue.handler("orders.fifo")
    async def book(number: int, context: Any) -> Retry | None:
        tries.append(number)
        return Retry(60) if context.received_count == 1 and number == 1 else None

    queue.handler("hourly", schedule="0 * * * *")(lambda _: fired.append("now"))
    for topic in queue.handlers:
        await client.topic(topic).put()
    held.attach(queue)
    for number in (1, 2):
        await queue.get("orders.fifo").group("ada").push(number)
    await held.run_until_empty(queue)
    assert (tries, fired) == ([1], [])
    await advance(held, HOUR)
    await held.run_until_empty(queue)
    assert (tries, fired) == ([1, 1, 2], ["now"])
    await queue.aclose()


async def test_errors_of_handlers_are_raised_if_asked_and_it_says_what_is_left(
    held: Service, client: AsyncClient
) -> None:
    queue = Queue()

    @queue.handler("first")
    async def first(_: object) -> None:
        raise Dead("as it should be")

    @queue.handler("thread", retry=(3_600,))
    def thread(_: object) -> None:
        raise ZeroDivisionError("by zero")

    @queue.handler("loop", retry=(3_600,))
    async def loop(_: object) -> None:
        raise ZeroDivisionError("by zero")

    for topic in queue.handlers:
        await client.topic(topic).put()
    await client.topic("first").enqueue(1)
    for topic in ("thread", "loop"):
        await client.topic(topic).enqueue(1)
        with pytest.raises(ZeroDivisionError):
            await held.run_until_empty(queue, raise_errors=True)
        await held.run_until_empty(queue)  # the job is to be tried again in an hour
    await client.topic("first").enqueue(1)
    await client.topic("first").pause()
    with pytest.raises(NotEmpty, match=r"not empty after 0\.2 s: first: 1 ready"):
        await held.run_until_empty(queue, within=0.2)
