"""Enqueues, in groups; those with an idempotency key, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from app.engine.group import GroupCommit
from app.errors import TooManyWaiting
from app.metrics.numbers import Verb
from app.queue import producer
from app.queue.model import Batch, Seq, merge
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.shared import Shared

MOST_BYTES: Final = 8 * 1024 * 1024  # of payloads that callers share a statement for
KEYED_AT_ONCE: Final = 2
BYTES_OF_A_RECORD: Final = 512  # what its other columns may weigh, so that empty payloads are bounded too


@dataclass(frozen=True, slots=True)
class _Call:
    policy: Policy
    batch: Batch
    size: int


class Enqueues:
    """One statement in flight for each topic."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._numbers = Verb(shared.metrics, "enqueue")
        self.group: GroupCommit[_Call, list[Seq]] = GroupCommit(
            self._commit, max_waiting=shared.max_waiting, most=MOST_BYTES, weight=lambda call: call.size
        )
        # Connections that keyed enqueues may hold: who waits for another's key must not keep all verbs waiting.
        self._keyed = asyncio.Semaphore(KEYED_AT_ONCE)
        self._waiting = 0

    async def enqueue(self, policy: Policy, batch: Batch, size: int) -> list[Seq]:
        """Put the batch into its queue, all or nothing; `size` is its payloads' bytes. Answers its seqs, ascending.

        When it returns, the commit is flushed if the topic is durable. Raises Unavailable (it may have happened),
        Throttled, TopicNotFound, NotAQueue, and asyncpg's errors for what the database refuses.
        """
        if self._shared.room.most:
            await self._shared.room.take(size)
        size += BYTES_OF_A_RECORD * len(batch)
        try:
            return await self.group.submit(policy.topic.id, _Call(policy, batch, size))
        except asyncpg.InternalServerError:
            # What a missing sequence raises: the topic may have been deleted, and made anew, through another process.
            self._shared.policies.forget(policy.topic.name)
            fresh = await self._shared.policies.queue(policy.topic.name)
            if fresh.topic.id == policy.topic.id:
                raise
            return await self.group.submit(fresh.topic.id, _Call(fresh, batch, size))

    async def enqueue_once(self, policy: Policy, batch: Batch, size: int, key: str) -> tuple[list[Seq], bool]:
        """The same, unless a batch was enqueued with this key within the topic's window: its seqs then, and whether.

        A transaction of its own for each, not a share of a group's statement: right rather than fast.
        """
        if self._waiting >= self._shared.max_waiting:
            raise TooManyWaiting(self._shared.max_waiting)
        if self._shared.room.most:
            await self._shared.room.take(size)
        self._waiting += 1
        try:
            async with self._keyed:
                try:
                    return await self._once(policy, batch, key)
                except asyncpg.InternalServerError:
                    self._shared.policies.forget(policy.topic.name)
                    fresh = await self._shared.policies.queue(policy.topic.name)
                    if fresh.topic.id == policy.topic.id:
                        raise
                    return await self._once(fresh, batch, key)
        finally:
            self._waiting -= 1

    async def _once(self, policy: Policy, batch: Batch, key: str) -> tuple[list[Seq], bool]:
        topic, config = policy.topic, policy.config
        pool = self._shared.verbs(policy)
        await self._shared.lanes.ensure(pool, topic, batch)
        async with pool.acquire() as db, db.transaction():
            seqs, known = await producer.enqueue_once(
                db, topic, batch, key, ttl_ms=config.ttl_ms, window_ms=config.idempotency_window_ms
            )
        if not known:
            self._added(policy, batch)
        return seqs, known

    async def _commit(self, calls: Sequence[_Call]) -> list[list[Seq] | BaseException]:
        policy = calls[-1].policy
        topic = policy.topic
        batch = merge([call.batch for call in calls])
        db = self._shared.verbs(policy)
        await self._shared.lanes.ensure(db, topic, batch)
        seqs = await producer.enqueue(db, topic, batch, ttl_ms=policy.config.ttl_ms)
        self._numbers.shared([len(call.batch) for call in calls])
        self._added(policy, batch)
        shares: list[list[Seq] | BaseException] = []
        start = 0
        for call in calls:
            shares.append(seqs[start : start + len(call.batch)])
            start += len(call.batch)
        return shares

    def _added(self, policy: Policy, batch: Batch) -> None:
        topic, topic_id = policy.topic, policy.topic.id
        delays = [delay for delay in batch.delays_ms if delay]
        ready = len(batch) - len(delays)
        self._shared.metrics.topic(topic.name).enqueued.add(len(batch))
        self._shared.moved(topic, ready=ready)
        self._shared.waiters.added(topic_id, ready)
        self._shared.readers.wake(topic_id)
        if delays:
            self._shared.waiters.due_in(topic_id, min(delays) / 1000)
