"""enqueue, complete and assert_lease: a job begins or ends with the transaction of whoever works on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.base.db.pool import Pools
from app.features.jobs import changes
from app.kernel.claim import consumer
from app.kernel.model import Job, id_of
from app.kernel.settle.results import Keep
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, events, held, lease_ended, put, row, take, until
from tests.queue.tallies import tallied
from tests.sql.conftest import Db, blocked

MakeQueue = Callable[..., Awaitable[Policy]]
ENDED = asyncpg.ObjectNotInPrerequisiteStateError


def token(policy: Policy, job: Job) -> str:
    return f"{policy.topic.name}:{job.seq}:lease_{job.lease}"


async def test_enqueue_answers_the_messages_id(sql: Db, db: Session, queue: Policy) -> None:
    topic = queue.topic.name
    for n, payload in enumerate(("'{\"n\":1}'", "'{\"n\":1}'::jsonb", "'{\"n\":1}'::bytea"), 1):
        found = await sql.fetchval(f"SELECT holdfast.enqueue($1, {payload})", topic)
        assert str(found) == id_of(queue.topic.id, n)
    assert {job.payload.replace(b" ", b"") for job in await take(db, queue, 9)} == {b'{"n":1}'}
    assert await tallied(db, queue)


async def test_enqueue_takes_what_the_inbox_takes(sql: Db, db: Session, queue: Policy) -> None:
    await sql.execute(
        """
        SELECT holdfast.enqueue($1, 'hello', content_type => 'text/plain', metadata => '{"a": "b"}', tag => 't',
                                node => 'n', priority => 3, ttl_ms => 1000000, max_deliveries => 4, user_id => 'ada',
                                run_at => now() - interval '1 h', webhook => 'https://example.com/x')
        """,
        queue.topic.name,
    )
    found = await row(db, queue, 1)
    assert found is not None
    columns = "content_type", "metadata", "tag", "producer", "priority", "max_deliveries", "state", "webhook"
    assert [found[name] for name in columns] == [
        *("text/plain", '{"a": "b", "$user_id": "ada"}', "t", "n", 3, 4, "ready", "https://example.com/x")
    ]
    assert found["expires_at"] is not None
    await sql.execute("SELECT holdfast.enqueue($1, '1', delay_ms => 60000)", queue.topic.name)
    later = await row(db, queue, 2)
    assert later is not None
    assert later["state"] == "scheduled"
    with pytest.raises(asyncpg.CheckViolationError, match="priority: 0 to 9"):
        await sql.execute("SELECT holdfast.enqueue($1, '1', priority => 99)", queue.topic.name)


async def test_enqueue_answers_the_job_that_was_there_first(
    sql: Db, db: Session, make_queue: MakeQueue, topic: str
) -> None:
    """Of a dedupe id, also after that is done; of a .fifo topic's payload; each tenant and each group by itself."""
    queue = await make_queue(topic)
    call = "SELECT holdfast.enqueue($1, $2, dedupe_id => 'once', tenant => $3, \"group\" => $4)"
    first = await sql.fetchval(call, topic, "1", "a", "g")
    assert await take(db, queue)
    assert await sql.fetchval(call, topic, "2", "a", "g") == first
    others = {await sql.fetchval(call, topic, "3", *where) for where in (("b", "g"), ("a", "h"), (None, None))}
    assert len({first, *others}) == 4
    fifo = f"{topic}.fifo"
    await make_queue(fifo)
    ids = [await sql.fetchval("SELECT holdfast.enqueue($1, $2, \"group\" => 'g')", fifo, n) for n in ("1", "1", "2")]
    assert ids[0] == ids[1] != ids[2]
    assert await tallied(db, queue)


async def test_enqueue_of_a_key_answers_the_id_of_the_one_that_waits(sql: Db, db: Session, queue: Policy) -> None:
    """And goes with the rest of its transaction."""
    call = "SELECT holdfast.enqueue($1, $2, key => 'k')"
    transaction = sql.transaction()
    await transaction.start()
    await sql.fetchval(call, queue.topic.name, "0")
    assert await take(db, queue) == []
    await transaction.rollback()
    assert await take(db, queue) == []
    first = await sql.fetchval(call, queue.topic.name, "1")
    assert await sql.fetchval(call, queue.topic.name, "2") == first
    [job] = await take(db, queue, 9)
    assert job.payload == b"2"
    assert await sql.fetchval(call, queue.topic.name, "3") != first
    assert await tallied(db, queue)


async def test_complete_is_an_ack_with_its_transaction(sql: Db, db: Session, queue: Policy, job: Job) -> None:
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("SELECT holdfast.complete($1)", token(queue, job))
    await transaction.rollback()
    assert await events(db, queue, job.seq) == ["enqueued", "claimed"]
    await sql.execute("SELECT holdfast.complete($1)", token(queue, job))
    assert await row(db, queue, job.seq) is None
    assert await events(db, queue, job.seq) == ["enqueued", "claimed", "acked"]
    told = await db.fetchrow(
        "SELECT lease_id, node, deliveries FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'acked'",
        queue.topic.id,
    )
    assert told is not None
    assert tuple(told) == (UUID(job.lease), "worker", 1)
    assert await tallied(db, queue)
    with pytest.raises(ENDED, match="has ended"):
        await sql.execute("SELECT holdfast.complete($1)", token(queue, job))


