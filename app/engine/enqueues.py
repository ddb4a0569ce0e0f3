"""Enqueues, in groups: of jobs, and of jobs with keys; those with an idempotency key, one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg

from app.engine.group import GroupCommit
from app.errors import Unavailable
from app.metrics.numbers import Verb
from app.queue import producer
from app.queue.model import Batch, Seq, merge
from app.queue.producer import Placed
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.shared import Shared

Result = TypeVar("Result")

MOST_BYTES: Final = 8 * 1024 * 1024  # of payloads that callers share a statement for
ONCE_AT_ONCE: Final = 2
Gone = asyncpg.InternalServerError  # what a missing sequence raises, and more
BYTES_OF_A_RECORD: Final = 512  # what its other columns may weigh, so that empty payloads are bounded too


@dataclass(frozen=True, slots=True)
class _Call:
    policy: Policy
    batch: Batch
    size: int


class Enqueues:
    """One statement in flight for each topic, and one for jobs with keys: these wait for others of the same keys."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._numbers = Verb(shared.metrics, "enqueue")
        self.group: GroupCommit[_Call, list[Seq]] = GroupCommit(
            self._commit, max_waiting=shared.max_waiting, most=MOST_BYTES, weight=lambda call: call.size
        )
        self.keyed: GroupCommit[_Call, Placed] = GroupCommit(
            self._commit_keyed, max_waiting=shared.max_waiting, most=MOST_BYTES, weight=lambda call: call.size
        )
        # Connections that batches with idempotency keys may hold: who waits for another's must not keep all verbs
        # waiting.
        self._once_at_once = asyncio.Semaphore(ONCE_AT_ONCE)
        self._waiting = 0

    async def enqueue(self, policy: Policy, batch: Batch, size: int) -> list[Seq]:
        """Put the batch into its queue, all or nothing; `size` is its payloads' bytes. Answers its seqs, in its order;
        they ascend, but for records whose keys' jobs waited already.

        When it returns, the commit is flushed if the topic is durable. Raises Unavailable (it may have happened),
        TopicNotFound, NotAQueue, and asyncpg's errors for what the database refuses.
        """
        if batch.keys:
            return (await self.upsert(policy, batch, size)).seqs
        return await self._submit(self.group, policy, batch, size)

    async def upsert(self, policy: Policy, batch: Batch, size: int) -> Placed:
        """The same for a batch with keys, and what became of each record. docs/semantics.md, section 7."""
        return await self._submit(self.keyed, policy, batch, size)

    async def _submit(self, group: GroupCommit[_Call, Result], policy: Policy, batch: Batch, size: int) -> Result:
        size += BYTES_OF_A_RECORD * len(batch)
        try:
            return await group.submit(policy.topic.id, _Call(policy, batch, size))
        except Gone:
            # The topic may have been deleted, and made anew, through another process.
            self._shared.policies.forget(policy.topic.name)
            fresh = await self._shared.policies.queue(policy.topic.name)
            if fresh.topic.id == policy.topic.id:
                raise
            return await group.submit(fresh.topic.id, _Call(fresh, batch, size))

    async def enqueue_there(self, policy: Policy, batch: Batch, size: int) -> list[Seq]:
        """The same, into this very topic: what it raises where the topic was deleted is `Gone`, perhaps."""
        size += BYTES_OF_A_RECORD * len(batch)
        return await self.group.submit(policy.topic.id, _Call(policy, batch, size))

    async def enqueue_once(self, policy: Policy, batch: Batch, key: str) -> tuple[list[Seq], bool]:
        """The same, unless a batch was enqueued with this key within the topic's window: its seqs then, and whether.

        A transaction of its own for each, not a share of a group's statement: right rather than fast.
        """
        if self._waiting >= self._shared.max_waiting:
            raise Unavailable("Too many calls are waiting for this topic. Try again.")
        self._waiting += 1
        try:
            async with self._once_at_once:
                try:
                    return await self._once(policy, batch, key)
                except Gone:
                    self._shared.policies.forget(policy.topic.name)
                    fresh = await self._shared.policies.queue(policy.topic.name)
                    if fresh.topic.id == policy.topic.id:
                        raise
                    return await self._once(fresh, batch, key)
        finally:
            self._waiting -= 1

    def groups(self) -> dict[str, list[GroupCommit[Any, Any]]]:
        """Its group commits, by verb."""
        return {"enqueue": [self.group, self.keyed]}

    async def drain(self) -> None:
        """Wait for all that is under way."""
        await self.group.drain()
        await self.keyed.drain()

    async def _once(self, policy: Policy, batch: Batch, key: str) -> tuple[list[Seq], bool]:
        topic, config = policy.topic, policy.config
        began = time.monotonic()
        pool = self._shared.verbs(policy)
        await self._shared.lanes.ensure(pool, topic, batch)
        async with pool.acquire() as db, db.transaction():
            placed, known = await producer.enqueue_once(
                db, topic, policy.budget, batch, key, ttl_ms=config.ttl_ms, window_ms=config.idempotency_window_ms
            )
        if not known:
            self._placed(policy, batch, placed, began)
        return placed.seqs, known

    async def _commit(self, calls: Sequence[_Call]) -> list[list[Seq] | BaseException]:
        policy = calls[-1].policy
        topic = policy.topic
        batch = merge([call.batch for call in calls])
        db = self._shared.verbs(policy)
        await self._shared.lanes.ensure(db, topic, batch)
        seqs = await producer.enqueue(db, topic, batch, ttl_ms=policy.config.ttl_ms)
        self._numbers.shared([len(call.batch) for call in calls])
        self._added(policy, batch, len(batch), batch.undelayed)
        shares: list[list[Seq] | BaseException] = []
        start = 0
        for call in calls:
            shares.append(seqs[start : start + len(call.batch)])
            start += len(call.batch)
        return shares

    async def _commit_keyed(self, calls: Sequence[_Call]) -> list[Placed | BaseException]:
        policy = calls[-1].policy
        batch = merge([call.batch for call in calls])
        db = self._shared.verbs(policy)
        await self._shared.lanes.ensure(db, policy.topic, batch)
        began = time.monotonic()
        placed = await producer.upsert(db, policy.topic, policy.budget, batch, ttl_ms=policy.config.ttl_ms)
        self._numbers.shared([len(call.batch) for call in calls])
        self._placed(policy, batch, placed, began)
        shares: list[Placed | BaseException] = []
        start = 0
        for call in calls:
            mine = slice(start, start + len(call.batch))
            shares.append(replace(placed, seqs=placed.seqs[mine], updated=placed.updated[mine]))
            start += len(call.batch)
        return shares

    def _placed(self, policy: Policy, batch: Batch, placed: Placed, began: float) -> None:
        """`began`: when the statement was sent, by the monotonic clock."""
        self._added(policy, batch, len(batch) - sum(placed.updated), placed.ready + placed.due)
        if placed.due:
            self._shared.cursors.returned(policy.topic.id)
        if placed.touched:
            self._shared.cursors.touched(policy.topic.id, began)
            self._shared.waiters.added(policy.topic.id, placed.touched)

    def _added(self, policy: Policy, batch: Batch, new: int, ready: int) -> None:
        topic, topic_id = policy.topic, policy.topic.id
        delays = [delay for delay in batch.delays_ms if delay]
        self._shared.metrics.topic(topic.name).enqueued.add(new)
        self._shared.moved(topic, ready=ready)
        self._shared.waiters.added(topic_id, ready)
        self._shared.readers.wake(topic_id)
        if delays:
            self._shared.waiters.due_in(topic_id, min(delays) / 1000)
