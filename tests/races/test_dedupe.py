"""Dedupe ids and idempotency keys under rivals: one job of an id, one batch of a key, and all answers agree."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import Pools, open_pools
from app.errors import Throttled
from app.kernel.claim import consumer
from app.kernel.enqueue import producer
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Seq
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import Session, events, held, take
from tests.queue.tallies import tallied
from tests.queue.test_dedupe import over, write
from tests.queue.test_keys import write as write_keyed
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]


async def placed(machine: Machine, policy: Policy, batch: Batch, key: str | None = None) -> Placement:
    """What became of a batch that looks back."""
    found = await machine.engine.enqueues.place(policy, batch, sum(map(len, batch.payloads)), key)
    assert isinstance(found, Placement)
    return found


async def test_the_second_waits_and_answers_the_firsts_job(queue: Policy, rivals: Rivals) -> None:
    """Its snapshot is older than the first one's commit."""
    transaction = rivals.one.transaction()
    await transaction.start()
    assert (await write(rivals.one, queue, ("a", "1"))).seqs == [1]
    late = asyncio.create_task(write(rivals.other, queue, ("a", "2"), ("b", "3")))
    await rivals.meet()
    await transaction.commit()
    second = await late
    assert (second.seqs, second.duplicates) == ([1, 2], [0])
    assert [job.payload for job in await take(rivals.one, queue, 10)] == [b"1", b"3"]
    assert await tallied(rivals.one, queue)


async def test_the_second_is_the_first_where_that_is_rolled_back(queue: Policy, rivals: Rivals) -> None:
    transaction = rivals.one.transaction()
    await transaction.start()
    await write(rivals.one, queue, ("a", "1"), once="k")
    late = asyncio.create_task(write(rivals.other, queue, ("a", "2")))
    await rivals.meet()
    again = asyncio.create_task(write(rivals.observer, queue, ("b", "3"), once="k"))
    await transaction.rollback()
    assert (await late).duplicates == []
    assert (await again).repeated is False
    assert {job.payload for job in await take(rivals.one, queue, 10)} == {b"2", b"3"}
    assert (await write(rivals.one, queue, ("a", "4"))).seqs == (await late).seqs
    assert await tallied(rivals.one, queue)


@pytest.mark.parametrize("commits", [True, False])
async def test_once_the_window_is_over_the_second_waits_for_the_new_first(
    commits: bool, queue: Policy, rivals: Rivals
) -> None:
    """The row is there, and is taken over."""
    await write(rivals.one, queue, ("a", "old"), ids_ms=1)
    await over(rivals.one, queue, "dedupe", "a")
    transaction = rivals.one.transaction()
    await transaction.start()
    assert (await write(rivals.one, queue, ("a", "1"))).seqs == [2]
    late = asyncio.create_task(write(rivals.other, queue, ("a", "2")))
    await rivals.meet()
    await (transaction.commit() if commits else transaction.rollback())
    second = await late
    assert (second.seqs, second.duplicates) == (([2], [0]) if commits else ([3], []))
    assert [job.payload for job in await take(rivals.one, queue, 10)] == [b"old", b"1" if commits else b"2"]


async def test_ids_in_any_order_do_not_deadlock(queue: Policy, rivals: Rivals) -> None:
    """The second waits with its first id; had it another one before, the first would wait for it."""
    transaction = rivals.one.transaction()
    await transaction.start()
    await write(rivals.one, queue, ("c", "1"))
    late = asyncio.create_task(write(rivals.other, queue, ("d", "2"), ("c", "2"), ("b", "2")))
    await rivals.meet()
    await write(rivals.one, queue, ("d", "1"))
    await transaction.commit()
    assert (await late).duplicates == [0, 1]


async def test_what_the_sweep_takes_out_meanwhile_is_new(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ids_ms=1)
    await over(rivals.one, queue, "dedupe", "a")
    transaction = rivals.one.transaction()
    await transaction.start()
    while await producer.sweep_dedupe(rivals.one, 1_000):
        pass
    late = asyncio.create_task(write(rivals.other, queue, ("a", "2")))
    await rivals.meet()
    await transaction.commit()
    assert ((await late).seqs, (await late).duplicates) == ([2], [])
    assert (await write(rivals.one, queue, ("a", "3"))).seqs == [2]


async def test_the_sweep_waits_for_nobody_and_leaves_what_was_taken_over(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ids_ms=1)
    await over(rivals.one, queue, "dedupe", "a")
    transaction = rivals.one.transaction()
    await transaction.start()
    await write(rivals.one, queue, ("a", "2"))
    while await producer.sweep_dedupe(rivals.other, 1_000):
        pass
    await transaction.commit()
    assert (await write(rivals.other, queue, ("a", "3"))).seqs == [2]


