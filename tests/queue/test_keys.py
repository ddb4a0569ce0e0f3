"""Jobs with keys: one of a key waits at a time, and is updated in place. docs/semantics.md, section 7."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asyncpg.pgproto.pgproto import UUID

from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Job
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Lease, Spent
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, events, held, lease_ended, outlived, place, row, take
from tests.queue.tallies import tallied

MakeQueue = Callable[..., Awaitable[Policy]]


async def write(db: Session, policy: Policy, *records: tuple[str | None, str], **columns: object) -> Placement:
    """Enqueue records with these keys and payloads."""
    keys, payloads = zip(*records, strict=True)
    made = Batch(payloads=[p.encode() for p in payloads], keys=list(keys), **columns)  # type: ignore[arg-type]
    return await place(db, policy, made)


async def give_back(db: Session, policy: Policy, job: Job, **how: object) -> tuple[set[int], set[int]]:
    """Nack a job that has a key: as done, as ended."""
    returned = await consumer.nack(db, policy.topic, policy.budget, [held(job)], [Return(**how)])  # type: ignore[arg-type]
    assert returned.keyed == {0}
    return (await consumer.nack_keyed(db, policy.topic, [held(job)], [Return(**how)]))[:2]  # type: ignore[arg-type]


async def test_a_waiting_job_is_updated_in_place(db: Session, queue: Policy) -> None:
    first = await write(db, queue, ("a", "one"), ("b", "other"))
    assert (first.seqs, first.updated, first.head_seq, first.ready) == ([1, 2], [False, False], 2, 2)
    second = await write(db, queue, ("a", "three"), metadata=['{"n":3}'])
    assert (second.seqs, second.updated, second.head_seq, second.ready, second.touched) == ([1], [True], 2, 0, 1)
    assert await events(db, queue, 1) == ["enqueued", "updated"]
    jobs = await take(db, queue, 10)
    assert [(job.seq, job.payload, job.metadata, job.key) for job in jobs] == [
        (1, b"three", '{"n":3}', "a"),
        (2, b"other", None, "b"),
    ]
    assert await tallied(db, queue)


async def test_of_several_in_a_batch_the_last_one_counts(db: Session, queue: Policy) -> None:
    placed = await write(db, queue, ("a", "1"), (None, "2"), ("b", "3"), ("a", "4"), (None, "5"), ("a", "6"))
    assert placed.seqs == [4, 1, 2, 4, 3, 4]
    assert placed.updated == [False, False, False, True, False, True]
    again = await write(db, queue, ("a", "7"), ("c", "8"), ("a", "9"))
    assert (again.seqs, again.updated) == ([4, 5, 4], [True, False, True])
    assert [(job.seq, job.payload) for job in await take(db, queue, 10)] == [
        (1, b"2"), (2, b"3"), (3, b"5"), (4, b"9"), (5, b"8"),
    ]  # fmt: skip
    placed = await write(db, queue, ("d", "1"), ("d", "2"), ("d", "3"), tenants=["t", None, "t"])
    assert (placed.seqs, placed.updated) == ([7, 6, 7], [False, False, True]), "tenants keep their keys apart"
    assert {job.payload for job in await take(db, queue, 10)} == {b"2", b"3"}
    assert await tallied(db, queue)


async def test_a_good_lease_is_left_alone(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"))
    (job,) = await take(db, queue)
    before = await row(db, queue, 1)
    assert (await write(db, queue, ("a", "2"))).seqs == [2]
    assert await row(db, queue, 1) == before
    assert (await write(db, queue, ("a", "3"))).seqs == [2]
    assert await consumer.ack(db, queue.topic, [held(job)]) == {0}
    assert [(job.seq, job.payload) for job in await take(db, queue, 10)] == [(2, b"3")]
    assert await tallied(db, queue)


async def test_a_lease_that_has_ended_counts_as_waiting(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"))
    (job,) = await take(db, queue, lease_ms=100)
    await lease_ended(db, queue, job)
    placed = await write(db, queue, ("a", "longer"))
    assert (placed.seqs, placed.updated, placed.due, placed.touched) == ([1], [True], 1, 0)
    found = await row(db, queue, 1)
    assert found is not None
    assert (found["state"], found["lease_id"], found["node"], found["deliveries"]) == ("scheduled", None, None, 1)
    assert await consumer.ack(db, queue.topic, [held(job)]) == set()
    assert await events(db, queue, 1) == ["enqueued", "claimed", "updated"]
    assert [(job.payload, job.deliveries) for job in await take(db, queue, 10)] == [(b"longer", 2)]
    assert await tallied(db, queue)


async def test_a_job_whose_last_delivery_has_ended_is_not_written_into(
    db: Session, topic: str, make_queue: MakeQueue
) -> None:
    """It is on its way out, and would take the new payload with it."""
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await write(db, queue, ("a", "1"))
    (job,) = await take(db, queue, lease_ms=100)
    await lease_ended(db, queue, job)
    assert (await write(db, queue, ("a", "2"))).seqs == [2]
    assert await exits.end_superseded(db, queue.topic, queue.budget, Lease(), 10) == (0, Lease("", "a", 1))
    assert await exits.fail(db, queue.topic, queue.budget, [Spent(1)]) == {0}
    assert [job.payload for job in await take(db, queue, 10)] == [b"2"]


async def test_a_delayed_job_is_updated_and_keeps_its_time(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), delays_ms=[60_000])
    before = await row(db, queue, 1)
    assert (await write(db, queue, ("a", "2"))).updated == [True]
    after = await row(db, queue, 1)
    assert before is not None
    assert after is not None
    assert (after["state"], after["visible_at"], after["payload"]) == ("scheduled", before["visible_at"], b"2")


async def test_what_has_outlived_its_time_is_not_written_into_and_ends_nobody(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "old"))
    (old,) = await take(db, queue)
    await write(db, queue, ("a", "new"), ("b", "1"), ttls_ms=[1, 1])
    await outlived(db, queue)
    assert (await write(db, queue, ("b", "2"))).seqs == [4]
    assert await give_back(db, queue, old) == ({0}, set())
    for seq in (2, 3):
        assert await events(db, queue, seq) == ["enqueued", "expired"]
    assert {job.payload for job in await take(db, queue, 10)} == {b"old", b"2"}
    assert await tallied(db, queue)


async def test_a_waiting_job_ends_where_a_newer_one_is_returned(db: Session, queue: Policy) -> None:
    """By their payloads' age, whatever the order in which they are returned."""
    await write(db, queue, ("a", "old"))
    (old,) = await take(db, queue)
    await write(db, queue, ("a", "new"))
    (new,) = await take(db, queue)
    assert await give_back(db, queue, old) == ({0}, set())
    assert await give_back(db, queue, new, error="no", refunds=None) == ({0}, set())
    assert await events(db, queue, 1) == ["enqueued", "claimed", "released", "superseded"]
    assert await events(db, queue, 2) == ["enqueued", "claimed", "released"]
    found = await row(db, queue, 2)
    assert found is not None
    assert (found["last_error"], found["deliveries"]) == ("no", 0)
    assert [job.payload for job in await take(db, queue, 10)] == [b"new"]
    assert await tallied(db, queue)


