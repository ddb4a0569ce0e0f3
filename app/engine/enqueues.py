"""Enqueues, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.engine.group import GroupCommit
from app.queue import producer
from app.queue.model import Batch, Seq, merge
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.db.pool import Pools
    from app.engine.lanes import Lanes
    from app.engine.waiters import Waiters
    from app.topics.cache import Policies

MOST_BYTES: Final = 8 * 1024 * 1024  # of payloads that callers share a statement for
BYTES_OF_A_RECORD: Final = 512  # what its other columns may weigh, so that empty payloads are bounded too


@dataclass(frozen=True, slots=True)
class _Call:
    policy: Policy
    batch: Batch
    size: int


class Enqueues:
    """One statement in flight for each topic."""

    def __init__(self, pools: Pools, policies: Policies, lanes: Lanes, waiters: Waiters, *, max_waiting: int) -> None:
        self._pools = pools
        self._policies = policies
        self._lanes = lanes
        self._waiters = waiters
        self.group: GroupCommit[_Call, list[Seq]] = GroupCommit(
            self._commit, max_waiting=max_waiting, most=MOST_BYTES, weight=lambda call: call.size
        )

    async def enqueue(self, policy: Policy, batch: Batch, size: int) -> list[Seq]:
        """Put the batch into its queue, all or nothing; `size` is its payloads' bytes. Answers its seqs, ascending.

        When it returns, the commit is flushed if the topic is durable. Raises Unavailable (it may have happened),
        TopicNotFound, NotAQueue, and asyncpg's errors for what the database refuses.
        """
        return await self.group.submit(policy.topic.id, _Call(policy, batch, size + BYTES_OF_A_RECORD * len(batch)))

    async def _commit(self, calls: Sequence[_Call]) -> list[list[Seq] | BaseException]:
        policy = calls[-1].policy
        batch = merge([call.batch for call in calls])
        pool = self._pools.verbs(durable=policy.config.durable)
        await self._lanes.ensure(pool, policy.topic, batch)
        seqs = await producer.enqueue(pool, policy.topic, batch, ttl_ms=policy.config.ttl_ms)
        delays = [delay for delay in batch.delays_ms if delay]
        self._waiters.added(policy.topic.id, len(seqs) - len(delays))
        if delays:
            self._waiters.due_in(policy.topic.id, min(delays) / 1000)
        shares: list[list[Seq] | BaseException] = []
        start = 0
        for call in calls:
            shares.append(seqs[start : start + len(call.batch)])
            start += len(call.batch)
        return shares
