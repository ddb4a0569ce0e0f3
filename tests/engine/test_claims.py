"""Claims whose caller leaves, and claims that meet jobs which can't be handed out."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from app.base.db.pool import Pools
from app.kernel.claim import walk
from app.kernel.claim.consumer import Return
from app.kernel.model import Batch, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start, parked
from tests.queue.calls import batch, events, held, lease_ended, outlived, row, until
from tests.queue.tallies import tallied

GIVEN_BACK = ["enqueued", "claimed", "released"]


async def brief(machine: Machine, queue: Policy, count: int) -> list[Seq]:
    """Enqueue so many jobs that have no time to live."""
    return await machine.enqueue(queue, Batch(payloads=[b"1"] * count, ttls_ms=[1] * count))


# Callers that leave


async def test_who_leaves_during_the_statement_gives_back_what_it_got(
    machine: Machine, make: Make, pools: Pools
) -> None:
    """The delivery does not count, so that the last one is not used up either."""
    queue = await make(max_deliveries=1, dead_letter="dead")
    await machine.enqueue(queue, 3)
    await machine.leave(asyncio.create_task(machine.claim(queue, 2)))
    for seq in (1, 2):
        found = await row(pools.rest, queue, seq)
        assert found is not None
        assert (found["state"], found["deliveries"]) == ("scheduled", 0)
        assert await events(pools.rest, queue, seq) == GIVEN_BACK
    jobs = await machine.claim(queue, 10)
    assert sorted((job.seq, job.deliveries) for job in jobs) == [(1, 1), (2, 1), (3, 1)]


async def test_who_leaves_as_the_answer_comes_gives_back_what_it_got(
    machine: Machine, queue: Policy, pools: Pools
) -> None:
    """The answer is there, and its caller has not seen it yet."""
    await machine.enqueue(queue)
    claiming = asyncio.create_task(machine.claim(queue))

    async def leave_next() -> None:
        # Runs after the rest of this step, in which the answer is given, and before its caller's next one.
        asyncio.get_running_loop().call_soon(claiming.cancel)

    machine.log.after["claim"] = leave_next
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await machine.given_back()
    assert await events(pools.rest, queue, 1) == GIVEN_BACK


async def test_who_leaves_before_the_statement_claims_nothing(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, 2)
    under_way, gate = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        under_way.set()
        await gate.wait()

    machine.log.before["claim"] = hold
    first = asyncio.create_task(machine.claim(queue))
    await under_way.wait()
    second = asyncio.create_task(machine.claim(queue))
    for _ in range(5):
        await asyncio.sleep(0)
    second.cancel()
    gate.set()
    assert [job.seq for job in await first] == [1]
    with pytest.raises(asyncio.CancelledError):
        await second
    await machine.given_back()
    assert await events(pools.rest, queue, 2) == ["enqueued"]


async def test_who_leaves_gives_back_no_others_jobs(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, 4)
    leaving = asyncio.create_task(machine.claim(queue, 2, node="leaves"))
    staying = asyncio.create_task(machine.claim(queue, 2, node="stays"))
    await machine.leave(leaving)
    assert machine.log.count("claim") == 1
    assert await events(pools.rest, queue, 1) == GIVEN_BACK
    await machine.ack(queue, await staying)


async def test_who_leaves_while_it_waits_leaves_nothing(machine: Machine, queue: Policy) -> None:
    waiting = asyncio.create_task(machine.claim(queue, wait=30))
    await parked(machine, queue, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await machine.enqueue(queue)
    assert [job.deliveries for job in await machine.claim(queue)] == [1]


async def test_drain_waits_for_what_is_given_back(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue)
    claiming = asyncio.create_task(machine.claim(queue))
    returning, gate = asyncio.Event(), asyncio.Event()

    async def leave() -> None:
        claiming.cancel()

    async def hold() -> None:
        returning.set()
        await gate.wait()

    machine.log.after["claim"] = leave
    machine.log.before["nack"] = hold
    await returning.wait()
    machine.engine.stop()
    draining = asyncio.create_task(machine.engine.drain())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not draining.done()
    gate.set()
    await draining
    assert claiming.cancelled()
    assert await events(pools.rest, queue, 1) == GIVEN_BACK


async def test_a_stopped_engine_lets_nobody_wait(machine: Machine, queue: Policy) -> None:
    waiting = [asyncio.create_task(machine.claim(queue, wait=300)) for _ in range(3)]
    await parked(machine, queue, 3)
    machine.engine.stop()
    assert await asyncio.gather(*waiting) == [[], [], []]
    assert await machine.claim(queue, wait=300) == []


# Jobs whose deliveries are used up


@pytest.mark.parametrize("on_exhausted", ["dead_letter", "fail"])
async def test_a_claim_takes_out_spent_and_outlived_jobs_and_still_fills_up(
    on_exhausted: str, machine: Machine, make: Make, topic: str, pools: Pools
) -> None:
    dead = await make(".dead")
    where = {"dead_letter": dead.topic.name} if on_exhausted == "dead_letter" else {}
    queue = await make(max_deliveries=1, on_exhausted=on_exhausted, **where)
    silent = await machine.enqueue(queue, 3)
    jobs = await machine.claim(queue, 3, lease_ms=100)
    stale = await brief(machine, queue, 4)
    fresh = await machine.enqueue(queue, 5)
    await lease_ended(pools.rest, queue, jobs[-1])
    await outlived(pools.rest, queue)

    assert [job.seq for job in await machine.claim(queue, 5)] == fresh
    way = {"dead_letter": "dead_lettered", "fail": "failed"}[on_exhausted]
    for seq in silent:
        assert await events(pools.rest, queue, seq) == ["enqueued", "claimed", way]
    for seq in stale:
        assert await events(pools.rest, queue, seq) == ["enqueued", "expired"]
    buried = [(job.original_topic, job.original_seq, job.original_deliveries) for job in await machine.claim(dead, 9)]
    assert buried == ([(topic, seq, 1) for seq in silent] if on_exhausted == "dead_letter" else [])


@pytest.mark.parametrize("fresh", [0, 1])
async def test_behind_many_spent_jobs_a_claim_finds_what_there_is(
    fresh: int, machine: Machine, make: Make, pools: Pools
) -> None:
    queue = await make(max_deliveries=1, on_exhausted="fail")
    await machine.enqueue(queue, 60)
    spent = await machine.claim(queue, 60, lease_ms=100)
    seqs = await machine.enqueue(queue, fresh) if fresh else []
    await lease_ended(pools.rest, queue, spent[-1])
    assert [job.seq for job in await machine.claim(queue, 4)] == seqs
    left = "SELECT count(*) FROM holdfast.jobs WHERE topic = $1 AND state = 'failed'"
    assert await pools.rest.fetchval(left, queue.topic.name) == 60


async def test_a_jobs_own_limit_goes_before_the_topics(machine: Machine, make: Make) -> None:
    queue = await make(max_deliveries=2, dead_letter="dead")
    for_ever = await make(".redelivers", max_deliveries=1, on_exhausted="redeliver")
    await machine.enqueue(queue, Batch(payloads=[b"once", b"as the topic", b"ever"], max_deliveries=[1, None, 0]))
    await machine.enqueue(for_ever)
    seen = []
    for delivery in range(1, 5):
        jobs = await machine.claim(queue, 3)
        seen.append(sorted(job.seq for job in jobs))
        await machine.nack(queue, jobs)
        (job,) = await machine.claim(for_ever)
        assert job.deliveries == delivery
        await machine.nack(for_ever, [job])
    assert seen == [[1, 2, 3], [2, 3], [3], [3]]


async def test_a_nack_of_the_last_delivery_says_why(machine: Machine, make: Make, topic: str, pools: Pools) -> None:
    queue = await make(max_deliveries=1, dead_letter=f"{topic}.dead")
    await machine.enqueue(queue, batch(1, priorities=[4], tags=["tag"]))
    await machine.nack(queue, await machine.claim(queue), Return(error="disk full"))
    dead = await machine.policies.queue(f"{topic}.dead")
    moved = await row(pools.rest, dead, 1)
    assert moved is not None
    assert (moved["last_error"], moved["priority"], moved["tag"]) == ("disk full", 4, "tag")
    assert (moved["deliveries"], moved["original_topic"], moved["original_seq"]) == (0, topic, 1)
    assert await events(pools.rest, dead, 1) == ["enqueued"]


@pytest.mark.parametrize("durable", [True, False])
async def test_a_dead_letter_topic_is_made_at_the_first_move(
    durable: bool, machine: Machine, make: Make, topic: str
) -> None:
    """As durable as its source, and its own jobs are returned for ever."""
    queue = await make(max_deliveries=1, dead_letter=f"{topic}.dead", durable=durable)
    await machine.enqueue(queue)
    await machine.nack(queue, await machine.claim(queue))
    config = (dead := await machine.policies.queue(f"{topic}.dead")).config
    assert (config.max_deliveries, config.dead_letter, config.durable) == (0, None, durable)
    for deliveries in range(1, 4):
        (job,) = await machine.claim(dead)
        assert job.deliveries == deliveries
        await machine.nack(dead, [job])


async def test_a_job_in_flight_is_never_handed_out_as_its_lease_ends(
    machine: Machine, queue: Policy, pools: Pools
) -> None:
    """Two leases follow each other, and never overlap: by the ledger."""
    await machine.enqueue(queue)
    claims = 0

    async def three() -> bool:
        nonlocal claims
        claims += len(await machine.claim(queue, lease_ms=100))
        return claims == 3

    await until(three, "the job is delivered three times")
    rows = await pools.rest.fetch(
        "SELECT at, until FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'claimed' ORDER BY at",
        queue.topic.id,
    )
    assert all(before["until"] < after["at"] for before, after in pairwise(rows))


# Jobs that stand behind those


@pytest.mark.parametrize("seconds", [walk.CLEARING_SECONDS, 0.0])
async def test_nothing_is_no_answer_while_a_job_stands_behind_any_number_of_outlived_ones(
    seconds: float, machine: Machine, queue: Policy, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one cohort gets through to it, or has to make room for others after each pass."""
    monkeypatch.setattr(walk, "CLEARING_SECONDS", seconds)
    await brief(machine, queue, 6_000)
    (fresh,) = await machine.enqueue(queue, 1)
    await outlived(pools.rest, queue)
    assert [job.seq for job in await machine.claim(queue, 1)] == [fresh]
    assert machine.log.count("expire") >= 6


