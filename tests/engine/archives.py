"""What is completed on a replayable topic, and what replays make of it, as tests look at it."""

from __future__ import annotations

from app.base.db.pool import Pools
from app.features.archive import archive
from app.features.archive.archive import ArchivePart
from app.features.archive.replays import BatchLimits, Replays
from app.kernel.counts import inspector
from app.kernel.engine import Engine
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import held


async def complete(machine: Machine, policy: Policy, count: int, *, at_once: int = 1_000) -> list[int]:
    """Enqueue, claim and ack so many jobs; their seqs as they were acked, so many at once."""
    await machine.enqueue(policy, count)
    return await drain(machine, policy, at_once)


async def drain(machine: Machine, policy: Policy, at_once: int = 1_000) -> list[int]:
    """Ack all that can be claimed; the seqs in order."""
    seqs: list[int] = []
    while jobs := await machine.claim(policy, at_once):
        assert len(await machine.engine.settlements.ack(policy, [held(job) for job in jobs])) == len(jobs)
        seqs += sorted(job.seq for job in jobs)
    return seqs


async def sources(pools: Pools, policy: Policy) -> list[int]:
    """Of what replays enqueued, in the order of its seqs: which seq each is a replay of, as the ledger says."""
    rows = await pools.rest.fetch(
        """
        SELECT substr(detail, 11)::bigint AS was FROM holdfast.lease_events
        WHERE topic_id = $1 AND event = 'enqueued' AND detail LIKE 'replay of %' ORDER BY seq
        """,
        policy.topic.id,
    )
    return [row["was"] for row in rows]


async def counted(pools: Pools, policy: Policy) -> int:
    """By how many jobs the topic's counts are off."""
    async with pools.rest.acquire() as db, db.transaction():
        return await inspector.reconcile(db, policy.topic)


def in_batches(engine: Engine, jobs: int, payload_bytes: int = 1 << 30) -> Replays:
    """The engine's replays, in batches of so many jobs."""
    replays = Replays(engine)
    replays.limits = BatchLimits(jobs, payload_bytes)
    return replays


async def archived(pools: Pools, policy: Policy) -> list[archive.ArchivedJob]:
    return await archive.page(pools.rest, policy.topic, ArchivePart(), 10_000)
