"""When was a queue last written to? Also where its jobs are long done."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from tests.api.conftest import Serve
from tests.api.dialect import Topic, accepted, eventually
from tests.api.keyring import client
from tests.conftest import Running


async def last_write(queue: Topic) -> int | None:
    at: int | None = (await queue.state())["last_write_ts"]
    return at


async def drained(queue: Topic) -> None:
    """Claim and acknowledge all there is."""
    jobs = (await queue.claim(max=100))["claimed"]
    assert (await queue.ack("n", [job["$seq"] for job in jobs]))["acked"] == len(jobs) > 0
    assert (await queue.state())["count"] == 0


async def moved_on(at: int) -> None:
    """Wait until the clock shows another time."""

    async def fact() -> bool:
        return time.time_ns() // 1_000_000 > at

    await eventually(fact)


async def test_never(queue: Topic) -> None:
    assert await last_write(queue) is None
    await queue.claim()
    assert await last_write(queue) is None


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
async def test_it_stays_when_all_jobs_are_done(queue: Topic, write: Callable[[Topic], Awaitable[object]]) -> None:
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
    await queue.add(1)
    await drained(queue)
    assert (await last_write(queue) or 0) > at


async def test_it_is_written_down_for_other_processes(service: Running, queue: Topic, serve: Serve) -> None:
    await queue.add(1)
    await drained(queue)
    here = await last_write(queue)
    assert here is not None
    assert await service.context.engine.uses.flush() >= 1
    other = await serve()
    async with client(other) as http:
        assert await last_write(queue.through(http)) == here
    assert await last_write(queue) == here


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


async def test_a_queue_made_anew_was_never_written_to(queue: Topic) -> None:
    await queue.add(1)
    accepted(await queue.http.delete(queue.path))
    await queue.put()
    assert await last_write(queue) is None
