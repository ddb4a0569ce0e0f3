"""Reads of the ledger. docs/semantics.md, section 13."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection, Topic

_SQL: Final = sql.load_all(__package__)
_HISTORY = _SQL["history"]
_LAST = _SQL["last_events"]
_AS_OF = _SQL["as_of"]
_JOBS_AS_OF = _SQL["jobs_as_of"]
_FROM = _SQL["past_from"]
_RECENT = _SQL["recent_events"]
_BEGINS = _SQL["past_begins"]

MAX_EVENTS: Final = 1_000
# The origin of a dead letter, or where a requeued one went.
_PLACE: Final = re.compile(r"(?P<way>from|to) (?P<topic>\S+) [0-9]+\Z")
THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Event(msgspec.Struct, frozen=True):
    """A job's event. Times are in ms since 1970. `until`: the deadline of a lease, or the end of a delay."""

    at_ms: int
    event: str
    deliveries: int
    until_ms: int | None
    node: str | None
    detail: str | None


def detail_for(event: Event, covered: Callable[[str], bool]) -> str | None:
    """An event's detail for a caller who can see the topics that are `covered`. Other topics are not named."""
    place = _PLACE.match(event.detail or "") if event.event in {"enqueued", "requeued"} else None
    if place is None or covered(place["topic"]):
        return event.detail
    return f"{place['way']} another topic"


class Recent(msgspec.Struct, frozen=True):
    """How many jobs of a topic were claimed, acked and enqueued in the last seconds. `span_ms` is the time since the
    first claim in that time, `idle_ms` since the last one; None if there was none.
    """

    claimed: int
    acked: int
    enqueued: int
    span_ms: int | None
    idle_ms: int | None


class Past(msgspec.Struct, frozen=True):
    """How many jobs a topic had of each state at an instant.

    dead: its dead letters that were not moved since.
    oldest_ms: how long the oldest ready job had been claimable; None if there was none, or if it is unknown.
    from_ms: since when events are kept, in ms since 1970. For an earlier instant the other fields mean nothing.
    """

    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    failed: int
    expired: int
    dead: int
    oldest_ms: int | None
    from_ms: int


class PastJob(msgspec.Struct, frozen=True):
    """A job at an instant. Times are in ms since 1970.

    `since_ms` and `deliveries` are None if no event says so. `until_ms` is of leased and scheduled jobs, `node` of
    leased ones. `key` is of jobs that still exist.
    """

    seq: int
    state: str
    since_ms: int | None
    deliveries: int | None
    until_ms: int | None
    node: str | None
    key: str | None


# The states of a past job. A dead letter is listed under the topic that it failed in.
PAST_STATES: Final = ("ready", "leased", "scheduled", "blocked", "failed", "expired", "dead_lettered")


async def as_of(db: Connection, topic: Topic, instant: datetime) -> Past:
    """The counts of a queue at an instant. Reads the events of all topics since its events are shown."""
    row = await db.fetchrow(_AS_OF, topic.name, topic.id, instant)
    assert row is not None, "the statement always answers one row"
    return Past(**dict(row))


async def jobs_as_of(
    db: Connection, topic: Topic, instant: datetime, *, state: str | None, behind: int, limit: int
) -> tuple[list[PastJob], int]:
    """Up to `limit` jobs that a queue had at an instant, after a seq, and since when its events are shown, in ms. For
    an earlier instant the jobs mean nothing. Costs as much as `as_of`."""
    from_ms: int = await db.fetchval(_FROM, topic.id)
    rows = await db.fetch(_JOBS_AS_OF, topic.name, topic.id, instant, state, behind, limit)
    return [PastJob(**dict(row)) for row in rows], from_ms


async def begins(db: Connection, topic: Topic) -> int | None:
    """Since when a topic's past is known, in ms since 1970: since events are kept, or since it was created. None if the
    topic was deleted."""
    begins_ms: int | None = await db.fetchval(_BEGINS, topic.name, topic.id)
    return begins_ms


async def history(
    db: Connection, topic: Topic, seq: int, since: datetime = THE_BEGINNING, limit: int = MAX_EVENTS
) -> list[Event]:
    """Up to `limit` events of a job, no earlier than `since`, the oldest first."""
    return [Event(**dict(row)) for row in await db.fetch(_HISTORY, topic.id, seq, since, limit)]


async def last(db: Connection, topic: Topic, seq: int, limit: int) -> list[Event]:
    """Up to `limit` last events of a job, the newest first."""
    return [Event(**dict(row)) for row in await db.fetch(_LAST, topic.id, seq, limit)]


async def recent(db: Connection, topic: Topic, seconds: float) -> Recent:
    """What happened to a topic's jobs in the last `seconds`. Reads the events of all topics in that time."""
    row = await db.fetchrow(_RECENT, topic.id, seconds)
    assert row is not None, "the statement always answers one row"
    return Recent(**dict(row))
