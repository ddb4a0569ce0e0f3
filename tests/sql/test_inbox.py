"""The inbox: plain INSERTs become jobs, in the transaction of who makes them."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import asyncpg
import msgspec
import pytest

from app.base.db.pool import Pools
from app.kernel.claim.walk import Claimer
from app.kernel.engine import Engine
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import DEFAULTS, Defaults, Policy, of_messages
from app.kernel.topics.settings import Chosen, TopicType
from tests.queue.calls import Session, events, lease_ended, put, row, take, until
from tests.queue.tallies import tallied
from tests.sql.conftest import Db, blocked

Columns: TypeAlias = dict[str, object]
MakeQueue = Callable[..., Awaitable[Policy]]
SOON = 1.0  # seconds: docs/semantics.md, section 15

LATER = datetime.now(UTC) + timedelta(hours=2)
RECORDS = [
    ({}, {}),
    ({"tag": "t"}, {"tags": ["t"]}),
    ({"node": "n", "metadata": '{"a":"b"}'}, {"producers": ["n"], "metadata": ['{"a":"b"}']}),
    ({"priority": 7}, {"priorities": [7]}),
    ({"delay_ms": 60_000}, {"delays_ms": [60_000]}),
    ({"run_at": LATER}, {"run_ats": [LATER]}),
    ({"ttl_ms": 5_000, "max_deliveries": 3}, {"ttls_ms": [5_000], "max_deliveries": [3]}),
    ({"ttl_ms": 0}, {"ttls_ms": [0]}),
    ({"content_type": "text/plain"}, {"content_types": ["text/plain"]}),
    ({"content_type": "application/json"}, {}),
    ({"tenant": "acme"}, {"tenants": ["acme"]}),
    ({"user_id": "u"}, {"metadata": ['{"$user_id": "u"}']}),
    ({"user_id": "u", "metadata": '{"a":1}'}, {"metadata": ['{"a": 1, "$user_id": "u"}']}),
]
# What is refused, and what is said.
REFUSED: list[tuple[Columns, str]] = [
    ({"priority": 10}, "priority: 0 to 9"),
    ({"priority": -1}, "priority: 0 to 9"),
    ({"delay_ms": -1}, "delay_ms: 0 to"),
    ({"ttl_ms": -1}, "ttl_ms: 0 to"),
    ({"max_deliveries": 10_001}, "max_deliveries: 0 to 10000"),
    ({"tenant": "x" * 129}, "tenant: 128 characters"),
    ({"group": ""}, "group: 1 to 128"),
    ({"dedupe_id": "x" * 257}, "dedupe_id: 1 to 256"),
    ({"user_id": ""}, "user_id: 1 to 128"),
    ({"webhook": "ftp://host/"}, "webhook: an http"),
    ({"webhook": "https://u:p@host/"}, "webhook: an http"),
    ({"webhook": "https://host/#part"}, "webhook: an http"),
    ({"key": ""}, "key: 1 to 256 characters"),
    ({"tag": "é" * 129}, "tag: 256 bytes"),
    ({"content_type": "json"}, "content_type: type/subtype"),
    ({"payload": b"1", "payload_text": "1"}, "payload or payload_text: one"),
    ({"payload": None}, "payload or payload_text: one"),
    ({"payload": b"1" * 1_048_577}, "payload and metadata: 1 MiB"),
    ({"payload_text": "é" * 600_000}, "payload and metadata: 1 MiB"),
    ({"metadata": '{"a":"' + "x" * 16_384 + '"}'}, "metadata: 16 KiB"),
    ({"payload": b"{"}, "not JSON that can be stored, as application/json"),
    ({"payload": b""}, "not JSON that can be stored"),
    ({"payload": b'"\\u0000"'}, "not JSON that can be stored"),
    ({"payload": b'"\\ud800"'}, "not JSON that can be stored"),
    ({"payload": b'"\xff"'}, "not UTF-8"),
    ({"payload": b"\xff", "content_type": "text/plain"}, "not UTF-8"),
    ({"payload": b"{", "content_type": "application/x+json"}, "as application/x"),
    ({"payload": b"[" * 129 + b"]" * 129}, "nested more than 128"),
    ({"payload": b"[" * 50_000 + b"]" * 50_000}, "not JSON|nested more than"),
    ({"metadata": "[]"}, "metadata is not a JSON object"),
    ({"metadata": "{"}, "metadata is not JSON"),
]


async def insert(db: Db, topic: str, **columns: object) -> None:
    if not columns.keys() & {"payload", "payload_text"}:
        columns["payload"] = b'{"n":1}'
    places = ", ".join(f"${n}" for n in range(2, len(columns) + 2))
    names = ", ".join(f'"{name}"' for name in columns)
    await db.execute(
        f"INSERT INTO holdfast.inbox (topic, {names}) VALUES ($1, {places})",
        topic,
        *columns.values(),
    )


@pytest.mark.parametrize(("columns", "record"), RECORDS, ids="-".join)
async def test_a_row_becomes_what_an_enqueue_makes(
    sql: Db, db: Session, topic: str, make_queue: MakeQueue, *, columns: Columns, record: Columns
) -> None:
    queue = await make_queue(topic, ttl_ms=3_600_000)
    [first] = await put(db, queue, Batch(payloads=[b'{"n":1}'], **record))  # type: ignore[arg-type]
    await insert(sql, topic, **columns)
    one, two = [await row(db, queue, seq) for seq in (first, first + 1)]
    assert one is not None
    assert two is not None
    for name in ("created_at", "updated_at", "visible_at", "expires_at"):
        a, b = one.pop(name), two.pop(name)
        assert (a is None) == (b is None)
        assert a is None or abs(b - a) < timedelta(seconds=30)  # type: ignore[operator]
    for name in ("ctid", "xmin", "seq", "position"):
        one.pop(name)
        two.pop(name)
    assert one == two
    told = await db.fetch("SELECT * FROM holdfast.lease_events WHERE topic_id = $1 ORDER BY seq", queue.topic.id)
    assert {k: v for k, v in told[0].items() if k not in ("at", "tx", "seq", "until")} == {
        k: v for k, v in told[1].items() if k not in ("at", "tx", "seq", "until")
    }
    assert (told[0]["until"] is None) == (told[1]["until"] is None)
    assert await tallied(db, queue)
    assert await db.fetchval("SELECT count(*) FROM holdfast.inbox") == 0


async def test_many_rows_stand_in_their_order(sql: Db, db: Session, queue: Policy) -> None:
    command = await sql.execute(
        "INSERT INTO holdfast.inbox (topic, payload_text) "
        "SELECT $1, json_build_object('n', n, 'pad', repeat('x', 300)) FROM generate_series(1, 20000) n",
        queue.topic.name,
    )
    assert command == "INSERT 0 20000"
    wrong = await db.fetchval(
        "SELECT count(*) FROM holdfast.jobs WHERE topic = $1 AND "
        "(convert_from(payload, 'UTF8')::json->>'n')::bigint <> seq",
        queue.topic.name,
    )
    assert wrong == 0
    assert await tallied(db, queue)


async def test_rows_of_several_topics_and_copy(sql: Db, db: Session, topic: str, make_queue: MakeQueue) -> None:
    one, two = await make_queue(topic + "a"), await make_queue(topic + "b")
    names = [two.topic.name, one.topic.name, two.topic.name]
    await sql.execute(
        "INSERT INTO holdfast.inbox (topic, payload_text, priority) "
        "SELECT t, n, n FROM unnest($1::text[]) WITH ORDINALITY u(t, n)",
        names,
    )
    assert [job.payload for job in await take(db, one, 9)] == [b"2"]
    assert [job.payload for job in await take(db, two, 9)] == [b"3", b"1"]
    lines = "".join(f"{one.topic.name}\t{n}\n" for n in range(3))
    await sql.copy_to_table(
        "inbox", schema_name="holdfast", columns=["topic", "payload_text"], source=io.BytesIO(lines.encode())
    )
    assert [job.payload for job in await take(db, one, 9)] == [b"0", b"1", b"2"]


async def test_a_key_updates_what_waits(sql: Db, db: Session, queue: Policy) -> None:
    await sql.execute(
        "INSERT INTO holdfast.inbox (topic, key, payload_text) VALUES ($1, 'k', '1'), ($1, NULL, '2'), ($1, 'k', '3')",
        queue.topic.name,
    )
    await insert(sql, queue.topic.name, key="k", payload_text="4", metadata='{"a":"b"}')
    jobs = await take(db, queue, 9)
    assert sorted((job.payload, job.key, job.metadata) for job in jobs) == [
        (b"2", None, None),
        (b"4", "k", '{"a":"b"}'),
    ]
    assert await tallied(db, queue)


@pytest.mark.parametrize(("threshold", "jobs"), [(None, 1), (3, 2)])
async def test_a_key_updates_a_job_that_its_topics_max_retries_still_delivers(
    sql: Db, db: Session, pools: Pools, policies: Policies, topic: str, *, threshold: int | None, jobs: int
) -> None:
    """By its topic's own max_retries, which is the threshold where the topic names none."""
    chosen = msgspec.structs.replace(of_messages(topic), max_retries=5, dlq_threshold=threshold)
    await store.put(pools.rest, topic, chosen)
    queue = await policies.queue(topic)
    await insert(sql, topic, key="k", payload_text="1")
    for _ in range(DEFAULTS.dlq_threshold):
        [job] = await take(db, queue, lease_ms=100)
        await lease_ended(db, queue, job)
    await insert(sql, topic, key="k", payload_text="2")
    assert await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", topic) == jobs