async def test_nothing_is_no_answer_because_others_took_out_what_stood_in_the_way(
    start: Start, queue: Policy, pools: Pools
) -> None:
    """Between the claim, which met them, and its own statement, which finds none of them left."""
    claimer, other = start(), start()
    await brief(claimer, queue, 3)
    (fresh,) = await claimer.enqueue(queue, 1)
    await outlived(pools.rest, queue)

    async def overtake() -> None:
        await other.engine.exits.expire(queue)

    claimer.log.before["expire"] = overtake
    assert [job.seq for job in await claimer.claim(queue, 1)] == [fresh]
    assert await events(pools.rest, queue, 1) == ["enqueued", "expired"]


async def test_those_who_got_nothing_yet_ask_again_and_those_who_did_are_answered(
    machine: Machine, queue: Policy, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "CLEARING_SECONDS", 0.0)
    (first,) = await machine.enqueue(queue, 1)
    await brief(machine, queue, 2_500)
    (last,) = await machine.enqueue(queue, 1)
    await outlived(pools.rest, queue)
    one, two = await asyncio.gather(machine.claim(queue, 1), machine.claim(queue, 1))
    assert ([job.seq for job in one], [job.seq for job in two]) == ([first], [last])


async def test_who_stops_lets_nobody_ask_again(
    machine: Machine, queue: Policy, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "CLEARING_SECONDS", 0.0)
    await brief(machine, queue, 2_500)
    await machine.enqueue(queue, 1)
    await outlived(pools.rest, queue)

    async def stop() -> None:
        machine.engine.stop()

    machine.log.after["expire"] = stop
    assert await machine.claim(queue, 1) == []
    assert machine.log.count("expire") == 1


