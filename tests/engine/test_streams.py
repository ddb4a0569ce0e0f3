"""Work streams: never more than was asked for, refilled as jobs are settled, and released when the connection ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
from asyncpg.pgproto.pgproto import UUID

from app.base.db.pool import Pools
from app.errors import NotAQueue, ShuttingDown
from app.kernel.claim import streams
from app.kernel.claim.consumer import Return
from app.kernel.claim.streams import Stream
from app.kernel.claim.walk import Claimer
from app.kernel.model import HeldJob, Job
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start
from tests.queue.calls import PATIENCE, held, lease_ended

Open = Callable[..., Stream]


@pytest.fixture
async def opened(machine: Machine, queue: Policy) -> AsyncIterator[Open]:
    """Opens streams, and closes those that are left."""
    made: list[Stream] = []

    def open_one(most: int = 2, lease_ms: int = 60_000, policy: Policy | None = None) -> Stream:
        made.append(machine.engine.streams.open(Claimer(policy or queue, f"stream {len(made)}", most, lease_ms)))
        return made[-1]

    yield open_one
    for stream in made:
        await machine.engine.streams.close(stream)


async def following(machine: Machine, stream: Stream) -> list[Job]:
    """The stream's next jobs."""
    return await asyncio.wait_for(machine.engine.streams.next(stream), PATIENCE)


async def quiet(machine: Machine, stream: Stream) -> None:
    """The stream gives nothing for a while."""
    coming = asyncio.create_task(machine.engine.streams.next(stream))
    await asyncio.wait([coming], timeout=0.2)
    assert not coming.done()
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)


async def test_it_holds_no_more_than_it_asked_for(machine: Machine, queue: Policy, opened: Open) -> None:
    await machine.enqueue(queue, 5)
    stream = opened(3)
    assert [job.seq for job in await following(machine, stream)] == [1, 2, 3]
    await quiet(machine, stream)
    assert [job.seq for job in await machine.claim(queue, 10)] == [4, 5]


@pytest.mark.parametrize("verb", ["ack", "nack"])
async def test_it_is_refilled_at_once_when_a_job_is_settled(
    verb: str, machine: Machine, queue: Policy, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 600.0)  # what helps must be the hint, not the look
    await machine.enqueue(queue, 3)
    stream = opened(2)
    first, _second = await following(machine, stream)
    coming = asyncio.create_task(following(machine, stream))
    await asyncio.sleep(0)
    if verb == "ack":
        await machine.ack(queue, [first])
    else:
        await machine.nack(queue, [first], Return(delay_ms=600_000))
    assert [job.seq for job in await coming] == [3]


async def test_it_is_refilled_soon_when_a_job_is_settled_elsewhere_or_a_lease_ends(
    start: Start, machine: Machine, queue: Policy, opened: Open
) -> None:
    await machine.enqueue(queue, 2)
    stream = opened(1)
    (first,) = await following(machine, stream)
    await start().ack(queue, [first])
    assert [job.seq for job in await following(machine, stream)] == [2]
    brief = opened(1, lease_ms=100)
    (third,) = await machine.enqueue(queue)
    leases = [await following(machine, brief) for _ in range(2)]
    assert [(job.seq, job.deliveries) for jobs in leases for job in jobs] == [(third, 1), (third, 2)]


async def test_the_end_of_a_connection_releases_what_it_held_and_nothing_else(
    machine: Machine, queue: Policy, opened: Open
) -> None:
    await machine.enqueue(queue, 5)
    one, other = opened(2), opened(2)
    mine, theirs = await following(machine, one), await following(machine, other)
    polled = await machine.claim(queue, node="stream 0")
    await machine.ack(queue, mine[:1])
    await machine.engine.streams.close(one)
    again = await machine.claim(queue, 10, node="next")
    assert [(job.seq, job.deliveries) for job in again] == [(mine[1].seq, 2)], "a dropped stream counts as a delivery"
    await machine.ack(queue, theirs + polled)