async def test_what_is_refused_and_what_only_nearly(sql: Db, db: Session, queue: Policy) -> None:
    for columns, said in REFUSED:
        with pytest.raises(asyncpg.PostgresError, match=said):
            await insert(sql, queue.topic.name, **columns)
    with pytest.raises(asyncpg.PostgresError, match=f'row 3 for topic "{queue.topic.name}": the payload is not JSON'):
        await sql.execute(
            "INSERT INTO holdfast.inbox (topic, payload_text) VALUES ($1, '1'), ($1, '2'), ($1, '{')", queue.topic.name
        )
    deep = b"[" * 128 + b"]" * 128
    wide = b"[" + b"[]," * 999 + b'"' + b"[" * 500 + b'"]'
    for payload in (deep, wide):
        await insert(sql, queue.topic.name, payload=payload)
    await insert(sql, queue.topic.name, payload=b"\xff\x00", content_type="application/octet-stream")
    assert [job.payload for job in await take(db, queue, 9)] == [deep, wide, b"\xff\x00"]
    assert await db.fetchval("SELECT count(*) FROM holdfast.inbox") == 0


async def test_topics_that_take_none(sql: Db, pools: Pools, topic: str, make_queue: MakeQueue) -> None:
    await store.create(pools.rest, topic + "-log", Chosen(type=TopicType.LOG))
    await make_queue(topic + ".dlq")
    with pytest.raises(asyncpg.UndefinedObjectError, match=f'no topic "{topic}-absent"'):
        await insert(sql, topic + "-absent")
    with pytest.raises(asyncpg.WrongObjectTypeError, match="is a log"):
        await insert(sql, topic + "-log")
    with pytest.raises(asyncpg.CheckViolationError, match="kept for dead letters"):
        await insert(sql, topic + ".dlq")
    with pytest.raises(asyncpg.CheckViolationError, match="ask for a group"):
        await insert(sql, topic + ".fifo")


