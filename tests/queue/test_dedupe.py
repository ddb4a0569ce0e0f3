"""Dedupe ids and idempotency keys: what was enqueued before is not enqueued again. docs/semantics.md, section 8."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.base.db.pool import Pools
from app.kernel.claim import consumer
from app.kernel.enqueue import producer
from app.kernel.enqueue.producer import Placement, Windows
from app.kernel.model import Batch, Connection
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, events, held, take, until
from tests.queue.tallies import tallied

MakeQueue = Callable[..., Awaitable[Policy]]
HOUR_MS = 3_600_000


async def write_all(
    db: Connection, policy: Policy, batches: Sequence[Batch], keys: Sequence[str | None], *, ids_ms: int = HOUR_MS
) -> list[Placement]:
    """Enqueue several callers' batches in one statement."""
    for made in batches:
        lanes = sorted(made.lanes(), key=lambda lane: (lane.tenant, lane.priority))
        await producer.add_lanes(db, policy.topic, lanes)
    windows = Windows(ids_ms, policy.config.idempotency_window_ms)
    return await producer.enqueue_deduped(
        db, policy.topic, policy.budget, batches, keys, windows=windows, ttl_ms=policy.config.ttl_ms
    )


async def write(
    db: Connection,
    policy: Policy,
    *records: tuple[str | None, str],
    once: str | None = None,
    ids_ms: int = HOUR_MS,
    **columns: object,
) -> Placement:
    """Enqueue records with these dedupe ids and payloads."""
    ids, payloads = zip(*records, strict=True)
    made = Batch(payloads=[p.encode() for p in payloads], dedupe_ids=list(ids), **columns)  # type: ignore[arg-type]
    (placed,) = await write_all(db, policy, [made], [once], ids_ms=ids_ms)
    return placed


async def over(db: Connection, policy: Policy, table: str, one: str) -> None:
    """Wait until the window of an id or a key has passed, by the database's clock."""
    name = {"dedupe": "dedupe_id", "idempotency": "key"}[table]
    query = f"SELECT expires_at < clock_timestamp() FROM holdfast.{table} WHERE topic_id = $1 AND {name} = $2"

    async def passed() -> bool:
        return bool(await db.fetchval(query, policy.topic.id, one))

    await until(passed, "the window passes")


async def test_a_known_id_answers_the_first_job_and_inserts_nothing(db: Session, queue: Policy) -> None:
    """In one batch too: the first of several counts."""
    first = await write(db, queue, ("a", "1"), ("b", "2"), (None, "3"))
    assert (first.seqs, first.duplicates, first.new, first.head_seq, first.ready) == ([1, 2, 3], [], 3, 3, 3)
    again = await write(db, queue, ("b", "4"), ("c", "5"), ("a", "6"))
    assert (again.seqs, again.duplicates, again.new, again.ready) == ([2, 4, 1], [0, 2], 1, 1)
    only = await write(db, queue, ("a", "7"))
    assert (only.seqs, only.duplicates, only.new, only.head_seq) == ([1], [0], 0, 4)
    assert [(job.seq, job.payload) for job in await take(db, queue, 10)] == [
        (1, b"1"), (2, b"2"), (3, b"3"), (4, b"5"),
    ]  # fmt: skip
    assert await events(db, queue, 1) == ["enqueued", "claimed"]
    placed = await write(db, queue, ("d", "1"), ("e", "2"), ("d", "3"), (None, "4"), ("e", "5"), ("d", "6"))
    assert (placed.seqs, placed.duplicates) == ([5, 6, 5, 7, 6, 5], [2, 4, 5])
    assert [job.payload for job in await take(db, queue, 10)] == [b"1", b"2", b"4"]
    assert await tallied(db, queue)


