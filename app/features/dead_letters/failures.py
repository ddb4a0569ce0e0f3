"""What jobs that are out have failed with, by the kind of their errors. docs/failures.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_FAILURES = _SQL["failures"]
_PLACES = _SQL["failure_places"]
_PURGE = _SQL["purge_cluster"]

SILENCE: Final = "The lease ended without a word"  # title of the cluster of jobs that have no error
CLUSTERS_LOOKED_AT: Final = 1_000
JOBS_COUNTED: Final = 200_000
THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Failure(msgspec.Struct, frozen=True):
    """A cluster: jobs that are out and whose errors are of one kind. Times are in ms since 1970.

    `title` is what their errors have in common, None where they have none. There are `count`, or `at_least` so many,
    which had `fewest` to `most` deliveries. The newest is at topic and seq.
    """

    cluster: str
    title: str | None
    count: int
    at_least: bool
    first_ms: int
    last_ms: int
    fewest: int
    mean: float
    most: int
    topic: str
    seq: int
    error: str | None


class Failures(msgspec.Struct, frozen=True):
    """Clusters, the largest first; and whether there may be more of them."""

    clusters: list[Failure]
    more: bool


class Place(msgspec.Struct, frozen=True):
    """Jobs of one topic that failed in one topic, which is another for dead letters."""

    topic: str
    failed_in: str


async def read(db: Connection, topic: str, dead_letter: str | None, since: datetime | None, limit: int) -> Failures:
    """The `limit` largest clusters of what is out in a topic, or failed in it and is in its dead-letter topic; with
    `since`, only of what went out from then on.

    Looks at CLUSTERS_LOOKED_AT clusters of each of the two topics, and counts JOBS_COUNTED jobs, shared among them.
    """
    rows = await db.fetch(
        _FAILURES, topic, dead_letter, since or THE_BEGINNING, CLUSTERS_LOOKED_AT, JOBS_COUNTED, limit + 1
    )
    found = [dict(row) for row in rows]
    more = len(found) > limit or any(one["cut"] for one in found)
    return Failures([Failure(**{k: v for k, v in one.items() if k != "cut"}) for one in found[:limit]], more)


async def places(db: Connection, topic: str, dead_letter: str | None) -> tuple[Sequence[Place], datetime]:
    """Where jobs may be that a cluster of this topic has, and the database's time."""
    rows = await db.fetch(_PLACES, topic, dead_letter, CLUSTERS_LOOKED_AT)
    until = max((row["now"] for row in rows), default=THE_BEGINNING)
    return [Place(row["topic"], row["failed_in"]) for row in rows], until


class Purged(msgspec.Struct, frozen=True):
    """What a batch of a purge deleted; of that, what counted as ready and as in flight; and the place of the last one
    looked at, None at the end."""

    count: int
    ready: int
    in_flight: int
    last: tuple[datetime, int] | None


async def purge(
    db: Connection, place: Place, cluster: str, *, after: tuple[datetime, int], until: datetime, limit: int
) -> Purged:
    """Delete jobs of a cluster at a place that went out by `until`: the next `limit` behind `after`."""
    count = ready = in_flight = 0
    row = None
    while row is None or row["deleted"] < row["picked"]:
        row = await db.fetchrow(_PURGE, place.topic, place.failed_in, cluster, *after, until, limit)
        assert row is not None, "it answers one row always"
        count, ready, in_flight = count + row["deleted"], ready + row["ready"], in_flight + row["in_flight"]
    last = None if row["last_at"] is None else (row["last_at"], row["last_seq"])
    return Purged(count, ready, in_flight, last)
