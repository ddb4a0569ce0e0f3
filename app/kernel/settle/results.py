"""What holders hand in and report: results with an ack, progress with a heartbeat (see consumer.py); and what became of
a job.
docs/semantics.md, sections 3 and 20."""

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

MAX_BYTES: Final = 1024 * 1024  # of a result


class Progress(msgspec.Struct, frozen=True):
    """How far a holder says it is: 0 to 100, and what it says to that; `at_ms` is when, in ms since 1970."""

    percent: int
    note: str | None = None
    at_ms: int = 0


class Result(msgspec.Struct, frozen=True):
    """What was handed in, as JSON; in which topic, and in which delivery. Times are in ms since 1970, `expires_ms` None
    for ever. `kept`: it is still to be shown."""

    topic: str
    completed_ms: int
    expires_ms: int | None
    deliveries: int
    result: str
    kept: bool


class Keep(msgspec.Struct, frozen=True):
    """What an ack does with the jobs and their results: for how long these are kept (0: for ever), whether the jobs go
    into the archive, and whether their topic's webhook hears of them."""

    ttl_ms: int = 0
    archived: bool = False
    told: bool = False


NOTHING: Final = Keep()


class AckCounts(msgspec.Struct):
    """Of jobs that were completed, in no order: the deliveries they took, and, where it is known, the time since the
    last claim in ms, beside whose they were."""

    deliveries: list[int] = msgspec.field(default_factory=list)
    ages_ms: list[int] = msgspec.field(default_factory=list)
    tenants: list[str] = msgspec.field(default_factory=list)

    def add(self, row: Any) -> None:
        """Of what an ack's statement answers."""
        self.deliveries += row["deliveries"]
        for age, tenant in zip(row["ages"], row["tenants"], strict=True):
            if age is not None:
                self.ages_ms.append(age)
                self.tenants.append(tenant)


async def find_completed(db: Connection, topic: Topic, leases: Sequence[tuple[Seq, LeaseId]]) -> set[int]:
    """Of (seq, lease id) pairs: the places of jobs that were completed with a result under that very lease.

    A statement of its own: the ack that waited for its twin has a snapshot from before that one's commit.
    """
    seqs, ids = [seq for seq, _ in leases], [lease for _, lease in leases]
    return {row["ord"] - 1 for row in await db.fetch(_COMPLETED, topic.name, topic.id, seqs, ids)}


async def find(db: Connection, topic: Topic, seq: int) -> Result | None:
    """What a job was completed with, also as the dead letter that it had become; None if there is no result."""
    row = await db.fetchrow(_FIND, topic.name, topic.id, seq)
    return None if row is None else Result(**dict(row))


async def find_unended(db: Connection, jobs: Sequence[tuple[Topic, int]]) -> set[int]:
    """Places of the jobs, by topic and seq, that still wait or are worked on."""
    names, ids = [topic.name for topic, _ in jobs], [topic.id for topic, _ in jobs]
    return {row["ord"] - 1 for row in await db.fetch(_UNENDED, names, ids, [seq for _, seq in jobs])}
