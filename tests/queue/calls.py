"""The core's verbs as tests call them, over a connection of the test's own; and waiting for facts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import asyncpg
from asyncpg.pgproto.pgproto import UUID

from app.kernel.claim import consumer, ordering
from app.kernel.claim.consumer import Slots
from app.kernel.enqueue import producer
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Connection, HeldJob, Job, Reach, Seq
from app.kernel.topics.policy import Policy

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PATIENCE = 30.0  # seconds until a fact that has not come is a failure


def batch(count: int = 1, **columns: object) -> Batch:
    """So many records; further columns as the batch names them, each for the first records."""
    return Batch(payloads=[b'{"n":%d}' % n for n in range(count)], **columns)  # type: ignore[arg-type]


async def put(db: Connection, policy: Policy, records: Batch) -> list[Seq]:
    """Enqueue, as an engine does: lanes first."""
    await producer.add_lanes(db, policy.topic, sorted(records.lanes(), key=lambda lane: (lane.tenant, lane.priority)))
    return await producer.enqueue(db, policy.topic, records, ttl_ms=policy.config.ttl_ms)


async def place(db: Connection, policy: Policy, records: Batch) -> Placement:
    """Enqueue records that may have keys or groups."""
    await producer.add_lanes(db, policy.topic, sorted(records.lanes(), key=lambda lane: (lane.tenant, lane.priority)))
    return await producer.upsert(db, policy.topic, policy.budget, records, ttl_ms=policy.config.ttl_ms)


async def take(
    db: Connection, policy: Policy, count: int = 1, *, node: str = "worker", lease_ms: int = 60_000
) -> list[Job]:
    """Claim up to `count` jobs for one caller, in claim order."""
    reaches = [Reach(lane) for lane in await ordering.read_lanes(db, policy.topic)]
    slots = Slots([0] * count, [node], [lease_ms])
    claimed = await consumer.claim(db, policy.topic, policy.budget, reaches, slots)
    return claimed.jobs[0]


def held(job: Job, node: str | None = None) -> HeldJob:
    """The job as its holder names it: by lease, and by node if one is given."""
    return HeldJob(job.seq, UUID(job.lease), node)


async def until(fact: Callable[[], Awaitable[bool]], what: str, seconds: float = PATIENCE) -> None:
    """Return once the fact holds; fail when it does not in time."""
    give_up = time.monotonic() + seconds
    while not await fact():
        assert time.monotonic() < give_up, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.003)


async def lease_ended(db: Connection, policy: Policy, job: Job) -> None:
    """Wait until a lease has run out by the database's clock."""

    async def ended() -> bool:
        left = await db.fetchval(
            "SELECT visible_at >= clock_timestamp() FROM holdfast.jobs WHERE topic = $1 AND seq = $2 AND lease_id = $3",
            policy.topic.name,
            job.seq,
            UUID(job.lease),
        )
        return left is not True

    await until(ended, f"the lease of {job.seq} ends")


async def outlived(db: Connection, policy: Policy) -> None:
    """Wait until every job that has a time to live has outlived it, by the database's clock."""

    async def over() -> bool:
        last = await db.fetchval("SELECT max(expires_at) FROM holdfast.jobs WHERE topic = $1", policy.topic.name)
        return bool(await db.fetchval("SELECT clock_timestamp() > $1", last))

    await until(over, "their time to live passes")


async def row(db: Connection, policy: Policy, seq: int) -> dict[str, object] | None:
    """A job as the table holds it, with its place in the table; None if it is gone."""
    found = await db.fetchrow(
        "SELECT ctid, xmin, j.* FROM holdfast.jobs j WHERE topic = $1 AND seq = $2", policy.topic.name, seq
    )
    return None if found is None else dict(found)


async def events(db: Connection, policy: Policy, seq: int) -> list[str]:
    """What the ledger says has happened to a job, in order."""
    rows = await db.fetch(
        "SELECT event::text FROM holdfast.lease_events WHERE topic_id = $1 AND seq = $2 ORDER BY at",
        policy.topic.id,
        seq,
    )
    return [found["event"] for found in rows]
