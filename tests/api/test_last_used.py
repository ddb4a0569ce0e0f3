"""When was a topic last read, and last written to? What counts, and what does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from app.base.db.pool import Pools
from app.kernel.topics import last_used
from app.kernel.topics.policy import Policy
from tests.api.conftest import Serve
from tests.api.dialect import Topic, accepted, eventually
from tests.api.keyring import client
from tests.conftest import Running
from tests.queue.calls import Session, until

MakeQueue = Callable[..., Awaitable[Policy]]
Use = Callable[[Topic], Awaitable[object]]


async def last_read(queue: Topic) -> int | None:
    at: int | None = (await queue.state())["last_read_ts"]
    return at


async def last_write(queue: Topic) -> int | None:
    at: int | None = (await queue.state())["last_write_ts"]
    return at


async def drained(queue: Topic) -> None:
    """Claim and acknowledge all there is."""
    jobs = (await queue.claim(max=100))["claimed"]
    assert (await queue.ack("n", [job["$seq"] for job in jobs]))["acked"] == len(jobs) > 0


async def moved_on(at: int) -> None:
    """Wait until the clock shows another time."""

    async def fact() -> bool:
        return time.time_ns() // 1_000_000 > at

    await eventually(fact)


async def test_nobody_has_read_it(queue: Topic) -> None:
    await queue.add(1)
    accepted(await queue.http.get("/v0/topics", params={"prefix": queue.name}))
    assert await last_read(queue) is None
    await queue.claim()
    await queue.drop()
    await queue.put()
    assert (await last_read(queue), await last_write(queue)) == (None, None), "it was made anew"
    await queue.claim()
    assert await last_write(queue) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda queue: queue.claim(),
        lambda queue: queue.post("diff"),
        lambda queue: queue.http.get(queue.path),
        lambda queue: queue.http.get("/v0/topics", params={"prefix": queue.name, "touch": "true"}),
        lambda queue: queue.http.post("/api/messages/dequeue", json={"topic": queue.name}),
    ],
    ids=["claim", "diff", "look", "list", "dequeue"],
)
async def test_it_was_read(queue: Topic, read: Use) -> None:
    before = int(time.time() * 1000) - 1
    await read(queue)
    at = await last_read(queue)
    assert at is not None
    assert before <= at <= time.time() * 1000
    await moved_on(at)
    again = accepted(await queue.http.get(queue.path))["last_read_ts"]  # a look counts itself
    assert at < again == await last_read(queue)


@pytest.mark.parametrize(
    "write",
    [
        lambda queue: queue.add(2),
        lambda queue: queue.append({"data": 1, "key": "k"}),
        lambda queue: queue.append({"data": 1, "dedupe_id": "d"}),
        lambda queue: queue.append({"data": 1}, idempotency_key="once"),
    ],
    ids=["plain", "keyed", "deduped", "once"],
)
async def test_a_write_stays_when_all_jobs_are_done(queue: Topic, write: Use) -> None:
    before = time.time_ns() // 1_000_000 - 1
    await write(queue)
    await drained(queue)
    at = await last_write(queue)
    assert at is not None
    assert before <= at <= time.time() * 1000


async def test_what_is_known_already_is_not_written(queue: Topic) -> None:
    await queue.append({"data": 1}, idempotency_key="once")
    await drained(queue)
    at = await last_write(queue)
    assert at is not None
    await moved_on(at)
    assert (await queue.append({"data": 1}, idempotency_key="once"))["deduped"]
    assert await last_write(queue) == at


@pytest.mark.parametrize(("seconds", "priority"), [(30, 250), (90, 62.5), (3_600, 0)])
async def test_the_priority_of_a_read_is_halved_every_30_s(
    queue: Topic, service: Running, seconds: int, priority: float
) -> None:
    """Unless the topic has a priority of its own, or wants none by its reads."""

    async def priorities() -> tuple[int, int]:
        page = accepted(await queue.http.get("/v0/topics", params={"prefix": queue.name}))
        return (await queue.state())["effective_priority"], page["topics"][0]["effective_priority"]

    assert await priorities() == (0, 0)
    policy = await service.context.policies.get(queue.name)
    now = int(time.time() * 1000)
    await last_used.write_uses(service.context.pools.rest, {policy.topic.id: now - seconds * 1_000}, {}, now)
    began = time.monotonic()
    shown, listed = await priorities()
    least = priority * 0.5 ** ((time.monotonic() - began + 1) / 30) - 1
    assert least <= listed <= shown + 1 <= priority + 2
    assert accepted(await queue.http.get(queue.path))["effective_priority"] == 500
    await queue.put(priority=7)
    assert await priorities() == (7, 7)
    await queue.put(auto_priority=False)
    assert await priorities() == (0, 0)


async def test_both_are_written_down_for_other_processes(service: Running, queue: Topic, serve: Serve) -> None:
    await queue.add(1)
    await drained(queue)
    here = await last_read(queue), await last_write(queue)
    assert None not in here
    assert await service.context.engine.uses.flush() >= 1
    async with client(await serve()) as http:
        there = queue.through(http)
        assert (await last_read(there), await last_write(there)) == here
    assert (await last_read(queue), await last_write(queue)) == here


async def test_it_is_known_while_it_is_written_down(
    service: Running, queue: Topic, connect: Callable[[], Awaitable[Session]]
) -> None:
    await queue.claim()
    here = await last_read(queue)
    assert here is not None
    db = await connect()
    async with db.transaction():
        await db.execute("LOCK TABLE holdfast.topic_reads IN EXCLUSIVE MODE")  # who reads doesn't wait
        flush = asyncio.create_task(service.context.engine.uses.flush())
        await until(partial(_waited_for, db), "it is being written")
        assert await last_read(queue) == here
    await flush
    assert await last_read(queue) == here


async def _waited_for(db: Session) -> bool:
    waits: bool = await db.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'holdfast.topic_reads'::regclass AND NOT granted)"
    )
    return waits


async def test_a_clock_that_is_wrong_is_made_up_for(pools: Pools, make_queue: MakeQueue, topic: str) -> None:
    """One hour ahead here; what it says was a minute ago was."""
    policy = await make_queue(topic)
    now = int(time.time() * 1000)
    ahead = now + 3_600_000
    await last_used.write_uses(pools.rest, {policy.topic.id: ahead - 60_000}, {policy.topic.id: ahead - 30_000}, ahead)
    read, written = (await last_used.read_uses(pools.rest, [policy.topic]))[policy.topic.id]
    assert read is not None
    assert written is not None
    assert now - 60_100 < read < time.time() * 1000 - 59_900
    assert written - read == 30_000


async def test_a_job_that_died_was_written_to_where_it_went(queue: Topic) -> None:
    dead = Topic(queue.http, f"{queue.name}.dead")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(1)
    job = await queue.take()
    written = await last_write(queue)
    assert written is not None
    await moved_on(written)
    await queue.nack("n", [job["$seq"]])
    assert await last_write(queue) == written
    await drained(dead)
    assert (await last_write(dead) or 0) > written


async def test_past_the_service_it_is_seen_while_the_job_is_there(queue: Topic, pools: Pools) -> None:
    await pools.rest.fetchval("SELECT holdfast.enqueue($1, '1'::jsonb)", queue.name)
    assert await last_write(queue) is not None
    await drained(queue)
    assert await last_write(queue) is None
