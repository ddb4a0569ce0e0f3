"""Keys under rivals: one job of a key waits, no good lease is touched, and nobody gets an error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.errors import Throttled
from app.kernel.claim import consumer
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Lane
from app.kernel.settle import exit_rows as exits
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, parked
from tests.queue.calls import events, held, lease_ended, take, until
from tests.queue.tallies import tallied
from tests.queue.test_keys import give_back, write
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]


@pytest.mark.parametrize("commits", [True, False])
async def test_of_two_producers_the_second_updates_what_the_first_commits(
    commits: bool, queue: Policy, rivals: Rivals
) -> None:
    async with rivals.first(commits=commits):
        await write(rivals.one, queue, ("a", "1"))
        late = await rivals.behind(write(rivals.other, queue, ("a", "2")))
    assert (await late).updated == [commits]
    assert [job.payload for job in await take(rivals.one, queue, 10)] == [b"2"]
    assert await tallied(rivals.one, queue)


async def test_batches_of_the_same_keys_in_any_order_do_not_deadlock(queue: Policy, rivals: Rivals) -> None:
    """The second waits with its first key; had it another one before, the first would wait for it."""
    async with rivals.first():
        await write(rivals.one, queue, ("c", "1"))
        late = await rivals.behind(write(rivals.other, queue, ("d", "2"), ("c", "2"), ("b", "2")))
        await write(rivals.one, queue, ("d", "1"))
    assert (await late).updated == [True, True, False]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_producer_that_waits_for_a_claim_inserts_a_second_where_that_commits(
    commits: bool, queue: Policy, rivals: Rivals
) -> None:
    await write(rivals.one, queue, ("a", "1"))
    async with rivals.first(commits=commits):
        (job,) = await take(rivals.one, queue)
        late = await rivals.behind(write(rivals.other, queue, ("a", "2")))
    assert ((await late).seqs, (await late).updated) == (([2], [False]) if commits else ([1], [True]))
    assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == ({0} if commits else set())
    assert [(one.seq, one.payload) for one in await take(rivals.one, queue, 9)] == [(2 if commits else 1, b"2")]
    assert await tallied(rivals.one, queue)


async def test_a_return_that_waits_for_a_producer_ends(queue: Policy, rivals: Rivals) -> None:
    """The pending one can't be seen when the return begins: it is committed while that waits."""
    await write(rivals.one, queue, ("a", "1"))
    (job,) = await take(rivals.one, queue)
    async with rivals.first():
        await write(rivals.one, queue, ("a", "2"))
        late = await rivals.behind(give_back(rivals.other, queue, job))
    assert await late == ({0}, {0})
    assert await events(rivals.one, queue, 1) == ["enqueued", "claimed", "superseded"]
    assert [job.payload for job in await take(rivals.one, queue, 10)] == [b"2"]
    assert await tallied(rivals.one, queue)


async def test_a_producer_that_waits_for_a_return_updates_it(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"))
    (job,) = await take(rivals.one, queue)
    async with rivals.first():
        await give_back(rivals.one, queue, job)
        late = await rivals.behind(write(rivals.other, queue, ("a", "2")))
    assert ((await late).seqs, (await late).updated) == ([1], [True])
    assert [(job.seq, job.payload) for job in await take(rivals.one, queue, 10)] == [(1, b"2")]
    assert await tallied(rivals.one, queue)


async def test_a_deletion_of_a_key_and_a_return_do_not_deadlock(queue: Policy, rivals: Rivals) -> None:
    """The job that waits is the older one. The deletion is about to lock both when the lease is being returned."""
    await write(rivals.one, queue, ("a", "old"))
    (old,) = await take(rivals.one, queue)
    await write(rivals.one, queue, ("a", "new"))
    (new,) = await take(rivals.one, queue)
    await give_back(rivals.one, queue, old)
    async with rivals.first():
        assert await consumer.extend(rivals.one, queue.topic, [held(new)], [60_000])
        late = await rivals.behind(exits.delete_key(rivals.other, queue.topic, "", "a", 10))
        await give_back(rivals.one, queue, new)
    # It saw neither what was returned nor what that superseded: it is not done, and says so.
    assert await late == exits.KeyDeletion(0, 0, 0, more=True)
    assert await exits.delete_key(rivals.other, queue.topic, "", "a", 10) == exits.KeyDeletion(1, 0, 0, more=False)
    assert await take(rivals.one, queue, 10) == []
    assert await tallied(rivals.one, queue)


async def test_of_two_returns_the_newer_lives(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "old"))
    (old,) = await take(rivals.one, queue)
    await write(rivals.one, queue, ("a", "new"))
    (new,) = await take(rivals.one, queue)
    async with rivals.first():
        await give_back(rivals.one, queue, old)
        late = await rivals.behind(give_back(rivals.other, queue, new))
    assert await late == ({0}, set())
    assert await events(rivals.one, queue, 1) == ["enqueued", "claimed", "released", "superseded"]
    assert [job.payload for job in await take(rivals.one, queue, 10)] == [b"new"]