async def test_complete_keeps_what_is_replayable(sql: Db, db: Session, topic: str, make_queue: MakeQueue) -> None:
    """With the group of a job that was cancelled."""
    queue = await make_queue(topic, replayable=True)
    await put(db, queue, batch(2, tags=["a", "b"]))
    one, two = await take(db, queue, 2)
    await consumer.ack(db, queue.topic, [held(one)], keep=Keep(archived=True))
    await sql.execute("SELECT holdfast.complete($1)", token(queue, two))
    kept = await db.fetch("SELECT * FROM holdfast.archive WHERE topic_id = $1 ORDER BY seq", queue.topic.id)
    first, second = [
        {k: v for k, v in found.items() if k not in ("finished_at", "seq", "payload", "tag")} for found in kept
    ]
    assert first == second
    assert (kept[1]["payload"], kept[1]["tag"]) == (two.payload, "b")
    await sql.execute("SELECT holdfast.enqueue($1, '1', \"group\" => 'a')", queue.topic.name)
    [job] = await take(db, queue)
    await changes.cancel(db, queue.topic, [job.seq])
    await sql.execute("SELECT holdfast.complete($1)", token(queue, job))
    query = "SELECT grp FROM holdfast.archive WHERE topic_id = $1 AND seq = $2"
    assert await db.fetchval(query, queue.topic.id, job.seq) == "a"


@pytest.mark.parametrize("function", ["complete", "assert_lease"])
async def test_a_lease_that_has_ended(sql: Db, db: Session, queue: Policy, function: str) -> None:
    """By the clock, even where the transaction began while it was good."""
    await put(db, queue, batch(2))
    short, other = await take(db, queue, 2, lease_ms=100)
    transaction = sql.transaction()
    await transaction.start()
    await sql.fetchval("SELECT now()")
    await lease_ended(db, queue, short)
    with pytest.raises(ENDED, match=f'the lease on job {short.seq} of topic "{queue.topic.name}" has ended'):
        await sql.execute(f"SELECT holdfast.{function}($1)", token(queue, short))
    await transaction.rollback()
    [again, _] = await take(db, queue, 2)
    with pytest.raises(ENDED):
        await sql.execute(f"SELECT holdfast.{function}($1)", token(queue, short))
    await sql.execute(f"SELECT holdfast.{function}($1)", token(queue, again))
    assert other.seq != short.seq


@pytest.mark.parametrize("function", ["complete", "assert_lease"])
async def test_what_is_no_token(sql: Db, function: str) -> None:
    for text in ("", "x", "a:1", "a:1:lease_1", "a:99999999999999999999:lease_" + "0" * 32):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await sql.execute(f"SELECT holdfast.{function}($1)", text)


async def test_an_asserted_lease_holds_until_the_end(sql: Db, db: Session, queue: Policy) -> None:
    """It runs out, and nobody else gets the job before the transaction ends."""
    await put(db, queue, batch(1))
    [job] = await take(db, queue)
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("SELECT holdfast.assert_lease($1)", token(queue, job))
    await consumer.extend(db, queue.topic, [held(job)], [1])
    await lease_ended(db, queue, job)
    assert await take(db, queue) == []
    await transaction.commit()
    [again] = await take(db, queue)
    assert again.seq == job.seq


async def test_an_asserted_lease_can_be_extended(
    sql: Db, db: Session, connect: Callable[[], Awaitable[Session]], queue: Policy, job: Job
) -> None:
    """Heartbeats wait for nobody's transaction, and what is asserted stays so."""
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("SELECT holdfast.assert_lease($1)", token(queue, job))
    other = await connect()
    await other.execute("SET lock_timeout = '1s'")
    await consumer.extend(other, queue.topic, [held(job)], [60_000])
    acked = asyncio.create_task(consumer.ack(other, queue.topic, [held(job)]))
    await until(lambda: blocked(db, other), "the ack waits")
    await transaction.commit()
    await acked
    assert await row(db, queue, job.seq) is None


async def test_complete_and_heartbeats(
    sql: Db, db: Session, connect: Callable[[], Awaitable[Session]], queue: Policy, job: Job
) -> None:
    """A complete that has waited for an extend is no lost ack."""
    transaction = db.transaction()
    await transaction.start()
    await consumer.extend(db, queue.topic, [held(job)], [90_000])
    watcher = await connect()
    completed = asyncio.create_task(sql.execute("SELECT holdfast.complete($1)", token(queue, job)))
    await until(lambda: blocked(watcher, sql), "it waits")
    await transaction.commit()
    await completed
    assert await row(db, queue, job.seq) is None
    assert await tallied(db, queue)


async def test_tokens_come_with_claimed_jobs(
    sql: Db, pools: Pools, http: httpx.AsyncClient, topic: str, make_queue: MakeQueue
) -> None:
    name = topic + ":with:colons"
    await make_queue(name)
    await sql.execute(
        "INSERT INTO holdfast.inbox (topic, payload_text) SELECT $1, n FROM generate_series(1, 2) n", name
    )
    claimed = (await http.post(f"/v0/topics/{name}/claim", json={"node": "w", "max": 1})).json()
    [one] = claimed["claimed"]
    await sql.execute("SELECT holdfast.assert_lease($1)", one["token"])
    await sql.execute("SELECT holdfast.complete($1)", one["token"])
    dequeued = (await http.post("/api/messages/dequeue", json={"topic": name})).json()
    [two] = dequeued["messages"]
    assert two["token"].startswith(f"{name}:2:lease_")
    await sql.execute("SELECT holdfast.complete($1)", two["token"])
    assert await pools.rest.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", name) == 0
