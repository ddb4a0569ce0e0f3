"""Appends to logs in group commits, and deletions in batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.metrics import Verb
from app.errors import TopicFull, TopicNotFound
from app.kernel.batching import GroupCommit, retry_lost_race
from app.kernel.counts import inspector
from app.kernel.enqueue.enqueues import BYTES_OF_A_RECORD, MOST_BYTES
from app.kernel.logs import log
from app.kernel.logs.log import AppendOutcome, AppendPart, AppendResult, DeletionPlace, Limits, TagMatch
from app.kernel.model import Batch, merge
from app.kernel.settle import exit_rows as exits
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.kernel.state import EngineState

DELETED_AT_ONCE: Final = 5_000


class _AppendCall(msgspec.Struct, frozen=True):
    policy: Policy
    batch: Batch
    part: AppendPart


class Logs:
    """Runs one append at a time for each log."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._numbers = Verb(state.metrics, "append")
        self.group: GroupCommit[_AppendCall, AppendResult] = GroupCommit(
            self._commit,
            max_waiting=state.max_waiting,
            most=MOST_BYTES,
            weight=lambda call: call.part.bytes + BYTES_OF_A_RECORD * call.part.records,
        )

    async def append(self, policy: Policy, batch: Batch, size: int, key: str | None) -> AppendResult:
        """Append the batch, all or nothing. `size` is the bytes of its payloads and metadata. Its seqs are contiguous.

        When it returns, the commit is flushed if the topic is durable. Raises SchemaViolation; TopicFull (nothing was
        appended); Unavailable (it may have been appended; with a key it is safe to repeat); Throttled; TopicNotFound.
        """
        await self._check(policy, batch)
        if self._state.room.most:
            await self._state.room.take(size)
        part = AppendPart(len(batch), size, key)
        try:
            appended = await self.group.submit(policy.topic.id, _AppendCall(policy, batch, part))
        except log.Gone:
            # Another process has deleted the topic, and may have created it again.
            self._state.policies.forget(policy.topic.name)
            policy = await self._state.policies.get(policy.topic.name)
            if policy.config.type is not TopicType.LOG:
                raise TopicNotFound(policy.topic.name) from None
            await self._check(policy, batch)
            appended = await self.group.submit(policy.topic.id, _AppendCall(policy, batch, part))
        if appended.outcome is AppendOutcome.FULL:
            config = policy.config
            raise TopicFull(
                f"Topic {policy.topic.name!r} is full.",
                {
                    "cap_records": config.cap_records,
                    "cap_bytes": config.cap_bytes,
                    "head_seq": appended.head_seq,
                    "earliest_seq": appended.earliest_seq,
                },
            )
        return appended

    async def _check(self, policy: Policy, batch: Batch) -> None:
        """Check a batch before it joins others. Raises SchemaViolation."""
        if policy.schema_version is not None:
            await self._state.checks.must_fit(policy, batch.payloads, batch.content_types)

    async def delete(self, policy: Policy, before: int | None, match: TagMatch) -> int:
        """Delete matching records below `before` (None: all) that exist now, for good. Returns how many.

        Deletes in batches: appends and reads run in between, and a deletion that is interrupted has done a part. Raises
        TopicNotFound.
        """
        topic, db = policy.topic, self._state.pools.rest
        state = (await log.states(db, [(topic, 0)])).get(topic.name)
        if state is None:
            raise TopicNotFound(topic.name)
        upto = state.head_seq if before is None else min(state.head_seq, before - 1)
        count = 0
        place: DeletionPlace | None = DeletionPlace()
        try:
            # Records that are too old count as lost to age, which readers are told, and not as deleted here.
            limits = Limits(ttl_ms=policy.config.ttl_ms)
            while limits.ttl_ms and await log.trim(db, topic, limits, DELETED_AT_ONCE) == DELETED_AT_ONCE:
                pass
            while place is not None:
                done = await log.delete(db, topic, match, place, upto=upto, limit=DELETED_AT_ONCE)
                count, place = count + done.count, done.next
        except log.Gone:
            raise TopicNotFound(topic.name) from None
        return count

    async def delete_jobs(self, policy: Policy, before: int | None, match: TagMatch) -> tuple[int, int]:
        """Cancel a queue's matching jobs that exist now. Returns how many waited and were deleted for good, and how
        many are leased and were marked, as by a cancel."""
        topic, db = policy.topic, self._state.verbs(policy)
        drawn = (await inspector.draws(db, [topic])).get(topic.id)
        if drawn is None:
            raise TopicNotFound(topic.name)
        upto = drawn.drawn if before is None else min(drawn.drawn, before - 1)
        count = marked = 0
        after: int | None = 0
        while after is not None and after < upto:
            # It locks by seq, and enqueues of jobs with keys lock by key.
            done = await retry_lost_race(
                partial(exits.delete, db, topic, match, after=after, upto=upto, limit=DELETED_AT_ONCE)
            )
            self._state.note_move(topic, ready=-done.ready)
            count, marked, after = count + done.count, marked + done.marked, done.last_seq
        await self._state.groups.let_next_through(policy)
        return count, marked

    async def _commit(self, calls: Sequence[_AppendCall]) -> list[AppendResult | BaseException]:
        policy = calls[-1].policy
        batch = merge([call.batch for call in calls])
        parts = [call.part for call in calls]
        shares = await log.append(self._state.verbs(policy), policy.topic, batch, parts, policy.log_limits)
        written = sum(
            part.records for part, share in zip(parts, shares, strict=True) if share.outcome is AppendOutcome.WRITTEN
        )
        self._numbers.count_statement([part.records for part in parts])
        if written:
            self._state.metrics.topic(policy.topic.name).appended.add(written)
            self._state.readers.note_append(policy.topic.id, written)
        return list(shares)
