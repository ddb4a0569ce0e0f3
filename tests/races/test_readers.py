"""Readers with cursors, while others append, enqueue, roll back and are slow to commit: nothing is missed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.features.logs.diffs import Diffs
from app.kernel.enqueue.producer import Placement
from app.kernel.logs import log
from app.kernel.logs.log import AppendOutcome, AppendPart, Ask, Limits
from app.kernel.model import Batch, Connection
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.engine.machines import Machine
from tests.queue.calls import batch, put, until
from tests.races.rivals import Rivals

WRITERS, READERS, ROUNDS = 16, 4, 12


@pytest.fixture
async def a_log(topic: str, pools: Pools, policies: Policies) -> Policy:
    """A log of the test's own."""
    await store.put(pools.rest, topic, resolve(topic, AskedSettings(type="log")))
    return await policies.get(topic)


def records(count: int, who: str) -> Batch:
    return Batch(payloads=[b'"%b"' % f"{who}.{i}".encode() for i in range(count)])


async def append(db: Connection, policy: Policy, count: int, key: str | None = None) -> log.AppendResult:
    part = AppendPart(count, 4 * count, key)
    (share,) = await log.append(db, policy.topic, Batch(payloads=[b"1234"] * count), [part], Limits(window_ms=60_000))
    return share


async def test_readers_see_each_record_once_and_in_order(a_log: Policy, processes: list[Machine]) -> None:
    """Some writers are transactions that stay open a while, and some of those are rolled back."""
    sent: dict[int, bytes] = {}
    done = asyncio.Event()
    dice = random.Random(7)

    async def writer(n: int) -> None:
        machine = processes[n % 4]
        for round_ in range(ROUNDS):
            mine = records(dice.randint(1, 5), f"{n}-{round_}")
            if n % 4:
                share = await machine.engine.logs.append(a_log, mine, sum(map(len, mine.payloads)), None)
            else:
                async with machine.pools.hot.acquire() as db:
                    transaction = db.transaction()
                    await transaction.start()
                    parts = [AppendPart(len(mine), sum(map(len, mine.payloads)))]
                    (share,) = await log.append(db, a_log.topic, mine, parts, Limits())
                    await asyncio.sleep(dice.uniform(0, 0.01))
                    if round_ % 3 == 0:
                        await transaction.rollback()
                        continue
                    await transaction.commit()
            assert share.last_seq - share.first_seq + 1 == len(mine)
            sent.update(zip(range(share.first_seq, share.last_seq + 1), mine.payloads, strict=True))

    async def reader(n: int) -> dict[int, bytes | None]:
        seen: dict[int, bytes | None] = {}
        at = 0
        while True:
            over = done.is_set()
            diff = await processes[n % 4].engine.core(Diffs).read(a_log, Ask(after=at, limit=7), 0.05)
            assert diff.records.seqs == sorted(diff.records.seqs)
            assert all(seq > at for seq in diff.records.seqs)
            seen.update(zip(diff.records.seqs, diff.records.payloads, strict=True))
            at = diff.records.next_seq
            if over and at == diff.extent.head_seq:
                return seen

    reading = [asyncio.create_task(reader(n)) for n in range(READERS)]
    await asyncio.gather(*(writer(n) for n in range(WRITERS)))
    done.set()
    seen = await asyncio.gather(*reading)
    assert sorted(sent) == list(range(1, len(sent) + 1)), "seqs have no gap, in spite of what was rolled back"
    assert all(one == sent for one in seen)


async def test_an_append_waits_for_one_that_has_not_committed(a_log: Policy, rivals: Rivals) -> None:
    for end in ("commit", "rollback"):
        head = (await log.states(rivals.observer, [(a_log.topic, 0)]))[a_log.topic.name].head_seq
        late = rivals.one.transaction()
        await late.start()
        assert (await append(rivals.one, a_log, 2)).first_seq == head + 1
        waiting = await rivals.behind(append(rivals.other, a_log, 1))
        read = await log.read(rivals.observer, a_log.topic, Ask(after=head), 0)
        assert read is not None
        assert (read[0].head_seq, read[1].seqs) == (head, [])
        await getattr(late, end)()
        assert (await waiting).first_seq == head + (3 if end == "commit" else 1)


async def test_of_those_who_share_a_key_one_writes_whatever_becomes_of_it(a_log: Policy, rivals: Rivals) -> None:
    async with rivals.first(commits=False):
        assert (await append(rivals.one, a_log, 2, "k")).outcome is AppendOutcome.WRITTEN
        waiting = await rivals.behind(append(rivals.other, a_log, 2, "k"))
    second = await waiting
    assert (second.outcome, second.first_seq) == (AppendOutcome.WRITTEN, 1)
    third = await append(rivals.one, a_log, 1, "k")
    assert (third.outcome, third.first_seq, third.last_seq) == (AppendOutcome.DEDUPED, 1, 2)


async def test_fifty_writers_with_one_key_make_one_batch(a_log: Policy, processes: list[Machine]) -> None:
    shares = await asyncio.gather(
        *(processes[i % 4].engine.logs.append(a_log, records(3, str(i)), 10, "k") for i in range(50))
    )
    assert {(share.first_seq, share.last_seq) for share in shares} == {(1, 3)}
    assert sum(share.outcome is AppendOutcome.WRITTEN for share in shares) == 1