async def test_max_depth_holds(
    user: Callable[[], Awaitable[Db]], db: Session, topic: str, make_queue: MakeQueue
) -> None:
    """Two who add to a full queue wait for each other."""
    queue = await make_queue(topic, max_depth=3)
    first, second = await user(), await user()
    two = "INSERT INTO holdfast.inbox (topic, payload_text) VALUES ($1, '1'), ($1, '2')"
    await first.execute(two, topic)
    with pytest.raises(asyncpg.PostgresError, match="has no room"):
        await first.execute(two, topic)
    transaction = first.transaction()
    await transaction.start()
    await insert(first, topic)
    waits = asyncio.create_task(insert(second, topic))
    await until(lambda: blocked(db, second), "the second waits")
    await transaction.commit()
    with pytest.raises(asyncpg.PostgresError, match="has no room"):
        await waits
    assert len(await take(db, queue, 9)) == 3
    assert await tallied(db, queue)


async def test_a_ttl_that_is_left_to_the_service(sql: Db, db: Session, pools: Pools, topic: str) -> None:
    await store.create(pools.rest, topic, of_messages(topic))
    policies = Policies(pools.rest)
    try:
        await store.keep_defaults(pools.rest, Defaults(ttl_ms=7_000))
        await insert(sql, topic)
        await store.keep_defaults(pools.rest, Defaults(ttl_ms=0))
        await insert(sql, topic)
    finally:
        await store.keep_defaults(pools.rest, DEFAULTS)
    one, two = [await row(db, await policies.queue(topic), seq) for seq in (1, 2)]
    assert one is not None
    assert two is not None
    assert one["expires_at"] - one["created_at"] == timedelta(seconds=7)  # type: ignore[operator]
    assert two["expires_at"] is None


async def test_a_rollback_leaves_nothing(sql: Db, db: Session, queue: Policy) -> None:
    transaction = sql.transaction()
    await transaction.start()
    await insert(sql, queue.topic.name)
    await transaction.rollback()
    assert await take(db, queue) == []
    assert await db.fetch("SELECT FROM holdfast.lanes WHERE topic = $1", queue.topic.name) == []
    assert await tallied(db, queue)


