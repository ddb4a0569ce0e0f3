"""What people do to jobs that are not theirs to work on: cancel them, change them. docs/semantics.md, section 19."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.claim.consumer import MAX_RUNS
from app.kernel.model import Connection, Seq, Topic

_SQL: Final = sql.load_all(__package__)
_CANCEL = _SQL["cancel_jobs"]
_CHANGE = _SQL["change_job"]


class Cancelled(msgspec.Struct):
    """Of jobs that were to be cancelled, which are gone, and which are marked for their holders; the rest was not
    there, or over. `ready`: how many of those that are gone were fresh."""

    gone: set[Seq] = msgspec.field(default_factory=set)
    marked: set[Seq] = msgspec.field(default_factory=set)
    ready: int = 0


async def cancel(db: Connection, topic: Topic, seqs: Sequence[Seq]) -> Cancelled:
    """Cancel jobs: what waits is gone, what is leased is marked. `seqs` must ascend, each once."""
    assert all(a < b for a, b in itertools.pairwise(seqs)), "seqs must ascend: rows are locked in this order"
    done = Cancelled()
    left = list(seqs)
    for _ in range(MAX_RUNS):
        row = await db.fetchrow(_CANCEL, topic.name, topic.id, left)
        assert row is not None, "it answers one row always"
        done.gone.update(left[i - 1] for i in row["gone"])
        done.marked.update(left[i - 1] for i in row["marked"])
        done.ready += row["ready"]
        left = [left[i - 1] for i in row["picked"]]
        left = sorted(seq for seq in left if seq not in done.gone and seq not in done.marked)
        if not left:
            break
    return done


class Payload(msgspec.Struct, frozen=True):
    """A payload and its type; None is application/json."""

    body: bytes
    content_type: str | None


class Change(msgspec.Struct, frozen=True):
    """What is to be different; None: nothing. `metadata` and `tag` are None to take them away, where `clears` says so.
    Of `delay_ms` and `run_at` the later counts."""

    payload: Payload | None = None
    metadata: str | None = None
    tag: str | None = None
    priority: int | None = None
    delay_ms: int | None = None
    run_at: datetime | None = None
    clears: frozenset[str] = frozenset()


class Changed(msgspec.Struct, frozen=True):
    """What a job was when it was to be changed: `status` is None if it was not there, `pending` if it is changed. Its
    state before, and whether it is fresh now, or its time has come."""

    status: str | None
    was: str | None
    ready: bool
    due: bool


async def change(db: Connection, topic: Topic, seq: Seq, to: Change) -> Changed:
    """Change a job that waits, whose lane with a new priority is known. Raises UniqueViolationError where another job
    of its key waits."""
    payload = to.payload
    row = None
    while row is None or (not row["changed"] and row["status"] == "pending"):
        row = await db.fetchrow(
            _CHANGE,
            topic.name,
            topic.id,
            topic.sequence,
            seq,
            None if payload is None else payload.body,
            None if payload is None else payload.content_type,
            to.metadata is not None or "metadata" in to.clears,
            to.metadata,
            to.tag is not None or "tag" in to.clears,
            to.tag,
            to.priority,
            to.delay_ms,
            to.run_at,
        )
        assert row is not None, "it answers one row always"
    return Changed(row["status"], row["was"], row["ready"], row["due"])
