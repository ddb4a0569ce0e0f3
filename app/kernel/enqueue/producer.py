"""Putting jobs into a queue. docs/semantics.md, sections 7 and 8, has what keys and dedupe ids mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Batch, Budget, Connection, Lane, Seq, Topic, merge

_ENQUEUE = sql.load(__package__, "enqueue")
_ENQUEUE_KEYED = sql.load(__package__, "enqueue_keyed")
_ENQUEUE_DEDUPED = sql.load(__package__, "enqueue_deduped")
_SQL: Final = sql.load_all(__package__)
_ADD_LANES = _SQL["add_lanes"]
_HOOK = _SQL["hook"]
_SWEEP_DEDUPE = _SQL["sweep_dedupe"]


async def enqueue(db: Connection, topic: Topic, batch: Batch, *, ttl_ms: int) -> list[Seq]:
    """Insert all records or none; their seqs, ascending, in the order of the batch.

    `ttl_ms` is the topic's own, 0 for none. The batch's lanes must be known (`add_lanes`). Raises asyncpg's errors;
    one for a missing relation when the topic was deleted meanwhile.
    """
    seqs: list[Seq] = await db.fetchval(_ENQUEUE, topic.name, topic.id, topic.sequence, *batch.columns(), ttl_ms)
    return seqs


class Placement(msgspec.Struct, frozen=True):
    """Where the records of a batch with keys, groups or dedupe ids are, in its order: a job's seq; whether that waited,
    and was updated; whether the record was dropped, as a duplicate of the one that made that job.

    `head_seq` is the last seq drawn, as far as is known. `ready` and `due` jobs became claimable; `touched` ones
    waited already, and were locked meanwhile, so that a claim went past them. `repeated`: a batch of the same
    idempotency key was there before, and the seqs and the head are its; all records are duplicates.
    """

    seqs: list[Seq]
    updated: list[bool]
    head_seq: int
    ready: int
    due: int
    touched: int
    duplicate: list[bool] = msgspec.field(default_factory=list)
    repeated: bool = False

    @property
    def duplicates(self) -> list[int]:
        """The places of the duplicates, from 0."""
        return [place for place, dropped in enumerate(self.duplicate) if dropped]

    @property
    def new(self) -> int:
        """How many jobs were added."""
        return len(self.updated) - sum(self.updated) - sum(self.duplicate)


class Windows(msgspec.Struct, frozen=True):
    """For how many ms a topic remembers dedupe ids, and idempotency keys."""

    ids_ms: int
    keys_ms: int


async def upsert(db: Connection, topic: Topic, budget: Budget, batch: Batch, *, ttl_ms: int) -> Placement:
    """Enqueue, with keys: a record whose tenant and key are those of a waiting job is written into it.

    And with groups: a record whose group has a live job is blocked until that is gone, as are all but the first of one
    group. All records or none. Of several with one key the last counts, and all have its seq. Otherwise as `enqueue`.
    Waits for others that write the same keys or groups, up to their commits; raises SerializationError where it is
    worth a retry.
    """
    row = await db.fetchrow(_ENQUEUE_KEYED, *_with_keys(topic, budget, batch, ttl_ms), batch.groups)
    assert row is not None, "it answers one row always"
    return Placement(*row)


async def enqueue_deduped(
    db: Connection,
    topic: Topic,
    budget: Budget,
    batches: Sequence[Batch],
    keys: Sequence[str | None],
    *,
    windows: Windows,
    ttl_ms: int,
) -> list[Placement]:
    """Several callers' batches, each perhaps with an idempotency key, of records that may have dedupe ids: what was
    enqueued before, within its window, is not enqueued again. What became of each batch, in order; `ready`, `due` and
    `touched` of all stand with the first.

    All that is new or none of it. Of several with one dedupe id the first counts. Otherwise as `upsert`; waits for
    others of the same ids or idempotency keys too.
    """
    batch = merge(batches)
    rows = await db.fetch(
        _ENQUEUE_DEDUPED,
        *_with_keys(topic, budget, batch, ttl_ms),
        *(batch.groups, batch.dedupe_ids, windows.ids_ms),
        *([len(part) for part in batches], keys, windows.keys_ms),
    )
    return [Placement(*row) for row in rows]


def _with_keys(topic: Topic, budget: Budget, batch: Batch, ttl_ms: int) -> list[object]:
    keys = [*batch.keys, *([None] * (len(batch) - len(batch.keys)))]
    return [
        *(topic.name, topic.id, topic.sequence),
        *batch.columns(),
        *(keys, ttl_ms, budget.ends, budget.max_deliveries),
    ]


async def sweep_dedupe(db: Connection, limit: int) -> int:
    """Forget up to `limit` dedupe ids whose window has passed: how many."""
    count: int = await db.fetchval(_SWEEP_DEDUPE, limit)
    return count


async def hook(db: Connection, topic: Topic, batch: Batch, placed: Placement) -> None:
    """Note which URLs are to hear of what becomes of these records' jobs, in the transaction that put them in. A
    duplicate's job is somebody else's, and stays as it is."""
    dropped = set(placed.duplicates)
    given = [(placed.seqs[i], url) for i, url in enumerate(batch.webhooks) if url is not None and i not in dropped]
    if given and not placed.repeated:
        last = dict(given)  # of several with one key
        await db.execute(_HOOK, topic.name, sorted(last), [last[seq] for seq in sorted(last)])


async def add_lanes(db: Connection, topic: Topic, lanes: list[Lane]) -> None:
    """Record that these lanes exist, before the first job in them does."""
    tenants, priorities = [lane.tenant for lane in lanes], [lane.priority for lane in lanes]
    await db.execute(_ADD_LANES, topic.name, topic.id, tenants, priorities)
