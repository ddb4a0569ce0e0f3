"""When was a topic last read? What counts, and what does not."""

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
from tests.api.dialect import Topic, accepted
from tests.api.keyring import client
from tests.conftest import Running
from tests.queue.calls import Session, until

MakeQueue = Callable[..., Awaitable[Policy]]


async def last_read(queue: Topic) -> int | None:
    answer = accepted(await queue.http.get(queue.path, params={"touch": "false"}))
    at: int | None = answer["last_read_ts"]
    return at


async def test_nobody_has(queue: Topic) -> None:
    assert await last_read(queue) is None
    await queue.add(1)
    assert await last_read(queue) is None
    accepted(await queue.http.get("/v0/topics", params={"prefix": queue.name}))
    assert await last_read(queue) is None


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
async def test_it_was_read(queue: Topic, read: Callable[[Topic], Awaitable[object]]) -> None:
    before = int(time.time() * 1000) - 1
    await read(queue)
    at = await last_read(queue)
    assert at is not None
    assert before <= at <= time.time() * 1000


async def test_a_look_counts_itself(queue: Topic) -> None:
    before = int(time.time() * 1000) - 1
    first = accepted(await queue.http.get(queue.path))["last_read_ts"]
    assert first is not None
    assert before <= first
    assert first == await last_read(queue)


@pytest.mark.parametrize(("seconds", "priority"), [(30, 250), (90, 62.5), (3_600, 0)])
async def test_the_priority_of_a_read_is_halved_every_30_s(
    queue: Topic, service: Running, seconds: int, priority: float
) -> None:
    """Unless the topic has a priority of its own, or wants none by its reads."""
    policy = await service.context.policies.get(queue.name)
    now = int(time.time() * 1000)
    await last_used.write_uses(service.context.pools.rest, {policy.topic.id: now - seconds * 1_000}, {}, now)
    began = time.monotonic()
    shown, listed = await priorities(queue)
    least = priority * 0.5 ** ((time.monotonic() - began + 1) / 30) - 1
    assert least <= listed <= shown + 1 <= priority + 2
    await queue.put(priority=7)
    assert await priorities(queue) == (7, 7)
    await queue.put(auto_priority=False)
    assert await priorities(queue) == (0, 0)


async def test_a_topic_that_was_read_has_a_priority_of_500(queue: Topic) -> None:
    assert await priorities(queue) == (0, 0)
    assert accepted(await queue.http.get(queue.path))["effective_priority"] == 500
    page = accepted(await queue.http.get("/v0/topics", params={"prefix": queue.name, "touch": "true"}))
    assert page["topics"][0]["effective_priority"] == 500


async def priorities(queue: Topic) -> tuple[int, int]:
    """As the topic shows it, and as the list does, neither of which counts as a read."""
    state = accepted(await queue.http.get(queue.path, params={"touch": "false"}))
    page = accepted(await queue.http.get("/v0/topics", params={"prefix": queue.name}))
    return state["effective_priority"], page["topics"][0]["effective_priority"]


async def test_it_is_written_down_for_other_processes(service: Running, queue: Topic, serve: Serve) -> None:
    await queue.claim()
    here = await last_read(queue)
    assert await service.context.engine.uses.flush() >= 1
    other = await serve()
    async with client(other) as http:
        there = await last_read(queue.through(http))
    assert here == there == await last_read(queue)


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


async def test_a_topic_that_is_made_anew_was_never_read(queue: Topic) -> None:
    await queue.claim()
    await queue.drop()
    await queue.put()
    assert await last_read(queue) is None