async def test_it_does_so_after_the_job_is_done(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"))
    (job,) = await take(db, queue)
    assert await consumer.ack(db, queue.topic, [held(job)]) == {0}
    again = await write(db, queue, ("a", "2"))
    assert (again.seqs, again.duplicates) == ([1], [0])
    assert await take(db, queue) == []
    assert await tallied(db, queue)


async def test_every_column_stays_with_its_record(db: Session, queue: Policy) -> None:
    await write(db, queue, ("b", "x"))
    await write(
        db, queue, ("a", "1"), ("b", "2"), ("c", "3"),
        tags=["ta", "tb", "tc"], metadata=['{"n":1}', '{"n":2}', '{"n":3}'], priorities=[1, 2, 3],
        keys=["ka", "kb", "kc"], content_types=["text/a", "text/b", "text/c"],
    )  # fmt: skip
    jobs = await take(db, queue, 10)
    assert [(job.payload, job.tag, job.metadata, job.key, job.content_type) for job in jobs] == [
        (b"3", "tc", '{"n":3}', "kc", "text/c"),
        (b"1", "ta", '{"n":1}', "ka", "text/a"),
        (b"x", None, None, None, None),
    ]


async def test_tenants_and_groups_keep_their_ids_apart(db: Session, queue: Policy) -> None:
    columns: dict[str, Any] = {"tenants": ["t", None, "t", None], "groups": [None, None, "g", "g"]}
    first = await write(db, queue, *[("a", "x")] * 4, **columns)
    assert (first.duplicates, first.new) == ([], 4)
    again = await write(db, queue, *[("a", "y")] * 4, **columns)
    assert (again.seqs, again.duplicates) == (first.seqs, [0, 1, 2, 3])
    assert (await write(db, queue, ("a", "z"), groups=["h"])).duplicates == []


async def test_topics_keep_their_ids_apart_and_one_made_anew_knows_none(
    db: Session, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    old, other = await make_queue(topic), await make_queue(f"{topic}-other")
    await write(db, old, ("a", "1"), once="k")
    assert (await write(db, other, ("a", "1"), once="k")).new == 1
    await store.delete(pools.rest, topic, if_empty=False)
    assert await db.fetchval("SELECT count(*) FROM holdfast.dedupe WHERE topic_id = $1", old.topic.id) == 0
    anew = await make_queue(topic)
    assert (await write(db, anew, ("a", "2"), once="k")).new == 1


async def test_when_the_window_is_over_the_next_one_is_the_first(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), ids_ms=1)
    await over(db, queue, "dedupe", "a")
    again = await write(db, queue, ("a", "2"), ("a", "3"))
    assert (again.seqs, again.duplicates) == ([2, 2], [1])
    assert (await write(db, queue, ("a", "4"))).seqs == [2]


async def test_with_keys_too(db: Session, queue: Policy) -> None:
    """A first record may update a job that waits: its id stands for that job. A duplicate updates nothing."""
    await write(db, queue, (None, "1"), keys=["k"])
    second = await write(db, queue, ("a", "2"), ("a", "3"), ("b", "4"), keys=["k", "k", "l"])
    assert (second.seqs, second.updated, second.duplicates) == ([1, 1, 2], [True, False, False], [1])
    third = await write(db, queue, ("a", "5"), ("c", "6"), ("d", "7"), keys=["k", "k", "k"])
    assert (third.seqs, third.updated, third.duplicates, third.new) == ([1, 1, 1], [False, True, True], [0], 0)
    assert [(job.seq, job.payload) for job in await take(db, queue, 10)] == [(1, b"7"), (2, b"4")]
    assert await tallied(db, queue)


async def test_a_repeated_batch_answers_what_the_first_did(db: Session, queue: Policy) -> None:
    first = await write(db, queue, ("a", "1"), (None, "2"), ("a", "3"), once="k")
    assert (first.seqs, first.duplicates, first.repeated) == ([1, 2, 1], [2], False)
    again = await write(db, queue, (None, "other"), ("z", "new"), once="k")
    assert (again.seqs, again.repeated, again.new, again.ready) == ([1, 2, 1], True, 0, 0)
    assert (await write(db, queue, ("z", "free"))).duplicates == [], "a repeated batch keeps no ids"
    assert await tallied(db, queue)


async def test_several_callers_in_one_statement(db: Session, queue: Policy) -> None:
    """Each with its own share, whatever the others are."""
    await write(db, queue, ("known", "0"), once="known")
    batches = [
        Batch(payloads=[b"1", b"2"], dedupe_ids=["a", "known"]),
        Batch(payloads=[b"3"], dedupe_ids=["b"]),
        Batch(payloads=[b"4", b"5", b"6"], dedupe_ids=["b", "a"]),
        Batch(payloads=[b"7"]),
        Batch(payloads=[b"8", b"9"], tags=["t", "u"]),
    ]
    placed = await write_all(db, queue, batches, [None, "known", "new", "new", None])
    assert [(one.seqs, one.duplicates, one.repeated) for one in placed] == [
        ([2, 1], [1], False),
        ([1], [0], True),
        ([3, 2, 4], [1], False),
        ([3, 2, 4], [0], True),
        ([5, 6], [], False),
    ]
    assert (placed[0].ready, sum(one.ready for one in placed), sum(one.new for one in placed)) == (5, 5, 5)
    assert [(job.payload, job.tag) for job in await take(db, queue, 10)] == [
        (b"0", None), (b"1", None), (b"4", None), (b"6", None), (b"8", "t"), (b"9", "u"),
    ]  # fmt: skip
    assert await tallied(db, queue)


async def test_when_its_keys_window_is_over_a_batch_is_new(db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, idempotency_window_ms=1)
    await write(db, queue, (None, "1"), once="k")
    await over(db, queue, "idempotency", "k")
    again = await write(db, queue, (None, "2"), (None, "3"), once="k")
    assert (again.seqs, again.repeated) == ([2, 3], False)


async def test_ids_are_forgotten_after_their_window(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), ("b", "2"), ("c", "3"), ids_ms=1)
    await over(db, queue, "dedupe", "c")
    await write(db, queue, ("d", "4"), ("c", "5"))
    mine = "SELECT array_agg(dedupe_id ORDER BY dedupe_id) FROM holdfast.dedupe WHERE topic_id = $1"
    assert await producer.sweep_dedupe(db, 1) == 1
    while await producer.sweep_dedupe(db, 1_000):
        pass
    assert await db.fetchval(mine, queue.topic.id) == ["c", "d"]
