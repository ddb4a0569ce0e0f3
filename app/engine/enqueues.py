"""Enqueues, in groups: of jobs, and of jobs with keys; those with an idempotency key, one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg

from app.engine.group import GroupCommit
from app.engine.upserts import Placements, Upserts, refused
from app.errors import TooManyWaiting
from app.metrics.numbers import Verb
from app.queue import bounds, producer
from app.queue.bounds import Refusal
from app.queue.model import Batch, Seq, merge
from app.queue.producer import Placed
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.shared import Shared
    from app.queue.bounds import Bounds
    from app.queue.model import Connection, Session

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
        self._upserts = Upserts(shared, self._added)
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

        When it returns, the commit is flushed if the topic is durable. Raises SchemaViolation, Throttled and TopicFull
        (there is no room for all of it: nothing was put in), Unavailable (it may have happened), TopicNotFound,
        NotAQueue, and asyncpg's errors for what the database refuses.
        """
        if batch.keys:
            return (await self.upsert(policy, batch, size)).seqs
        return await self._submit(self.group, policy, batch, size)

    async def upsert(self, policy: Policy, batch: Batch, size: int) -> Placed:
        """The same for a batch with keys, and what became of each record. docs/semantics.md, section 7."""
        return await self._submit(self.keyed, policy, batch, size)

    async def _submit(self, group: GroupCommit[_Call, Result], policy: Policy, batch: Batch, size: int) -> Result:
        await self._check(policy, batch)
        if self._shared.room.most:
            await self._shared.room.take(size)
        size += BYTES_OF_A_RECORD * len(batch)
        try:
            return await group.submit(policy.topic.id, _Call(policy, batch, size))
        except Gone:
            # The topic may have been deleted, and made anew, through another process.
            self._shared.policies.forget(policy.topic.name)
            fresh = await self._shared.policies.queue(policy.topic.name)
            if fresh.topic.id == policy.topic.id:
                raise
            await self._check(fresh, batch)
            return await group.submit(fresh.topic.id, _Call(fresh, batch, size))

    async def _check(self, policy: Policy, batch: Batch) -> None:
        """Before a batch joins others, which are none of its faults. Raises SchemaViolation."""
        if policy.schema_version is not None:
            await self._shared.checks.must_fit(policy, batch.payloads, batch.content_types)

    async def enqueue_there(self, policy: Policy, batch: Batch, size: int) -> list[Seq]:
        """As `enqueue`, into this very topic: what it raises where the topic was deleted is `Gone`, perhaps."""
        await self._check(policy, batch)
        if self._shared.room.most:
            await self._shared.room.take(size)
        call = _Call(policy, batch, size + BYTES_OF_A_RECORD * len(batch))
        if batch.keys:
            return (await self.keyed.submit(policy.topic.id, call)).seqs
        return await self.group.submit(policy.topic.id, call)

    async def enqueue_once(self, policy: Policy, batch: Batch, size: int, key: str) -> tuple[list[Seq], bool]:
        """The same, unless a batch was enqueued with this key within the topic's window: its seqs then, and whether.

        A transaction of its own for each, not a share of a group's statement: right rather than fast.
        """
        if self._waiting >= self._shared.max_waiting:
            raise TooManyWaiting(self._shared.max_waiting)
        await self._check(policy, batch)
        if self._shared.room.most:
            await self._shared.room.take(size)
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
                    await self._check(fresh, batch)
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
        pool = self._shared.verbs(policy)
        await self._shared.lanes.ensure(pool, topic, batch)

        began = time.monotonic()
        placed: Placements | None = None

        async def put(db: Session) -> list[Seq]:
            nonlocal placed
            if batch.keys:
                placed = await self._upserts.place(db, policy, [batch])
                return placed.only().seqs
            if policy.bounds is None:
                return await producer.enqueue(db, topic, batch, ttl_ms=config.ttl_ms)
            [share] = await self._within(db, policy, policy.bounds, [batch])
            if isinstance(share, BaseException):
                raise share
            return share

        async with pool.acquire() as db, db.transaction():
            seqs, known = await producer.enqueue_once(db, topic, key, put, window_ms=config.idempotency_window_ms)
        if placed is not None:
            self._upserts.announce(policy, placed, began)
        elif not known:
            self._added(policy, batch, len(batch), batch.undelayed)
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
        self._added(policy, batch, len(batch), batch.undelayed)
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
            added = merge(taken)
            self._added(policy, added, len(added), added.undelayed)
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
                shares.append(refused(policy, share))
            else:
                shares.append(share)
        return shares

    async def _commit_keyed(self, calls: Sequence[_Call]) -> list[Placed | BaseException]:
        policy = calls[-1].policy
        batches = [call.batch for call in calls]
        pool = self._shared.verbs(policy)
        for batch in batches:
            await self._shared.lanes.ensure(pool, policy.topic, batch)
        began = time.monotonic()
        if policy.bounds is None:
            placed = await self._upserts.place(pool, policy, batches)
        else:
            async with pool.acquire() as db, db.transaction():
                placed = await self._upserts.place(db, policy, batches)
        self._numbers.shared([len(batch) for batch in batches])
        self._upserts.announce(policy, placed, began)
        return placed.shares

    def _added(self, policy: Policy, batch: Batch, new: int, ready: int) -> None:
        topic, topic_id = policy.topic, policy.topic.id
        delays = [delay for delay in batch.delays_ms if delay]
        self._shared.metrics.topic(topic.name).enqueued.add(new)
        self._shared.moved(topic, ready=ready)
        self._shared.waiters.added(topic_id, ready, batch.owners())
        self._shared.readers.wake(topic_id)
        if delays:
            self._shared.waiters.due_in(topic_id, min(delays) / 1000)
