"""Enqueues, in groups; those with an idempotency key, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import asyncpg

from app.engine.group import GroupCommit
from app.errors import HoldfastError, Throttled, TopicFull, Unavailable
from app.metrics.numbers import Verb
from app.queue import bounds, producer
from app.queue.bounds import Refusal
from app.queue.model import Batch, Seq, merge
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.shared import Shared
    from app.queue.bounds import Bounds
    from app.queue.model import Connection

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

        When it returns, the commit is flushed if the topic is durable. Raises Throttled and TopicFull (there is no room
        for all of it: nothing was put in), Unavailable (it may have happened), TopicNotFound, NotAQueue, and asyncpg's
        errors for what the database refuses.
        """
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

    async def enqueue_once(self, policy: Policy, batch: Batch, key: str) -> tuple[list[Seq], bool]:
        """The same, unless a batch was enqueued with this key within the topic's window: its seqs then, and whether.

        A transaction of its own for each, not a share of a group's statement: right rather than fast.
        """
        if self._waiting >= self._shared.max_waiting:
            raise Unavailable("Too many calls are waiting for this topic. Try again.")
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

        async def put(db: Connection) -> list[Seq]:
            if policy.bounds is None:
                return await producer.enqueue(db, topic, batch, ttl_ms=config.ttl_ms)
            [share] = await self._within(db, policy, policy.bounds, [batch])
            if isinstance(share, BaseException):
                raise share
            return share

        async with pool.acquire() as db, db.transaction():
            seqs, known = await producer.enqueue_once(db, topic, key, put, window_ms=config.idempotency_window_ms)
        if not known:
            self._added(policy, batch)
        return seqs, known

    async def _commit(self, calls: Sequence[_Call]) -> list[list[Seq] | BaseException]:
        policy = calls[-1].policy
        topic = policy.topic
        batch = merge([call.batch for call in calls])
        db = self._shared.verbs(policy)
        await self._shared.lanes.ensure(db, topic, batch)
        if policy.bounds is not None:
            return await self._commit_within(policy, policy.bounds, calls)
        seqs = await producer.enqueue(db, topic, batch, ttl_ms=policy.config.ttl_ms)
        self._numbers.shared([len(call.batch) for call in calls])
        self._added(policy, batch)
        shares: list[list[Seq] | BaseException] = []
        start = 0
        for call in calls:
            shares.append(seqs[start : start + len(call.batch)])
            start += len(call.batch)
        return shares

    async def _commit_within(
        self, policy: Policy, limits: Bounds, calls: Sequence[_Call]
    ) -> list[list[Seq] | BaseException]:
        async with self._shared.verbs(policy).acquire() as db, db.transaction():
            shares = await self._within(db, policy, limits, [call.batch for call in calls])
        taken = [call.batch for call, share in zip(calls, shares, strict=True) if isinstance(share, list)]
        if taken:
            self._numbers.shared([len(batch) for batch in taken])
            self._added(policy, merge(taken))
        return shares

    async def _within(
        self, db: Connection, policy: Policy, limits: Bounds, batches: Sequence[Batch]
    ) -> list[list[Seq] | BaseException]:
        """Enqueue what there is room for: of each batch the seqs, or the error for its caller."""
        topic = policy.topic
        above = self._shared.cursors.lows(topic.id).tally
        taken = await bounds.enqueue(db, topic, batches, limits, ttl_ms=policy.config.ttl_ms, above=above)
        numbers = self._shared.metrics.topic(topic.name)
        numbers.expired.add(taken.expired)
        shares: list[list[Seq] | BaseException] = []
        for batch, share in zip(batches, taken.batches, strict=True):
            if isinstance(share, Refusal):
                numbers.refused.add(len(batch))
                shares.append(_refused(policy, share))
            else:
                shares.append(share)
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


def _refused(policy: Policy, refusal: Refusal) -> HoldfastError:
    name, config = policy.topic.name, policy.config
    if refusal is Refusal.TOO_DEEP:
        return Throttled(
            f"Topic {name!r} holds as many jobs as it may, or has no room for all of these. Try again.",
            {"topic": name, "limit": "max_depth", "max": config.max_depth},
        )
    return TopicFull(f"Topic {name!r} is full.", {"cap_records": config.cap_records, "cap_bytes": config.cap_bytes})