@pytest.mark.parametrize("first", ["ack", "extend", "claim"])
async def test_a_lease_that_ended_while_a_verb_is_under_way_is_left_to_that(
    first: str, queue: Policy, rivals: Rivals
) -> None:
    """Nobody waits: holders' verbs lock by seq, and who waited for one with keys in hand could be waited for."""
    await write(rivals.one, queue, ("a", "1"))
    (job,) = await take(rivals.one, queue, lease_ms=100 if first == "claim" else 1_500)
    if first == "claim":
        await lease_ended(rivals.one, queue, job)
    async with rivals.first():
        if first == "ack":
            assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
        elif first == "extend":
            assert await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000])
        else:
            assert len(await take(rivals.one, queue)) == 1
        await lease_ended(rivals.observer, queue, job)
        placed = await write(rivals.other, queue, ("a", "2"))
    assert (placed.seqs, placed.updated) == ([2], [False])
    assert "updated" not in await events(rivals.one, queue, 1)
    assert await tallied(rivals.one, queue)


async def test_an_ended_lease_whose_place_is_taken_meanwhile_ends(queue: Policy, rivals: Rivals) -> None:
    """One producer found the lease good and inserts; for the next one it has ended."""
    await write(rivals.one, queue, ("a", "1"))
    (job,) = await take(rivals.one, queue, lease_ms=1_500)
    async with rivals.first():
        assert (await write(rivals.one, queue, ("a", "2"))).seqs == [2]
        await lease_ended(rivals.observer, queue, job)
        late = await rivals.behind(write(rivals.other, queue, ("a", "3")))
    assert ((await late).seqs, (await late).updated) == ([2], [True])
    assert await events(rivals.one, queue, 1) == ["enqueued", "claimed", "superseded"]
    assert await events(rivals.one, queue, 2) == ["enqueued", "updated"]
    assert await tallied(rivals.one, queue)