async def test_a_first_one_that_waits_for_its_key_keeps_its_id_for_that_job(queue: Policy, rivals: Rivals) -> None:
    """Ids are locked before keys: whoever waits for the id has no key in hand."""
    transaction = rivals.one.transaction()
    await transaction.start()
    await write_keyed(rivals.one, queue, ("k", "1"))
    first = asyncio.create_task(write(rivals.other, queue, ("a", "2"), keys=["k"]))
    await rivals.meet()
    second = asyncio.create_task(write(rivals.observer, queue, ("a", "3"), ("b", "4"), keys=["k", None]))
    await transaction.commit()
    assert ((await first).seqs, (await first).updated, (await first).duplicates) == ([1], [True], [])
    assert ((await second).seqs[0], (await second).duplicates) == (1, [0])
    jobs = await take(rivals.one, queue, 10)
    assert sorted(job.payload for job in jobs) == [b"2", b"4"]
    assert await tallied(rivals.one, queue)


async def test_a_repeated_batch_waits_for_the_first(queue: Policy, rivals: Rivals) -> None:
    transaction = rivals.one.transaction()
    await transaction.start()
    await write(rivals.one, queue, (None, "1"), (None, "2"), once="k")
    late = asyncio.create_task(write(rivals.other, queue, ("a", "3"), once="k"))
    await rivals.meet()
    await transaction.commit()
    assert ((await late).seqs, (await late).repeated) == ([1, 2], True)
    assert (await write(rivals.one, queue, ("a", "4"))).duplicates == []


async def test_who_waits_for_a_topic_that_goes_keeps_nothing(
    queue: Policy, pools: Pools, rivals: Rivals, make_queue: MakeQueue
) -> None:
    """The id is one of the topic that is made anew."""
    transaction = rivals.one.transaction()
    await transaction.start()
    await write(rivals.one, queue, ("a", "1"))
    going = asyncio.create_task(store.delete(pools.rest, queue.topic.name, if_empty=False))
    await rivals.meet()
    late = asyncio.create_task(write(rivals.other, queue, ("a", "2")))
    await transaction.commit()
    assert await going is True
    with pytest.raises(asyncpg.PostgresError):
        await late
    kept = "SELECT count(*) FROM holdfast.dedupe WHERE topic_id = $1"
    assert await rivals.observer.fetchval(kept, queue.topic.id) == 0
    anew = await make_queue(queue.topic.name)
    assert (await write(rivals.one, anew, ("a", "3"))).duplicates == []


async def test_fifty_duplicates_make_one_job(database_url: str, topic: str, make_queue: MakeQueue) -> None:
    """Through four processes' engines, round after round: five ids in an order of each producer's own, one of them
    twice in its batch. In every other round, the ids have been used before, and their window is over."""
    queue = await make_queue(topic, durable=True)
    pools = await open_pools(database_url, hot=16, rest=2, prepared_statements=True)
    machines = [new_machine(pools) for _ in range(4)]
    dice = random.Random(7)
    seen: set[Seq] = set()

    async def produce(n: int, ids: list[str]) -> dict[str, Seq]:
        mine: list[str | None] = [*dice.sample(ids, 5), dice.choice(ids)]
        found = await placed(machines[n % len(machines)], queue, Batch(payloads=[b"%d" % n] * 6, dedupe_ids=mine))
        answer: dict[str, Seq] = {}
        for dedupe_id, seq in zip(mine, found.seqs, strict=True):
            assert answer.setdefault(str(dedupe_id), seq) == seq, "one id, two jobs in one answer"
        assert 1 <= len(found.duplicates) <= 6
        return answer

    try:
        async with pools.hot.acquire() as db:
            for turn in range(6):
                ids = [f"i{turn}.{n}" for n in range(5)]
                if turn % 2:
                    old = await write(db, queue, *((one, "old") for one in ids), ids_ms=1)
                    seen |= set(old.seqs)
                    await over(db, queue, "dedupe", ids[-1])
                answers = await asyncio.gather(*(produce(n, ids) for n in range(50)))
                assert all(answer == answers[0] for answer in answers)
                assert seen.isdisjoint(answers[0].values()), "the window was over"
                seen |= set(answers[0].values())
                assert await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", topic) == len(seen)
            assert len(seen) == 6 * 5 + 3 * 5
            assert await tallied(db, queue)
        assert [error for machine in machines for error in machine.log.refused] == []
        machines.append(new_machine(pools))  # a process that was started just now
        assert await produce(4, ids) == answers[0]
        counted = [machine.engine.metrics.topic(topic) for machine in machines]
        assert sum(one.enqueued.value for one in counted) == 30
        assert sum(one.duplicates.value for one in counted) == 6 * 50 * 6 - 30 + 6
    finally:
        for machine in machines:
            machine.engine.stop()
            await machine.engine.drain()
        await pools.close(5)


