"""The statements that enqueue jobs. docs/semantics.md, sections 7 and 8, describes keys and dedupe ids."""

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
    """Insert all records or none. Returns their seqs, ascending, in the order of the batch.

    `ttl_ms` is the topic's own, 0 for none. The batch's lanes must be known (`add_lanes`). Raises asyncpg's errors, one
    for a missing relation if the topic was deleted meanwhile.
    """
    seqs: list[Seq] = await db.fetchval(_ENQUEUE, topic.name, topic.id, topic.sequence, *batch.columns(), ttl_ms)
    return seqs


class Placement(msgspec.Struct, frozen=True):
    """The result for a batch with keys, groups or dedupe ids, in its order: for each record the job's seq, whether that
    job was waiting and was updated, and whether the record was dropped as a duplicate.

    `head_seq` is the last seq drawn, as far as known. `ready` and `due` jobs became claimable. `touched` jobs were
    waiting already and were locked meanwhile, so claims skipped them. `repeated`: a batch with the same idempotency key
    was enqueued before; the seqs and the head are those of that batch, and all records are duplicates.
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
    """For how many ms a topic remembers dedupe ids and idempotency keys."""

    ids_ms: int
    keys_ms: int


async def upsert(db: Connection, topic: Topic, budget: Budget, batch: Batch, *, ttl_ms: int) -> Placement:
    """Enqueue records with keys or groups, all or none. Otherwise as `enqueue`.

    A record with the tenant and key of a waiting job updates that job. Of several records with one key the last one
    counts, and all have its seq. A record whose group has a live job is blocked until that job ends, and so are all but
    the first of a group. Waits for transactions that write the same keys or groups. Raises SerializationError if a
    retry may succeed.
    """
    row = await db.fetchrow(_ENQUEUE_KEYED, *_with_keys(topic, budget, batch, ttl_ms), batch.groups)
    assert row is not None, "the statement always answers one row"
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
    """Enqueue batches of several callers, each with an idempotency key or None, whose records may have dedupe ids. A
    record or batch that was enqueued before, within its window, is not enqueued again. Returns a placement per batch,
    in order;
    the first one has `ready`, `due` and `touched` of all.

    All new records are enqueued or none. Of several records with one dedupe id the first one counts. Otherwise as
    `upsert`. Also waits for transactions with the same ids or idempotency keys.
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
    """Forget up to `limit` dedupe ids whose window has passed. Returns how many."""
    count: int = await db.fetchval(_SWEEP_DEDUPE, limit)
    return count


async def hook(db: Connection, topic: Topic, batch: Batch, placed: Placement) -> None:
    """Store the records' webhooks with their jobs, in the same transaction. Duplicates change no jobs."""
    dropped = set(placed.duplicates)
    given = [(placed.seqs[i], url) for i, url in enumerate(batch.webhooks) if url is not None and i not in dropped]
    if given and not placed.repeated:
        last = dict(given)  # the last of several with one key
        await db.execute(_HOOK, topic.name, sorted(last), [last[seq] for seq in sorted(last)])


async def add_lanes(db: Connection, topic: Topic, lanes: list[Lane]) -> None:
    """Record lanes before the first job in them is written."""
    tenants, priorities = [lane.tenant for lane in lanes], [lane.priority for lane in lanes]
    await db.execute(_ADD_LANES, topic.name, topic.id, tenants, priorities)
