"""What telling costs, and whom: plain acks nothing at all; and no ack of a job with a webhook is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.kernel.claim import consumer
from app.kernel.settle.results import Keep
from app.kernel.topics.policy import Policy
from app.kernel.topics.webhooks import Webhook
from tests.engine.conftest import machine, queue, start
from tests.engine.machines import Machine
from tests.queue import statements
from tests.queue.calls import Session, batch, events, held, put, take
from tests.races.conftest import rivals
from tests.races.rivals import Rivals

__all__ = ["machine", "queue", "rivals", "start"]

URL = "http://127.0.0.1:9/"  # where nobody is told, and nobody may be


async def told(db: Session, policy: Policy) -> list[int]:
    """Of which jobs is to be told."""
    rows = await db.fetch(
        """
        SELECT (convert_from(payload, 'UTF8')::json->'body'->>'seq')::integer AS seq FROM holdfast.jobs
        WHERE topic = 'holdfast.webhooks' AND tag = $1
        """,
        policy.topic.name,
    )
    return sorted(row["seq"] for row in rows)


async def no_endings(db: Session) -> bool:
    return await db.fetch("SELECT * FROM holdfast.endings") == []


@pytest.mark.parametrize(
    ("settings", "statement", "ends"),
    [
        ({}, "ack", []),
        ({"replayable": True}, "ack_and_record", []),
        ({"webhook": Webhook(url=URL)}, "ack_and_record", [1, 2, 3]),
    ],
)
async def test_one_statement_acks_and_writes_an_ending_only_where_a_webhook_is(
    machine: Machine,
    topic: str,
    make_queue: Callable[..., Awaitable[Policy]],
    rivals: Rivals,
    *,
    settings: dict[str, object],
    statement: str,
    ends: list[int],
) -> None:
    policy = await make_queue(topic, **settings)
    await machine.enqueue(policy, 3)
    jobs = await machine.claim(policy, 3)
    assert await machine.engine.settlements.ack(policy, [held(job) for job in jobs]) == {0, 1, 2}
    assert [name for name, _ in machine.log.sent if name.startswith("ack")] == [statement]
    assert await told(rivals.one, policy) == ends


@pytest.mark.parametrize("name", ["ack", "nack", "claim", "enqueue", "enqueue_keyed"])
def test_what_every_topic_pays_for_knows_nothing_of_endings(name: str) -> None:
    body = statements.named(name).body
    assert "endings" not in body
    assert "about" not in body


@pytest.mark.parametrize("archived", [False, True])
async def test_jobs_with_and_without_are_acked_together_though_they_meet_a_heartbeat(
    queue: Policy, rivals: Rivals, *, archived: bool
) -> None:
    seqs = await put(rivals.one, queue, batch(4))
    await rivals.one.execute(statements.named("hook").text, queue.topic.name, seqs[1:3], [URL, URL])
    jobs = await take(rivals.one, queue, 4)

    heartbeat = rivals.one.transaction()
    await heartbeat.start()
    await consumer.extend(rivals.one, queue.topic, [held(jobs[2]), held(jobs[3])], [60_000, 60_000])
    keep = Keep(archived=archived)
    late = asyncio.create_task(consumer.ack(rivals.other, queue.topic, [held(job) for job in jobs], keep=keep))
    await rivals.meet()
    await heartbeat.commit()

    assert await late == {0, 1, 2, 3}
    assert await told(rivals.observer, queue) == [seqs[1], seqs[2]]
    for seq in seqs:
        assert (await events(rivals.one, queue, seq)).count("acked") == 1
    kept = "SELECT count(*) FROM holdfast.archive WHERE topic = $1"
    assert await rivals.observer.fetchval(kept, queue.topic.name) == (4 if archived else 0)
    assert await no_endings(rivals.observer)


async def test_who_completes_in_a_transaction_tells_with_its_commit(queue: Policy, rivals: Rivals) -> None:
    seqs = await put(rivals.one, queue, batch(2))
    await rivals.one.execute(statements.named("hook").text, queue.topic.name, seqs, [URL, URL])
    for job, outcome in zip(await take(rivals.one, queue, 2), ("rollback", "commit"), strict=True):
        token = f"{queue.topic.name}:{job.seq}:lease_{job.lease}"
        transaction = rivals.one.transaction()
        await transaction.start()
        await rivals.one.execute("SELECT holdfast.complete($1)", token)
        assert await told(rivals.observer, queue) == []
        await getattr(transaction, outcome)()
    assert await told(rivals.observer, queue) == [seqs[1]]
    assert await no_endings(rivals.observer)