async def test_a_stopping_service_gives_the_delivery_back(start: Start, queue: Policy) -> None:
    leaving, staying = start(), start()
    await leaving.enqueue(queue, 2)
    stream = leaving.engine.streams.open(Claimer(queue, "worker", 2, 60_000))
    assert len(await following(leaving, stream)) == 2
    leaving.engine.stop()
    assert isinstance(stream.ending.result(), ShuttingDown)
    await leaving.engine.streams.close(stream)
    assert [job.deliveries for job in await staying.claim(queue, 2)] == [1, 1]
    with pytest.raises(ShuttingDown):
        leaving.engine.streams.open(Claimer(queue, "worker", 2, 60_000))


async def test_who_leaves_while_the_next_job_comes_loses_none(machine: Machine, queue: Policy, opened: Open) -> None:
    stream = opened(1)
    await machine.enqueue(queue)
    await machine.leave(asyncio.create_task(machine.engine.streams.next(stream)))
    await machine.engine.streams.close(stream)
    await machine.given_back()
    assert [job.deliveries for job in await machine.claim(queue)] == [1]


@pytest.mark.parametrize("where", ["deleted here", "made anew here", "made anew elsewhere"])
async def test_it_ends_with_its_topic(
    where: str, machine: Machine, queue: Policy, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RENEW_SECONDS", 0.1 if where == "made anew elsewhere" else 600.0)
    stream = machine.engine.streams.open(Claimer(queue, "worker", 1, 60_000))
    assert await store.delete(machine.pools.rest, queue.topic.name, if_empty=False)
    if where != "deleted here":
        await make()
    if where != "made anew elsewhere":
        machine.policies.forget(queue.topic.name)
        machine.engine.drop(queue.topic)
    coming = asyncio.create_task(machine.engine.streams.next(stream))
    assert isinstance(await asyncio.wait_for(stream.ending, PATIENCE), NotAQueue)
    coming.cancel()
    await machine.engine.streams.close(stream)


async def test_what_another_stream_got_when_a_lease_ended_is_its_own(
    machine: Machine, queue: Policy, opened: Open, pools: Pools
) -> None:
    """The end of the first connection changes nothing for it, and its room comes back when it settles."""
    await machine.enqueue(queue)
    first, second = opened(1, lease_ms=100), opened(1)
    (job,) = await following(machine, first)
    await lease_ended(pools.rest, queue, job)
    again = await following(machine, second)
    assert again[0].seq == job.seq
    await machine.engine.streams.close(first)
    await machine.ack(queue, again)
    await machine.enqueue(queue)
    assert len(await following(machine, second)) == 1


async def test_a_settlement_that_is_not_its_holders_makes_no_room(
    machine: Machine, queue: Policy, opened: Open
) -> None:
    await machine.enqueue(queue, 2)
    stream = opened(1)
    (mine,) = await following(machine, stream)
    stale = HeldJob(mine.seq, UUID("00000000-0000-4000-8000-000000000001"), None)
    assert await machine.engine.settlements.ack(queue, [stale, held(mine, "another")]) == set()
    await quiet(machine, stream)


async def test_streams_and_claims_share_one_cohort(machine: Machine, make: Make, opened: Open) -> None:
    queue = await make(".even", claim_jitter_ms=50)
    await machine.enqueue(queue, 8)
    one, other = opened(10, policy=queue), opened(10, policy=queue)
    shares = await asyncio.gather(
        following(machine, one), following(machine, other), machine.claim(queue, 10), machine.claim(queue, 10)
    )
    assert [len(share) for share in shares] == [2, 2, 2, 2]


@pytest.mark.slow
async def test_an_idle_fleet_of_streams_costs_next_to_nothing(
    machine: Machine, queue: Policy, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections opened one after the other: 20 that ask again every second are like 100 every five."""
    monkeypatch.setattr(streams, "RENEW_SECONDS", 1.0)
    await machine.enqueue(queue)
    assert len(await machine.claim(queue)) == 1
    tasks = []
    for _ in range(20):
        tasks.append(asyncio.create_task(machine.engine.streams.next(opened(1))))
        await asyncio.sleep(0.1)  # all over the second, and until what was claimed is forgotten
    await asyncio.sleep(0.4)
    before, began = len(machine.log.sent), time.monotonic()
    await asyncio.sleep(1.5)
    rate = (len(machine.log.sent) - before) / (time.monotonic() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert rate < 5
