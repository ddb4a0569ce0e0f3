"""Enqueues that look at existing jobs. A record with a key updates the waiting job with that key. A record with a group
waits behind the group's other jobs. A record with a dedupe id or idempotency key is not enqueued twice.
docs/semantics.md, sections 6 to 8; docs/adr/0025 and 0033."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from app.base.db.pool import Pool
from app.errors import HoldfastError, Throttled, TopicFull
from app.kernel.batching import MustSplit
from app.kernel.enqueue import bounds, producer
from app.kernel.enqueue.bounds import Clearance, Refusal
from app.kernel.enqueue.producer import Placement, Windows
from app.kernel.model import Batch, Session, merge
from app.kernel.state import EngineState
from app.kernel.topics.policy import FIFO, Policy


def with_ids(policy: Policy, batch: Batch) -> Batch:
    """The batch with the dedupe ids that its topic uses."""
    if policy.config.dedupe_window_ms == 0:
        return replace(batch, dedupe_ids=[]) if batch.dedupe_ids else batch
    if not policy.topic.name.endswith(FIFO):
        return batch
    given = [*batch.dedupe_ids, *([None] * (len(batch) - len(batch.dedupe_ids)))]
    ids: list[str | None] = [
        sha256(payload).hexdigest() if dedupe_id is None else dedupe_id
        for dedupe_id, payload in zip(given, batch.payloads, strict=True)
    ]
    return replace(batch, dedupe_ids=ids)


class Write(msgspec.Struct, frozen=True):
    """A caller's batch, and its idempotency key if it has one."""

    batch: Batch
    key: str | None = None

    @property
    def looks_back(self) -> bool:
        """Whether it depends on earlier enqueues."""
        return self.key is not None or bool(self.batch.dedupe_ids)


class Placements(msgspec.Struct, frozen=True):
    """Results of several callers: a placement or an error each. `written`: the batches to announce after the commit."""

    shares: list[Placement | BaseException]
    written: list[tuple[Batch, Placement]]
    room: Clearance = msgspec.field(default_factory=Clearance)

    @property
    def new(self) -> int:
        """How many jobs were added."""
        return sum(placed.new for _, placed in self.written)

    def add(self, more: Placements) -> None:
        """Add results of the same transaction."""
        self.shares.extend(more.shares)
        self.written.extend(more.written)
        self.room.expired += more.room.expired
        self.room.evicted += more.room.evicted


class Upserts:
    """Runs the statements, and announces their jobs. `tell` is called with a batch, how many of its records are new,
    and how many jobs became claimable."""

    def __init__(self, state: EngineState, tell: Callable[[Policy, Batch, int, int], None]) -> None:
        self._state = state
        self._tell = tell

    async def place(self, db: Pool | Session, policy: Policy, writes: Sequence[Write]) -> Placements:
        """Write batches whose lanes are known, in one statement, and store their webhooks.

        For a topic with bounds, and for records with webhooks, `db` must be in a transaction. If there is no room for
        all of several batches, it raises MustSplit. Each batch then needs a transaction of its own, because in one
        transaction they would lock groups and keys in any order.
        """
        placements = await self._place(db, policy, writes)
        for batch, placed in placements.written:
            if batch.webhooks:
                await producer.hook(db, policy.topic, batch, placed)
        return placements

    async def _place(self, db: Pool | Session, policy: Policy, writes: Sequence[Write]) -> Placements:
        if policy.bounds is None:
            return await _write(db, policy, writes)
        found, room = await bounds.upsert(
            db,  # type: ignore[arg-type]
            policy.topic,
            partial(_write, db, policy, writes),
            policy.bounds,
            makes_room=len(writes) == 1,
            budget=policy.budget,
            lows=self._state.marks.lows(policy.topic.id),
        )
        if not isinstance(found, Refusal):
            return replace(found, room=room)
        if len(writes) > 1:
            raise MustSplit
        self._state.metrics.topic(policy.topic.name).refused.add(len(writes[0].batch))
        return Placements([refusal_error(policy, found)], [], room)

    def announce(self, policy: Policy, placements: Placements, began: float) -> None:
        """Wake callers after the commit. `began`: when the statement was sent, by the monotonic clock."""
        topic = policy.topic
        numbers, room = self._state.metrics.topic(topic.name), placements.room
        numbers.expired.add(room.expired)
        numbers.evicted.add(room.evicted)
        self._state.note_move(topic, ready=-room.evicted)
        for batch, placed in placements.written:
            numbers.duplicates.add(sum(placed.duplicate))
            self._tell(policy, batch, placed.new, placed.ready + placed.due)
            if placed.due:
                self._state.marks.look_at_due(topic.id)
            if placed.touched:
                self._state.marks.note_change(topic.id, began)
                self._state.waiters.announce(topic.id, placed.touched)


async def _write(db: Pool | Session, policy: Policy, writes: Sequence[Write]) -> Placements:
    batches = [write.batch for write in writes]
    if any(write.looks_back for write in writes):
        found = await _write_deduped(db, policy, writes)
        return Placements([*found], list(zip(batches, found, strict=True)))
    batch = merge(batches)
    placed = await producer.upsert(db, policy.topic, policy.budget, batch, ttl_ms=policy.config.ttl_ms)
    shares: list[Placement | BaseException] = []
    start = 0
    for part in batches:
        mine = slice(start, start + len(part))
        shares.append(replace(placed, seqs=placed.seqs[mine], updated=placed.updated[mine]))
        start += len(part)
    return Placements(shares, [(batch, placed)])


async def _write_deduped(db: Pool | Session, policy: Policy, writes: Sequence[Write]) -> list[Placement]:
    config = policy.config
    batches, keys = [write.batch for write in writes], [write.key for write in writes]
    windows = Windows(config.dedupe_window_ms, config.idempotency_window_ms)
    return await producer.enqueue_deduped(
        db, policy.topic, policy.budget, batches, keys, windows=windows, ttl_ms=config.ttl_ms
    )


def refusal_error(policy: Policy, refusal: Refusal) -> HoldfastError:
    """The error for a caller whose batch was refused."""
    name, config = policy.topic.name, policy.config
    if refusal is Refusal.TOO_DEEP:
        return Throttled(
            f"Topic {name!r} has reached its max_depth, or has no room for all of these jobs. Try again.",
            {"topic": name, "limit": "max_depth", "max": config.max_depth},
        )
    return TopicFull(f"Topic {name!r} is full.", {"cap_records": config.cap_records, "cap_bytes": config.cap_bytes})
