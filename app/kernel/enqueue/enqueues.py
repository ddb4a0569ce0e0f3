"""Enqueues in group commits: of plain jobs, of jobs with keys or groups, and of batches that may be duplicates."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import asyncpg
import msgspec

from app.base.metrics import Verb
from app.errors import Draining
from app.kernel.batching import GroupCommit, MustSplit
from app.kernel.enqueue import bounds, producer
from app.kernel.enqueue.bounds import Bounds, Refusal
from app.kernel.enqueue.producer import Placement
from app.kernel.enqueue.upserts import Placements, Upserts, Write, refusal_error, with_ids
from app.kernel.model import Batch, Connection, Seq, Session, merge
from app.kernel.state import EngineState
from app.kernel.topics import webhooks
from app.kernel.topics.policy import Policy, check_groups

MOST_BYTES: Final = 8 * 1024 * 1024  # of payloads in one shared statement
Gone = asyncpg.InternalServerError  # raised for a missing sequence, among other things
BYTES_OF_A_RECORD: Final = 512  # assumed size of a record's other columns, so that empty payloads are bounded too


class _EnqueueCall(msgspec.Struct, frozen=True):
    policy: Policy
    write: Write
    size: int

    @property
    def batch(self) -> Batch:
        return self.write.batch


class Put(msgspec.Struct, frozen=True):
    """The result of an insert in a transaction that is not committed yet."""

    shares: list[list[Seq] | BaseException]  # each batch's seqs, or the error for its caller
    announce: Callable[[], None]  # wakes callers; call it after the commit
    duplicates: frozenset[int] = frozenset()  # places of batches whose records were all enqueued before


class Enqueues:
    """Runs one statement at a time for each topic, and one more each for jobs with keys or groups and for batches that
    may be duplicates. The latter two wait for transactions with the same keys, groups and ids."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._numbers = Verb(state.metrics, "enqueue")
        self.group: GroupCommit[_EnqueueCall, list[Seq]] = GroupCommit(
            self._commit, max_waiting=state.max_waiting, most=MOST_BYTES, weight=lambda call: call.size
        )
        self._upserts = Upserts(state, self._announce)
        self.keyed: GroupCommit[_EnqueueCall, Placement] = GroupCommit(
            self._commit_placed, max_waiting=state.max_waiting, most=MOST_BYTES, weight=lambda call: call.size
        )
        self.deduped: GroupCommit[_EnqueueCall, Placement] = GroupCommit(
            self._commit_placed, max_waiting=state.max_waiting, most=MOST_BYTES, weight=lambda call: call.size
        )

    async def enqueue(self, policy: Policy, batch: Batch, size: int) -> list[Seq]:
        """Put the batch into its queue, all or nothing. `size` is the bytes of its payloads. Returns its seqs, in its
        order. They ascend, except for records that updated a waiting job, and for duplicates.

        When it returns, the commit is flushed if the topic is durable. Raises SchemaViolation; Throttled and TopicFull
        (there is no room for the whole batch, and nothing was added); Unavailable (the batch may have been added);
        TopicNotFound; NotAQueue; asyncpg's errors if the database refuses.
        """
        found = await self.place(policy, batch, size)
        return found.seqs if isinstance(found, Placement) else found

    async def place(self, policy: Policy, batch: Batch, size: int, key: str | None = None) -> list[Seq] | Placement:
        """The same, for batches with keys, groups, dedupe ids or an idempotency key too: these get a Placement.
        docs/semantics.md, sections 6 to 8."""
        return (await self.place_as_found(policy, batch, size, key, self._state.policies.queue))[1]

    async def place_as_found(
        self, policy: Policy, batch: Batch, size: int, key: str | None, find: Callable[[str], Awaitable[Policy]]
    ) -> tuple[Policy, list[Seq] | Placement]:
        """The same. Also returns the policy of the topic that has the jobs: if the given topic was deleted, it is the
        one that `find` returns for its name."""

        async def put(policy: Policy) -> tuple[Policy, list[Seq] | Placement]:
            return policy, await self._place(policy, _write(policy, batch, key), size)

        return await self._state.policies.run_again_if(Gone, policy, put, find)

    async def _place(self, policy: Policy, write: Write, size: int) -> list[Seq] | Placement:
        batch = write.batch
        await self.admit(policy, batch, size)
        call = _EnqueueCall(policy, write, size + BYTES_OF_A_RECORD * len(batch))
        if write.looks_back:
            return await self.deduped.submit(policy.topic.id, call)
        if batch.is_placed_singly:
            return await self.keyed.submit(policy.topic.id, call)
        return await self.group.submit(policy.topic.id, call)

    async def admit(self, policy: Policy, batch: Batch, size: int) -> None:
        """Check a batch before it joins others or is passed to `put`, so that its errors don't affect others.

        Raises Draining, InvalidRequest, SchemaViolation, Throttled, TopicNotFound, and asyncpg's errors.
        """
        if policy.control.draining:
            raise Draining(policy.topic.name)
        check_groups(policy.topic.name, batch)
        if batch.webhooks or webhooks.is_own(policy.topic.name):
            webhooks.check_records(policy.topic.name, policy.config.webhook, signs=self._state.signs)
        if policy.schema_version is not None:
            await self._state.checks.must_fit(policy, batch.payloads, batch.content_types)
        if self._state.room.most:
            await self._state.room.take(size)

    async def put(self, db: Session, policy: Policy, batches: Sequence[Batch]) -> Put:
        """Put batches into their queue within the caller's transaction, each whole or not at all. They must have been
        admitted, and their lanes be known; for a queue with bounds, all must have the same groups and keys. Raises
        asyncpg's errors, and `Gone` if the topic may have been deleted."""
        writes = [_write(policy, batch, None) for batch in batches]
        if any(write.looks_back or write.batch.is_placed_singly for write in writes):
            began = time.monotonic()
            try:
                placed = await self._upserts.place(db, policy, writes)
            except MustSplit:
                placed = Placements([], [])
                for write in writes:
                    placed.add(await self._upserts.place(db, policy, [write]))
            shares = [one if isinstance(one, BaseException) else one.seqs for one in placed.shares]
            known = [isinstance(one, Placement) and bool(one.duplicate) and all(one.duplicate) for one in placed.shares]
            duplicates = frozenset(place for place, all_known in enumerate(known) if all_known)
            return Put(shares, partial(self._upserts.announce, policy, placed, began), duplicates)
        if policy.bounds is None:
            seqs = iter(await producer.enqueue(db, policy.topic, merge(batches), ttl_ms=policy.config.ttl_ms))
            shares = [list(islice(seqs, len(batch))) for batch in batches]
        else:
            shares = await self._within(db, policy, policy.bounds, batches)
        taken = merge([batch for batch, share in zip(batches, shares, strict=True) if isinstance(share, list)])
        return Put(
            shares,
            partial(self._announce, policy, taken, len(taken), taken.ready_count) if taken else _announce_nothing,
        )

    def groups(self) -> dict[str, list[GroupCommit[Any, Any]]]:
        return {"enqueue": [self.group, self.keyed, self.deduped]}

    async def drain(self) -> None:
        """Wait for all statements under way."""
        await self.group.drain()
        await self.keyed.drain()
        await self.deduped.drain()

    async def _commit(self, calls: Sequence[_EnqueueCall]) -> list[list[Seq] | BaseException]:
        policy = calls[-1].policy
        topic = policy.topic
        batch = merge([call.batch for call in calls])
        db = self._state.verbs(policy)
        await self._state.lanes.ensure(db, topic, batch)
        if policy.bounds is not None:
            return await self._commit_within(policy, policy.bounds, calls)
        seqs = await producer.enqueue(db, topic, batch, ttl_ms=policy.config.ttl_ms)
        self._numbers.count_statement([len(call.batch) for call in calls])
        self._announce(policy, batch, len(batch), batch.ready_count)
        shares: list[list[Seq] | BaseException] = []
        start = 0
        for call in calls:
            shares.append(seqs[start : start + len(call.batch)])
            start += len(call.batch)
        return shares

    async def _commit_within(
        self, policy: Policy, limits: Bounds, calls: Sequence[_EnqueueCall]
    ) -> list[list[Seq] | BaseException]:
        async with self._state.verbs(policy).acquire() as db, db.transaction():
            shares = await self._within(db, policy, limits, [call.batch for call in calls])
        taken = [call.batch for call, share in zip(calls, shares, strict=True) if isinstance(share, list)]
        if taken:
            self._numbers.count_statement([len(batch) for batch in taken])
            added = merge(taken)
            self._announce(policy, added, len(added), added.ready_count)
        return shares

    async def _within(
        self, db: Connection, policy: Policy, limits: Bounds, batches: Sequence[Batch]
    ) -> list[list[Seq] | BaseException]:
        """Enqueue the batches that have room. Returns each one's seqs, or the error for its caller."""
        topic = policy.topic
        lows = self._state.marks.lows(topic.id)
        taken, room = await bounds.enqueue(
            db, topic, policy.budget, batches, limits, ttl_ms=policy.config.ttl_ms, lows=lows
        )
        numbers = self._state.metrics.topic(topic.name)
        numbers.expired.add(room.expired)
        numbers.evicted.add(room.evicted)
        self._state.note_move(topic, ready=-room.evicted)
        shares: list[list[Seq] | BaseException] = []
        for batch, share in zip(batches, taken, strict=True):
            if isinstance(share, Refusal):
                numbers.refused.add(len(batch))
                shares.append(refusal_error(policy, share))
            else:
                shares.append(share)
        return shares

    async def _commit_placed(self, calls: Sequence[_EnqueueCall]) -> list[Placement | BaseException]:
        policy = calls[-1].policy
        writes = [call.write for call in calls]
        pool = self._state.verbs(policy)
        for write in writes:
            await self._state.lanes.ensure(pool, policy.topic, write.batch)
        began = time.monotonic()
        if policy.bounds is None and not any(write.batch.webhooks for write in writes):
            placed = await self._upserts.place(pool, policy, writes)
        else:
            async with pool.acquire() as db, db.transaction():
                placed = await self._upserts.place(db, policy, writes)
        self._numbers.count_statement([len(write.batch) for write in writes])
        self._upserts.announce(policy, placed, began)
        return placed.shares

    def _announce(self, policy: Policy, batch: Batch, new: int, ready: int) -> None:
        topic, topic_id = policy.topic, policy.topic.id
        if batch.groups:
            self._state.groups.note(topic_id)
        delays = [delay for delay in batch.delays_ms if delay]
        self._state.metrics.topic(topic.name).enqueued.add(new)
        if new:
            self._state.writes.note(topic_id)
        self._state.note_move(topic, ready=ready)
        self._state.waiters.announce(topic_id, ready, batch.owners(), batch.tags)
        self._state.readers.wake(topic_id)
        if delays:
            self._state.waiters.due_in(topic_id, min(delays) / 1000)
            self._state.fairness.note_delays(topic_id, batch)


def _write(policy: Policy, batch: Batch, key: str | None) -> Write:
    """The batch and its key, without the ids that the topic ignores."""
    return Write(with_ids(policy, batch), key if policy.config.idempotency_window_ms else None)


def _announce_nothing() -> None:
    """For a transaction that added no jobs."""


NOTHING: Final = Put([], _announce_nothing)
