"""What is completed on a replayable topic, and what replays make of it, as tests look at it."""

from __future__ import annotations

from app.base.db.pool import Pools
from app.features.archive import archive
from app.features.archive.archive import ArchivePart
from app.features.archive.replays import BatchLimits, Replay, Replays
from app.kernel.counts import inspector
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine


async def complete(machine: Machine, policy: Policy, count: int = 0) -> list[int]:
    """Enqueue so many jobs, and ack all that can be claimed; their seqs as they were acked."""
    if count:
        await machine.enqueue(policy, count)
    seqs: list[int] = []
    while jobs := await machine.claim(policy, 1_000):
        await machine.ack(policy, jobs)
        seqs += sorted(job.seq for job in jobs)
    return seqs


async def replay(machine: Machine, policy: Policy, jobs: int = 1_000, payload_bytes: int = 1 << 30) -> Replay:
    """Replay all there is, in batches of so many jobs."""
    replays = Replays(machine.engine)
    replays.limits = BatchLimits(jobs, payload_bytes)
    return await replays.replay(policy, None)


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


async def archived(pools: Pools, policy: Policy) -> list[archive.ArchivedJob]:
    return await archive.page(pools.rest, policy.topic, ArchivePart(), 10_000)