async def test_a_full_queue_takes_duplicates_and_keeps_no_id_of_what_it_refuses(
    topic: str, make_queue: MakeQueue, machine: Machine, pools: Pools
) -> None:
    queue = await make_queue(topic, max_depth=2)
    first = await placed(machine, queue, Batch(payloads=[b"1", b"2"], dedupe_ids=["a", "b"]))
    answers = await asyncio.gather(
        placed(machine, queue, Batch(payloads=[b"3", b"3"], dedupe_ids=["a", "c"])),
        placed(machine, queue, Batch(payloads=[b"4", b"5"], dedupe_ids=["b", "a"])),
        placed(machine, queue, Batch(payloads=[b"6"]), "k"),
        return_exceptions=True,
    )
    assert [type(answer).__name__ for answer in answers] == ["Throttled", "Placement", "Throttled"]
    jobs = await machine.claim(queue, 10)
    await machine.engine.settlements.ack(queue, [held(job) for job in jobs])
    assert (await placed(machine, queue, Batch(payloads=[b"7"], dedupe_ids=["c"]))).duplicates == []
    assert (await placed(machine, queue, Batch(payloads=[b"8"]), "k")).repeated is False
    with pytest.raises(Throttled):
        await placed(machine, queue, Batch(payloads=[b"9"], dedupe_ids=["d"]))
    assert (await placed(machine, queue, Batch(payloads=[b"9"], dedupe_ids=["a"]))).seqs == first.seqs[:1]
    assert await tallied(pools.hot, queue)


async def test_many_producers_of_few_ids_never_pass_max_depth(
    database_url: str, topic: str, make_queue: MakeQueue
) -> None:
    """Keyed ones, deduped ones and batches with keys of their own, through two processes, while jobs leave."""
    queue = await make_queue(topic, max_depth=8, idempotency_window_ms=600_000)
    pools = await open_pools(database_url, hot=8, rest=2, prepared_statements=True)
    machines = [new_machine(pools) for _ in range(2)]
    dice = random.Random(11)
    depth = "SELECT count(*) FROM holdfast.jobs WHERE topic = $1"
    jobs_of: dict[str, set[Seq]] = {}

    async def produce(n: int) -> None:
        for _ in range(12):
            mine: list[str | None] = [f"i{dice.randrange(40)}", None, f"i{dice.randrange(40)}"]
            made = Batch(payloads=[b"%d" % n] * 3, dedupe_ids=mine, keys=[None, f"k{n}", None])
            try:
                found = await placed(machines[n % 2], queue, made, dice.choice([None, f"b{dice.randrange(9)}"]))
            except Throttled:
                continue
            if not found.repeated:
                for dedupe_id, seq in zip(mine, found.seqs, strict=True):
                    jobs_of.setdefault(str(dedupe_id), set()).add(seq)

    async def work(stop: asyncio.Event) -> None:
        while not stop.is_set():
            jobs = await machines[0].claim(queue, 3, wait=0.01)
            await machines[1].engine.settlements.ack(queue, [held(job) for job in jobs])
            assert await pools.rest.fetchval(depth, topic) <= 8

    try:
        stop = asyncio.Event()
        worker = asyncio.create_task(work(stop))
        await asyncio.gather(*(produce(n) for n in range(8)))
        stop.set()
        await worker
        assert {dedupe_id for dedupe_id, seqs in jobs_of.items() if dedupe_id != "None" and len(seqs) > 1} == set()
        assert len(jobs_of) > 10
        assert await tallied(pools.hot, queue)
    finally:
        for machine in machines:
            machine.engine.stop()
            await machine.engine.drain()
        await pools.close(5)


async def test_fifo_topics_dedupe_by_payload(topic: str, make_queue: MakeQueue, machine: Machine) -> None:
    """Where a record has no id of its own; and where there is a window."""
    queue = await make_queue(f"{topic}.fifo")
    groups: list[str | None] = ["g"] * 3
    first = await placed(
        machine, queue, Batch(payloads=[b"x", b"x", b"y"], dedupe_ids=["own", None, None], groups=groups)
    )
    again = await placed(machine, queue, Batch(payloads=[b"y", b"z", b"x"], groups=groups))
    assert (first.duplicates, again.seqs, again.duplicates) == ([], [first.seqs[2], 4, first.seqs[1]], [0, 2])
    off = await make_queue(f"{topic}.off.fifo", dedupe_window_ms=0)
    assert await machine.enqueue(off, Batch(payloads=[b"x", b"x"], dedupe_ids=["a", "a"], groups=["g", "g"])) == [1, 2]


async def test_a_duplicate_of_a_job_that_is_done_changes_nothing(
    queue: Policy, connect: Callable[[], Awaitable[Session]]
) -> None:
    db = await connect()
    await write(db, queue, ("a", "1"))
    (job,) = await take(db, queue)
    before = await events(db, queue, 1)
    assert (await write(db, queue, ("a", "2"))).duplicates == [0]
    assert await events(db, queue, 1) == before
    assert await consumer.ack(db, queue.topic, [held(job)]) == {0}