async def test_a_new_lane_keeps_nobody_waiting(sql: Db, db: Session, engine: Engine, queue: Policy) -> None:
    """An open transaction that is the first to use a lane does not stop others that use it."""
    transaction = sql.transaction()
    await transaction.start()
    await insert(sql, queue.topic.name, priority=5, payload_text='"sql"')
    await engine.enqueues.enqueue(queue, Batch([b'"here"'], priorities=[5]), 10)
    assert [job.payload for job in await engine.claims.claim(Claimer(queue, "w", 9, 60_000))] == [b'"here"']
    await transaction.commit()
    assert [job.payload for job in await take(db, queue, 9)] == [b'"sql"']


@pytest.mark.parametrize(("lane", "seconds"), [(0, 10), (4, 10), pytest.param(4, SOON + 1, marks=pytest.mark.slow)])
async def test_who_waits_finds_it_within_a_second(
    sql: Db, engine: Engine, queue: Policy, *, lane: int, seconds: float
) -> None:
    await engine.enqueues.enqueue(queue, Batch([b"0"]), 10)
    await engine.claims.claim(Claimer(queue, "w", 1, 60_000))
    waiting = asyncio.create_task(engine.claims.claim(Claimer(queue, "w", 1, 60_000), 30))
    await until(lambda: _parked(engine, queue), "it waits")
    await insert(sql, queue.topic.name, priority=lane, payload_text="1")
    [job] = await asyncio.wait_for(waiting, seconds)
    assert job.payload == b"1"


async def test_deletion_of_its_topic_waits(sql: Db, db: Session, pools: Pools, queue: Policy) -> None:
    transaction = sql.transaction()
    await transaction.start()
    await insert(sql, queue.topic.name)
    deletes = asyncio.create_task(store.delete(pools.rest, queue.topic.name, if_empty=False))
    await until(lambda: _waited_for(db, sql), "the deletion waits")
    await insert(sql, queue.topic.name)  # which holds nobody up
    await transaction.commit()
    assert await deletes
    assert await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", queue.topic.name) == 0
    assert await events(db, queue, 2) == ["enqueued", "deleted"]
    assert await db.fetch("SELECT FROM holdfast.lanes WHERE topic = $1", queue.topic.name) == []
    with pytest.raises(asyncpg.UndefinedObjectError):
        await insert(sql, queue.topic.name)


async def test_nothing_is_scanned(user: Callable[[], Awaitable[Db]], db: Session, queue: Policy) -> None:
    """Rows that are dead cost nothing, and wrong statistics neither."""
    sql = await user()
    await sql.execute(
        "INSERT INTO holdfast.inbox (topic, payload_text) SELECT $1, 1 FROM generate_series(1, 5000)", queue.topic.name
    )
    jobs = await take(db, queue, 3)
    transaction = sql.transaction()
    await transaction.start()
    for job in jobs:
        await insert(sql, queue.topic.name)
        await insert(sql, queue.topic.name, key="k")
        token = f"{queue.topic.name}:{job.seq}:lease_{job.lease}"
        await sql.execute("SELECT holdfast.assert_lease($1)", token)
        await sql.execute("SELECT holdfast.complete($1)", token)
    scanned = await sql.fetch(
        "SELECT relname FROM pg_stat_xact_user_tables WHERE schemaname = 'holdfast' AND seq_scan > 0 "
        "AND relname <> 'defaults'"  # which has one row
    )
    assert [found["relname"] for found in scanned] == []
    await transaction.rollback()


async def test_what_a_lesser_role_may_not(sql: Db, queue: Policy) -> None:
    for statement in (
        "SELECT * FROM holdfast.jobs",
        "SELECT * FROM holdfast.inbox",
        "DELETE FROM holdfast.messages",
        f"SELECT holdfast.drop_topic_sequence({queue.topic.id})",
        "SELECT holdfast.create_topic_sequence(1000000)",
        "SELECT holdfast.drop_day_partitions('lease_events', 0, false)",
    ):
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ObjectNotInPrerequisiteStateError)):
            await sql.execute(statement)


async def test_other_names_change_nothing(sql: Db, db: Session, queue: Policy) -> None:
    """What a user's own schema calls by the names of the functions inside is not looked at."""
    await sql.execute("CREATE TEMPORARY TABLE added (topic text); SET search_path = pg_temp, public")
    await insert(sql, queue.topic.name, metadata=json.dumps({"a": "b"}))
    assert len(await take(db, queue)) == 1


async def _parked(engine: Engine, queue: Policy) -> bool:
    return engine.waiters.count(queue.topic.name) > 0


async def _waited_for(db: Session, holder: Db) -> bool:
    return bool(
        await db.fetchval(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", holder.get_server_pid()
        )
    )