async def test_the_sweep_waits_for_nobody(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"))
    (job,) = await take(rivals.one, queue, lease_ms=1_500)
    await write(rivals.one, queue, ("a", "2"))
    await lease_ended(rivals.one, queue, job)
    async with rivals.first():
        await write(rivals.one, queue, ("a", "3"))
        ended, _ = await exits.end_superseded(rivals.other, queue.topic, queue.budget, exits.Lease(), 10)
        assert ended == 0
    ended, _ = await exits.end_superseded(rivals.other, queue.topic, queue.budget, exits.Lease(), 10)
    assert ended == 1


async def test_fifty_producers_of_one_key_make_one_job(queue: Policy, processes: list[Machine]) -> None:
    """With other keys before and behind in their batches."""
    for _ in range(3):
        batches = [Batch(payloads=[b"%d" % i] * 3, keys=[f"z{i % 7}", "one", f"a{i % 5}"]) for i in range(50)]
        answers = await asyncio.gather(*(processes[i % 4].enqueue(queue, one) for i, one in enumerate(batches)))
        assert len({seqs[1] for seqs in answers}) == 1
    assert [error for machine in processes for error in machine.log.refused] == []
    keys = sorted(job.key or "" for job in await processes[0].claim(queue, 100))
    assert keys == sorted(["one", *(f"z{i}" for i in range(7)), *(f"a{i}" for i in range(5))])


async def test_who_waits_is_woken_by_an_update_of_an_ended_lease(
    queue: Policy, machine: Machine, rivals: Rivals
) -> None:
    """The waiter's claim went past it: somebody had it locked until the producer came."""
    await write(rivals.one, queue, ("a", "1"))
    (job,) = await take(rivals.one, queue, lease_ms=100)
    await lease_ended(rivals.one, queue, job)
    transaction = rivals.one.transaction()
    await transaction.start()
    assert len(await take(rivals.one, queue)) == 1
    waiting = asyncio.create_task(machine.claim(queue, wait=20))
    await parked(machine, queue, 1)
    written = asyncio.Event()

    async def hold_back() -> None:
        await written.wait()

    machine.log.before |= {"claim": hold_back, "probe": hold_back, "enqueue_keyed": transaction.rollback}
    mark = machine.engine.waiters.mark(queue.topic.id)
    assert await machine.enqueue(queue, Batch(payloads=[b"2"], keys=["a"])) == [1]
    assert machine.engine.waiters.mark(queue.topic.id) > mark, "it was not told"
    written.set()
    assert [(found.seq, found.payload) for found in await waiting] == [(1, b"2")]


async def test_an_ended_lease_that_another_process_updates_late_is_found_below_the_mark(
    queue: Policy, machine: Machine, rivals: Rivals
) -> None:
    """Its time in the due lane was written long before it could be seen."""
    await write(rivals.one, queue, ("a", "1"))
    (job,) = await take(rivals.one, queue, lease_ms=100)
    await lease_ended(rivals.one, queue, job)
    async with rivals.first():
        assert (await write(rivals.one, queue, ("a", "2"))).due == 1
        lane = Lane("", 0)
        written = await rivals.one.fetchval(
            "SELECT (date_part('epoch', visible_at) * 1000000)::bigint FROM holdfast.jobs WHERE topic = $1",
            queue.topic.name,
        )

        async def passed() -> bool:
            assert await machine.claim(queue, 10) == []
            return bool(machine.engine.marks.of(queue.topic).marks[lane].due > written)

        await until(passed, "claims begin behind it")
        waiting = asyncio.create_task(machine.claim(queue, wait=20))
        await parked(machine, queue, 1)
    assert [found.payload for found in await waiting] == [b"2"]


async def test_a_job_that_a_claim_went_past_while_it_was_updated_is_claimed_at_once(
    queue: Policy, machine: Machine, rivals: Rivals
) -> None:
    """The claim skips what is locked, and begins behind it from then on. Who wrote it knows."""
    await machine.enqueue(queue, Batch(payloads=[b"0"]))
    assert len(await machine.claim(queue, 10)) == 1  # a sweep: the next ones begin at the cursor
    await machine.enqueue(queue, Batch(payloads=[b"1"], keys=["a"]))
    await machine.enqueue(queue, Batch(payloads=[b"x"]))

    async def claim() -> None:
        del machine.log.before["enqueue_keyed"]
        async with rivals.first(commits=False):
            await rivals.one.execute(
                "SELECT 1 FROM holdfast.jobs WHERE topic = $1 AND key = 'a' FOR UPDATE", queue.topic.name
            )
            assert [job.payload for job in await machine.claim(queue, 10)] == [b"x"]

    machine.log.before["enqueue_keyed"] = claim
    await machine.enqueue(queue, Batch(payloads=[b"2"], keys=["a"]))
    assert [job.payload for job in await machine.claim(queue, 10)] == [b"2"]


async def test_a_full_queue_takes_updates_and_refuses_what_is_new(
    topic: str, make_queue: MakeQueue, machine: Machine, pools: Pools
) -> None:
    queue = await make_queue(topic, max_depth=2)
    put = machine.engine.enqueues.place
    assert await machine.enqueue(queue, Batch(payloads=[b"1", b"2"], keys=["a", "b"])) == [1, 2]
    answers = await asyncio.gather(
        put(queue, Batch(payloads=[b"3", b"3"], keys=["a", "c"]), 2),
        put(queue, Batch(payloads=[b"4", b"5"], keys=["b", "b"]), 2),
        put(queue, Batch(payloads=[b"6"], keys=["d"]), 2),
        return_exceptions=True,
    )
    assert [type(answer).__name__ for answer in answers] == ["Throttled", "Placement", "Throttled"]
    with pytest.raises(Throttled):
        await put(queue, Batch(payloads=[b"6"], keys=["d"]), 1, "once")
    for payload, repeated in ((b"7", False), (b"8", True)):
        once = await put(queue, Batch(payloads=[payload], keys=["b"]), 1, "once")
        assert isinstance(once, Placement)
        assert (once.seqs, once.repeated) == ([2], repeated)
    assert [job.payload for job in await machine.claim(queue, 10)] == [b"1", b"7"]
    assert await tallied(pools.hot, queue)