async def test_a_mixed_batch_of_returns(db: Session, queue: Policy) -> None:
    await write(db, queue, ("b", "1"), (None, "2"), ("a", "3"))
    jobs = sorted(await take(db, queue, 3), key=lambda job: job.seq)
    await write(db, queue, ("b", "4"))
    whose, how = [held(job) for job in jobs], [Return(delay_ms=60_000, error="no")] * 3
    returned = await consumer.nack(db, queue.topic, queue.budget, whose, how)
    assert (returned.done, returned.keyed, returned.spent) == ({1}, {0, 2}, {})
    assert (await consumer.nack_keyed(db, queue.topic, whose, how))[:2] == ({0, 2}, {0})
    assert await consumer.nack_keyed(db, queue.topic, whose, how) == (set(), set(), set(), [])
    assert await events(db, queue, 1) == ["enqueued", "claimed", "superseded"], "a newer one waits"
    assert [job.payload for job in await take(db, queue, 10)] == [b"4"]
    assert await tallied(db, queue)


async def sweep(db: Session, policy: Policy) -> int:
    """A whole sweep, a lease at a time."""
    count = 0
    last: Lease | None = Lease()
    while last is not None:
        ended, last = await exits.end_superseded(db, policy.topic, policy.budget, last, 1)
        count += ended
    return count


async def test_the_sweep_ends_what_is_older(db: Session, queue: Policy) -> None:
    await write(db, queue, ("older is out", "1"), ("older waits", "2"), ("good", "3"))
    one, two, three = sorted(await take(db, queue, 3), key=lambda job: job.seq)
    await write(db, queue, ("older waits", "4"))
    (four,) = await take(db, queue)
    assert await give_back(db, queue, two) == ({0}, set())
    await write(db, queue, ("older is out", "5"), ("good", "6"))
    assert await sweep(db, queue) == 0  # all leases are good
    await consumer.extend(db, queue.topic, [held(one), held(four)], [1, 1])
    for job in (one, four):
        await lease_ended(db, queue, job)
    assert await sweep(db, queue) == 2
    assert await sweep(db, queue) == 0
    assert await events(db, queue, 1) == ["enqueued", "claimed", "extended", "superseded"]
    assert await events(db, queue, 2) == ["enqueued", "claimed", "released", "superseded"]
    assert await tallied(db, queue)
    assert await consumer.ack(db, queue.topic, [held(three)]) == {0}
    assert {job.payload for job in await take(db, queue, 10)} == {b"4", b"5", b"6"}


async def test_dead_letters_may_have_the_same_key(db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    dead = await make_queue(f"{topic}.dead")
    for n in range(2):
        await write(db, queue, ("a", str(n)))
        (job,) = await take(db, queue)
        assert await exits.move_to_dead_letters(
            db, queue.topic, queue.budget, [Spent(job.seq, UUID(job.lease))], dead.topic
        ) == {0}
    letters = await take(db, dead, 10)
    assert [(letter.key, letter.payload) for letter in letters] == [("a", b"0"), ("a", b"1")]
    how = [Return(), Return()]
    returned = await consumer.nack(db, dead.topic, dead.budget, [held(letter) for letter in letters], how)
    assert returned.done == {0, 1}
    assert (await write(db, dead, ("a", "own"))).updated == [False]
    assert len(await take(db, dead, 10)) == 3


async def test_deletion_by_key(db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await write(db, queue, ("a", "failed"))
    (job,) = await take(db, queue)
    await exits.fail(db, queue.topic, queue.budget, [Spent(job.seq, UUID(job.lease))])
    await write(db, queue, ("a", "leased"))
    (job,) = await take(db, queue)
    await write(db, queue, ("a", "ready"), ("b", "another"), ("a", "of a tenant"), tenants=[None, None, "t"])
    gone = await exits.delete_key(db, queue.topic, "", "a", 10)
    assert (gone.count, gone.ready, gone.leased, gone.more) == (3, 1, 1, False)
    assert await consumer.ack(db, queue.topic, [held(job)]) == set()
    assert {job.payload for job in await take(db, queue, 10)} == {b"another", b"of a tenant"}
    for seq in (1, 2, 3):
        assert (await events(db, queue, seq))[-1] == "deleted"
    assert await tallied(db, queue)
