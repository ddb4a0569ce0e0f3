"""Dedupe ids and idempotency keys under rivals: one job of an id, one batch of a key, and all answers agree."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.errors import Throttled
from app.kernel.enqueue import producer
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Seq
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import held, take
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
    async with rivals.first():
        assert (await write(rivals.one, queue, ("a", "1"))).seqs == [1]
        late = await rivals.behind(write(rivals.other, queue, ("a", "2"), ("b", "3")))
    second = await late
    assert (second.seqs, second.duplicates) == ([1, 2], [0])
    assert [job.payload for job in await take(rivals.one, queue, 10)] == [b"1", b"3"]
    assert await tallied(rivals.one, queue)


async def test_the_second_is_the_first_where_that_is_rolled_back(queue: Policy, rivals: Rivals) -> None:
    async with rivals.first(commits=False):
        await write(rivals.one, queue, ("a", "1"), once="k")
        late = await rivals.behind(write(rivals.other, queue, ("a", "2")))
        again = asyncio.create_task(write(rivals.observer, queue, ("b", "3"), once="k"))
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
    async with rivals.first(commits=commits):
        assert (await write(rivals.one, queue, ("a", "1"))).seqs == [2]
        late = await rivals.behind(write(rivals.other, queue, ("a", "2")))
    second = await late
    assert (second.seqs, second.duplicates) == (([2], [0]) if commits else ([3], []))
    assert [job.payload for job in await take(rivals.one, queue, 10)] == [b"old", b"1" if commits else b"2"]


async def test_ids_in_any_order_do_not_deadlock(queue: Policy, rivals: Rivals) -> None:
    """The second waits with its first id; had it another one before, the first would wait for it."""
    async with rivals.first():
        await write(rivals.one, queue, ("c", "1"))
        late = await rivals.behind(write(rivals.other, queue, ("d", "2"), ("c", "2"), ("b", "2")))
        await write(rivals.one, queue, ("d", "1"))
    assert (await late).duplicates == [0, 1]


async def test_what_the_sweep_takes_out_meanwhile_is_new(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ids_ms=1)
    await over(rivals.one, queue, "dedupe", "a")
    async with rivals.first():
        while await producer.sweep_dedupe(rivals.one, 1_000):
            pass
        late = await rivals.behind(write(rivals.other, queue, ("a", "2")))
    assert ((await late).seqs, (await late).duplicates) == ([2], [])
    assert (await write(rivals.one, queue, ("a", "3"))).seqs == [2]


async def test_the_sweep_waits_for_nobody_and_leaves_what_was_taken_over(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ids_ms=1)
    await over(rivals.one, queue, "dedupe", "a")
    async with rivals.first():
        await write(rivals.one, queue, ("a", "2"))
        while await producer.sweep_dedupe(rivals.other, 1_000):
            pass
    assert (await write(rivals.other, queue, ("a", "3"))).seqs == [2]


async def test_a_first_one_that_waits_for_its_key_keeps_its_id_for_that_job(queue: Policy, rivals: Rivals) -> None:
    """Ids are locked before keys: whoever waits for the id has no key in hand."""
    async with rivals.first():
        await write_keyed(rivals.one, queue, ("k", "1"))
        first = await rivals.behind(write(rivals.other, queue, ("a", "2"), keys=["k"]))
        second = asyncio.create_task(write(rivals.observer, queue, ("a", "3"), ("b", "4"), keys=["k", None]))
    assert ((await first).seqs, (await first).updated, (await first).duplicates) == ([1], [True], [])
    assert ((await second).seqs[0], (await second).duplicates) == (1, [0])
    jobs = await take(rivals.one, queue, 10)
    assert sorted(job.payload for job in jobs) == [b"2", b"4"]
    assert await tallied(rivals.one, queue)


async def test_a_repeated_batch_waits_for_the_first(queue: Policy, rivals: Rivals) -> None:
    async with rivals.first():
        await write(rivals.one, queue, (None, "1"), (None, "2"), once="k")
        late = await rivals.behind(write(rivals.other, queue, ("a", "3"), once="k"))
    assert ((await late).seqs, (await late).repeated) == ([1, 2], True)
    assert (await write(rivals.one, queue, ("a", "4"))).duplicates == []


async def test_who_waits_for_a_topic_that_goes_keeps_nothing(
    queue: Policy, pools: Pools, rivals: Rivals, make_queue: MakeQueue
) -> None:
    """The id is one of the topic that is made anew."""
    async with rivals.first():
        await write(rivals.one, queue, ("a", "1"))
        going = await rivals.behind(store.delete(pools.rest, queue.topic.name, if_empty=False))
        late = asyncio.create_task(write(rivals.other, queue, ("a", "2")))
    assert await going is True
    with pytest.raises(asyncpg.PostgresError):
        await late
    kept = "SELECT count(*) FROM holdfast.dedupe WHERE topic_id = $1"
    assert await rivals.observer.fetchval(kept, queue.topic.id) == 0
    anew = await make_queue(queue.topic.name)
    assert (await write(rivals.one, anew, ("a", "3"))).duplicates == []


async def test_fifty_duplicates_make_one_job(queue: Policy, processes: list[Machine], pools: Pools) -> None:
    """Round after round: five ids in an order of each producer's own, one of them twice in its batch. In every other
    round, the ids have been used before, and their window is over."""
    dice = random.Random(7)
    seen: set[Seq] = set()

    async def produce(machine: Machine, ids: list[str]) -> dict[str, Seq]:
        mine: list[str | None] = [*dice.sample(ids, 5), dice.choice(ids)]
        made = await placed(machine, queue, Batch(payloads=[b"1"] * 6, dedupe_ids=mine))
        answer: dict[str, Seq] = {}
        for dedupe_id, seq in zip(mine, made.seqs, strict=True):
            assert answer.setdefault(str(dedupe_id), seq) == seq, "one id, two jobs in one answer"
        assert 1 <= len(made.duplicates) <= 6
        return answer

    for turn in range(4):
        ids = [f"i{turn}.{n}" for n in range(5)]
        if turn % 2:
            async with pools.hot.acquire() as db:
                seen |= set((await write(db, queue, *((one, "old") for one in ids), ids_ms=1)).seqs)
                await over(db, queue, "dedupe", ids[-1])
        answers = await asyncio.gather(*(produce(processes[n % 4], ids) for n in range(50)))
        assert all(answer == answers[0] for answer in answers)
        assert seen.isdisjoint(answers[0].values()), "the window was over"
        seen |= set(answers[0].values())
    assert {job.seq for job in await processes[0].claim(queue, 100)} == seen
    assert [error for machine in processes for error in machine.log.refused] == []
    counted = [machine.engine.metrics.topic(queue.topic.name) for machine in processes]
    assert sum(one.enqueued.value for one in counted) == 4 * 5
    assert sum(one.duplicates.value for one in counted) == 4 * 50 * 6 - 4 * 5


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
    topic: str, make_queue: MakeQueue, processes: list[Machine], pools: Pools
) -> None:
    """Keyed ones, deduped ones and batches with keys of their own, through two processes, while jobs leave."""
    queue = await make_queue(topic, max_depth=8, idempotency_window_ms=600_000)
    dice = random.Random(11)
    jobs_of: dict[str, set[Seq]] = {}

    async def produce(n: int) -> None:
        for _ in range(12):
            mine: list[str | None] = [f"i{dice.randrange(40)}", None, f"i{dice.randrange(40)}"]
            made = Batch(payloads=[b"%d" % n] * 3, dedupe_ids=mine, keys=[None, f"k{n}", None])
            try:
                found = await placed(processes[n % 2], queue, made, dice.choice([None, f"b{dice.randrange(9)}"]))
            except Throttled:
                continue
            for dedupe_id, seq in zip(mine, found.seqs, strict=True) if not found.repeated else ():
                if dedupe_id is not None:
                    jobs_of.setdefault(dedupe_id, set()).add(seq)

    async def work(stop: asyncio.Event) -> None:
        while not stop.is_set():
            jobs = await processes[0].claim(queue, 3, wait=0.01)
            await processes[1].engine.settlements.ack(queue, [held(job) for job in jobs])
            assert await pools.rest.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", topic) <= 8

    stop = asyncio.Event()
    worker = asyncio.create_task(work(stop))
    await asyncio.gather(*(produce(n) for n in range(8)))
    stop.set()
    await worker
    assert {dedupe_id for dedupe_id, seqs in jobs_of.items() if len(seqs) > 1} == set()
    assert len(jobs_of) > 10
    assert await tallied(pools.hot, queue)


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
