"""Results of jobs, and the progress that workers report with heartbeats. docs/semantics.md, sections 3 and 20."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection, LeaseId, Seq, Topic

_SQL: Final = sql.load_all(__package__)
_COMPLETED = _SQL["completed"]
_FIND = _SQL["find_result"]
_UNENDED = _SQL["unended"]

MAX_BYTES: Final = 1024 * 1024  # of one result


class Progress(msgspec.Struct, frozen=True):
    """The progress of a job that its holder reported: 0 to 100, with a note. `at_ms` is when, in ms since 1970."""

    percent: int
    note: str | None = None
    at_ms: int = 0


class Result(msgspec.Struct, frozen=True):
    """A job's result as JSON, with the topic and the delivery it was completed in. Times are in ms since 1970;
    `expires_ms` is None if the result is kept for ever. `kept`: whether it can still be shown."""

    topic: str
    completed_ms: int
    expires_ms: int | None
    deliveries: int
    result: str
    kept: bool


class Keep(msgspec.Struct, frozen=True):
    """What an ack keeps: results for how long (0: for ever), whether the jobs go into the archive, and whether their
    topic's webhook gets events."""

    ttl_ms: int = 0
    archived: bool = False
    has_webhook: bool = False


NOTHING: Final = Keep()


class AckCounts(msgspec.Struct):
    """Counts of completed jobs, in no order: how many deliveries each took, and where it is known, the time since the
    last claim in ms with the job's tenant."""

    deliveries: list[int] = msgspec.field(default_factory=list)
    ages_ms: list[int] = msgspec.field(default_factory=list)
    tenants: list[str] = msgspec.field(default_factory=list)

    def add(self, row: Any) -> None:
        """Add the answer of an ack's statement."""
        self.deliveries += row["deliveries"]
        for age, tenant in zip(row["ages"], row["tenants"], strict=True):
            if age is not None:
                self.ages_ms.append(age)
                self.tenants.append(tenant)


async def find_completed(db: Connection, topic: Topic, leases: Sequence[tuple[Seq, LeaseId]]) -> set[int]:
    """The places of the (seq, lease id) pairs whose job was completed with a result under exactly this lease.

    This is a statement of its own: an ack that waited for an equal ack has a snapshot from before the other's commit.
    """
    seqs, ids = [seq for seq, _ in leases], [lease for _, lease in leases]
    return {row["ord"] - 1 for row in await db.fetch(_COMPLETED, topic.name, topic.id, seqs, ids)}


async def find(db: Connection, topic: Topic, seq: int) -> Result | None:
    """A job's result, also if it was completed after it had become a dead letter. None if there is no result."""
    row = await db.fetchrow(_FIND, topic.name, topic.id, seq)
    return None if row is None else Result(**dict(row))


async def find_unended(db: Connection, jobs: Sequence[tuple[Topic, int]]) -> set[int]:
    """The places of the jobs, given by topic and seq, that still wait or are leased."""
    names, ids = [topic.name for topic, _ in jobs], [topic.id for topic, _ in jobs]
    return {row["ord"] - 1 for row in await db.fetch(_UNENDED, names, ids, [seq for _, seq in jobs])}
