"""Enqueues of jobs with keys: what waits is updated. docs/semantics.md, section 7; docs/adr/0025."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.errors import HoldfastError, Throttled, TopicFull
from app.queue import bounds, producer
from app.queue.bounds import Refusal, Room
from app.queue.model import Batch, merge
from app.queue.producer import Placed
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.db.pool import Pool
    from app.engine.shared import Shared
    from app.queue.model import Session


@dataclass(frozen=True, slots=True)
class Placements:
    """What became of callers' batches: of each its share, or the error for its caller; and what to announce of it once
    it is committed."""

    shares: list[Placed | BaseException]
    written: list[tuple[Batch, Placed]]
    room: Room = field(default_factory=Room)

    def only(self) -> Placed:
        """The only caller's share. Raises its error."""
        [share] = self.shares
        if isinstance(share, BaseException):
            raise share
        return share


class Upserts:
    """The statements, and who hears of them. `added`: told of a batch, of how many of its records are new, and of how
    many jobs became claimable by it."""

    def __init__(self, shared: Shared, added: Callable[[Policy, Batch, int, int], None]) -> None:
        self._shared = shared
        self._added = added

    async def place(self, db: Pool | Session, policy: Policy, batches: Sequence[Batch]) -> Placements:
        """Write batches whose lanes are known. For a topic with bounds, `db` is in a transaction of its own."""
        if policy.bounds is not None:
            return await self._place_within(db, policy, policy.bounds, batches)  # type: ignore[arg-type]
        batch = merge(batches)
        placed = await producer.upsert(db, policy.topic, policy.budget, batch, ttl_ms=policy.config.ttl_ms)
        shares: list[Placed | BaseException] = []
        start = 0
        for part in batches:
            mine = slice(start, start + len(part))
            shares.append(replace(placed, seqs=placed.seqs[mine], updated=placed.updated[mine]))
            start += len(part)
        return Placements(shares, [(batch, placed)])

    async def _place_within(
        self, db: Session, policy: Policy, limits: bounds.Bounds, batches: Sequence[Batch]
    ) -> Placements:
        found, room = await bounds.upsert(
            db,
            policy.topic,
            policy.budget,
            batches,
            limits,
            ttl_ms=policy.config.ttl_ms,
            lows=self._shared.cursors.lows(policy.topic.id),
        )
        shares: list[Placed | BaseException] = []
        written: list[tuple[Batch, Placed]] = []
        for batch, share in zip(batches, found, strict=True):
            if isinstance(share, Refusal):
                self._shared.metrics.topic(policy.topic.name).refused.add(len(batch))
                shares.append(refused(policy, share))
            else:
                shares.append(share)
                written.append((batch, share))
        return Placements(shares, written, room)

    def announce(self, policy: Policy, placements: Placements, began: float) -> None:
        """Tell who waits of what is committed. `began`: when it was sent, by the monotonic clock."""
        topic = policy.topic
        numbers, room = self._shared.metrics.topic(topic.name), placements.room
        numbers.expired.add(room.expired)
        numbers.evicted.add(room.evicted)
        self._shared.moved(topic, ready=-room.evicted)
        for batch, placed in placements.written:
            self._added(policy, batch, len(batch) - sum(placed.updated), placed.ready + placed.due)
            if placed.due:
                self._shared.cursors.returned(topic.id)
            if placed.touched:
                self._shared.cursors.touched(topic.id, began)
                self._shared.waiters.added(topic.id, placed.touched)


def refused(policy: Policy, refusal: Refusal) -> HoldfastError:
    """What a caller is told for whose batch there is no room."""
    name, config = policy.topic.name, policy.config
    if refusal is Refusal.TOO_DEEP:
        return Throttled(
            f"Topic {name!r} holds as many jobs as it may, or has no room for all of these. Try again.",
            {"topic": name, "limit": "max_depth", "max": config.max_depth},
        )
    return TopicFull(f"Topic {name!r} is full.", {"cap_records": config.cap_records, "cap_bytes": config.cap_bytes})