# Bytes


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim hands out a hundred bytes, give or take the last job."""
    monkeypatch.setattr(walk, "MAX_BYTES", 100)


@pytest.mark.usefixtures("few_bytes")
async def test_a_claim_hands_out_no_more_than_so_many_bytes(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"x" * size for size in (500, 40, 40, 40, 40, 100, 1)]))
    shares = [[job.seq for job in await machine.claim(queue, 10)] for _ in range(4)]
    assert shares == [[1], [2, 3, 4], [5, 6], [7]]
    assert await events(pools.rest, queue, 7) == ["enqueued", "claimed"]
    assert await tallied(pools.rest, queue)


@pytest.mark.usefixtures("few_bytes")
async def test_who_got_nothing_for_the_bytes_of_others_asks_again(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"x" * 60] * 6))
    shares = await asyncio.gather(*(machine.claim(queue, 2) for _ in range(3)))
    assert [[job.seq for job in share] for share in shares] == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.usefixtures("few_bytes")
async def test_jobs_that_are_left_for_their_bytes_are_not_locked_in_vain(machine: Machine, queue: Policy) -> None:
    """A claim that was cut short is followed by ones that lock twice what it got, until they are not."""
    await machine.enqueue(queue, Batch(payloads=[b"x" * 50] * 40))
    for _ in range(2):
        assert len(await machine.claim(queue, 40)) == 2
    assert [len(arguments[8]) for arguments in machine.log.arguments("claim")] == [40, 4]
    while await machine.claim(queue, 40):
        pass
    await machine.enqueue(queue, Batch(payloads=[b"x"] * 40))
    assert len(await machine.claim(queue, 40)) == 40


async def test_the_bytes_of_a_claim_are_bounded_where_nobody_says_so(machine: Machine, queue: Policy) -> None:
    """A thousand of the largest jobs would be a GiB."""
    for _ in range(7):
        await machine.enqueue(queue, Batch(payloads=[b"x" * 2**20] * 10))
    assert [len(await machine.claim(queue, 1_000)) for _ in range(2)] == [64, 6]


async def test_an_extend_sets_the_deadline_and_keeps_the_lease(machine: Machine, queue: Policy, pools: Pools) -> None:
    """It never adds, and is no delivery. Who may: tests/races/test_fences.py."""
    await machine.enqueue(queue)
    (job,) = await machine.claim(queue, lease_ms=60_000)
    for lease_ms in (600_000, 600_000, 30_000):
        [deadline_ms] = (await machine.engine.settlements.extend(queue, [held(job)], lease_ms)).values()
        assert deadline_ms - job.deadline_ms == pytest.approx(lease_ms - 60_000, abs=20_000)
    found = await row(pools.rest, queue, job.seq)
    assert found is not None
    assert found["deliveries"] == 1
    await machine.ack(queue, [job])