async def test_callers_of_one_statement_have_each_their_own_outcome(a_log: Policy, rivals: Rivals) -> None:
    whole = Batch(payloads=[b"%d" % i for i in range(8)])
    parts = [AppendPart(2, 2, "a"), AppendPart(1, 1), AppendPart(2, 2, "a"), AppendPart(3, 3)]
    shares = await log.append(rivals.one, a_log.topic, whole, parts, Limits(records=5, rejects=True, window_ms=60_000))
    assert [(share.outcome.value, share.first_seq, share.last_seq) for share in shares] == [
        ("written", 1, 2),
        ("written", 3, 3),
        ("deduped", 1, 2),
        ("full", 0, 0),
    ]
    read = await log.read(rivals.one, a_log.topic, Ask(), 0)
    assert read is not None
    assert read[1].payloads == [b"0", b"1", b"2"]


async def test_a_deletion_of_the_topic_waits_for_an_append(a_log: Policy, machine: Machine, rivals: Rivals) -> None:
    async with rivals.first():
        await append(rivals.one, a_log, 2, "k")
        deleting = await rivals.behind(store.delete(machine.pools.rest, a_log.topic.name, if_empty=False))
    assert await deleting is True
    for table in ("records", "log_state", "idempotency"):
        left = f"SELECT count(*) FROM holdfast.{table} WHERE topic = $1"
        assert await rivals.observer.fetchval(left, a_log.topic.name) == 0
    with pytest.raises(asyncpg.UndefinedObjectError):
        await append(rivals.one, a_log, 1)


async def test_an_engine_that_did_not_hear_that_a_log_was_made_anew_writes_to_the_new_one(
    a_log: Policy, start: Callable[[], Machine], pools: Pools
) -> None:
    there, name = start(), a_log.topic.name
    await there.engine.logs.append(a_log, records(3, "old"), 9, None)
    await store.delete(pools.rest, name, if_empty=False)
    await store.put(pools.rest, name, resolve(name, AskedSettings(type="log")))
    assert (await there.engine.logs.append(a_log, records(1, "new"), 3, None)).first_seq == 1


@pytest.mark.parametrize("commits", [True, False])
async def test_a_reader_of_a_queue_waits_for_a_job_that_commits_late(
    commits: bool, queue: Policy, start: Callable[[], Machine], rivals: Rivals
) -> None:
    here = start()
    await put(rivals.one, queue, batch())
    async with rivals.first(commits=commits):
        await put(rivals.one, queue, batch(2))  # 2, 3
        await put(rivals.other, queue, batch())  # 4, committed
        reading = asyncio.create_task(here.engine.core(Diffs).once(queue, Ask(after=1)))

        async def looked() -> bool:
            return here.log.count("drawers") >= 3

        await until(looked, "the reader waits for the writer")
        assert here.log.count("read_jobs") == 0
    diff = await reading
    assert diff.records.seqs == ([2, 3, 4] if commits else [4])
    assert diff.records.next_seq == diff.extent.head_seq == 4


async def test_a_reader_of_a_queue_is_given_what_is_proven_when_a_writer_does_not_end(
    queue: Policy, machine: Machine, rivals: Rivals
) -> None:
    await put(rivals.one, queue, batch(3))
    assert (await machine.engine.core(Diffs).once(queue, Ask())).records.seqs == [1, 2, 3]
    async with rivals.first():
        await put(rivals.one, queue, batch())
        await put(rivals.other, queue, batch())
        diff = await machine.engine.core(Diffs).once(queue, Ask(after=1))
        assert (diff.records.seqs, diff.records.next_seq, diff.extent.head_seq) == ([2, 3], 3, 5)
    assert (await machine.engine.core(Diffs).once(queue, Ask(after=3))).records.seqs == [4, 5]


@pytest.mark.parametrize("lower", ["seqs", "transactions"])
async def test_a_follower_of_a_queue_misses_no_job_that_commits_late(
    lower: str, queue: Policy, machine: Machine, rivals: Rivals
) -> None:
    """Commits come neither in the order of seqs, nor in that of transaction ids."""
    await put(rivals.one, queue, batch())
    early, late = rivals.other.transaction(), rivals.one.transaction()
    await early.start()
    if lower == "transactions":
        await rivals.other.execute("SELECT pg_current_xact_id()")
    await late.start()
    await put(rivals.one, queue, batch(2))  # 2, 3
    await put(rivals.other, queue, batch())  # 4
    await early.commit()
    before = (await machine.engine.core(Diffs).once(queue, Ask(), 0.05)).records
    await late.commit()
    after = (await machine.engine.core(Diffs).once(queue, Ask(after=before.next_seq))).records
    assert [*before.seqs, *after.seqs] == [1, 2, 3, 4], "a follower has missed a job"


async def test_fifty_enqueues_with_one_key_make_one_batch(
    topic: str, make_queue: Callable[..., Awaitable[Policy]], processes: list[Machine]
) -> None:
    queue = await make_queue(topic)
    answers = await asyncio.gather(
        *(processes[i % 4].engine.enqueues.place(queue, records(2, str(i)), 2, "k") for i in range(50))
    )
    placed = [answer for answer in answers if isinstance(answer, Placement)]
    assert [answer.seqs for answer in placed] == [[1, 2]] * 50
    assert sum(not answer.repeated for answer in placed) == 1
