"""Jobs that are out get another life: dead letters back in their topics, failed and expired jobs where they are.
docs/semantics.md, section 2."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_REQUEUE = _SQL["requeue"]
_FIND_DEAD = _SQL["find_dead"]
_FIND_FAILED = _SQL["find_failed"]
_FIND_OUT = _SQL["find_out"]
_UNTIL_TIME = _SQL["until_time"]
_CANARY = _SQL["canary"]
_SWEEP = _SQL["sweep_dead"]

THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)  # of all times


class RequeueOutcome(Enum):
    """What a requeue of a job came to. TOPIC_GONE: the queue that it came from is no more; KEY_CONFLICT: a pending job
    has its key. In both cases it stays where it was."""

    REQUEUED = "requeued"
    KEY_CONFLICT = "key_conflict"
    TOPIC_GONE = "topic_gone"


class First(msgspec.Struct, frozen=True):
    """Where a requeued job is, and the job that its id names."""

    topic: str
    topic_id: int
    seq: int
    id_topic: int
    id_seq: int


class RequeueResult(msgspec.Struct, frozen=True):
    """`seq`: where it was; `was`: its state there, and `job`, where it is now: both None unless it was requeued."""

    seq: int
    outcome: RequeueOutcome
    topic: str
    was: str | None
    job: First | None


class Filter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which jobs are meant; None for any. error: a part of it, letter by letter; cluster: the kind of it."""

    error: str | None = None
    tag: str | None = None
    key: str | None = None
    tenant: str | None = None
    cluster: str | None = None
    older_than_ms: int = 0  # since it went out


class SearchPlace(msgspec.Struct, frozen=True):
    """A place in the order in which a topic's jobs went out."""

    time: datetime = THE_BEGINNING
    seq: int = 0


class Search(msgspec.Struct, frozen=True):
    """What is looked for in a topic: what went out by `until`, and matches; of `only_from`, unless that is None; and
    what goes back to topics whose names begin with one of `starts`, if there are any."""

    topic: tuple[str, int]  # name and id: it may be gone
    until: datetime
    match: Filter
    starts: Sequence[str] = ()
    only_from: str | None = None
    dead: bool = True  # dead letters; else jobs that failed in place


class SearchPage(msgspec.Struct, frozen=True):
    """Seqs, ascending; the place to go on after, if there may be more."""

    seqs: list[int]
    more: bool
    last: SearchPlace | None


async def until_time(db: Connection, older_than_ms: int) -> datetime:
    """So long ago, by the database's clock."""
    time: datetime = await db.fetchval(_UNTIL_TIME, older_than_ms)
    return time


async def find(db: Connection, search: Search, after: SearchPlace, *, looks: int, limit: int) -> SearchPage:
    """The next `limit` jobs that match, of the next `looks`, those that went out first first."""
    match = search.match
    row = await db.fetchrow(
        _FIND_DEAD if search.dead else _FIND_FAILED,
        *(*search.topic, after.time, after.seq, search.until, search.only_from, list(search.starts)),
        *(match.error, match.tag, match.key, match.tenant, looks, limit, match.cluster),
    )
    assert row is not None, "it answers one row always"
    last = None if row["last_time"] is None else SearchPlace(row["last_time"], row["last_seq"])
    return SearchPage(row["seqs"], row["more"], last)


async def find_out(
    db: Connection, topic: tuple[str, int], seqs: Sequence[int], starts: Sequence[str]
) -> dict[tuple[str, int], list[int]]:
    """Jobs that are out, by the seqs that they have in the topic or had before they became dead letters: the topics
    that they are in, with their seqs there, ascending."""
    places: dict[tuple[str, int], list[int]] = {}
    for row in await db.fetch(_FIND_OUT, *topic, list(seqs), list(starts)):
        places.setdefault((row["topic"], row["topic_id"]), []).append(row["seq"])
    return places


async def requeue(
    db: Connection,
    topic: tuple[str, int],
    seqs: Sequence[int],
    *,
    ttl_ms: int,
    only_from: str | None = None,
    starts: Sequence[str] = (),
) -> list[RequeueResult]:
    """Requeue jobs; what is not out is left out. `seqs` must ascend: rows are locked in this order.

    `ttl_ms`: the time to live where neither the job nor its topic has one of its own. Raises asyncpg's
    UndefinedObjectError or InternalServerError where a topic was deleted meanwhile: nothing was done then.
    """
    assert list(seqs) == sorted(seqs), "seqs must ascend: rows are locked in this order"
    rows = await db.fetch(_REQUEUE, *topic, list(seqs), only_from, list(starts), ttl_ms)
    return [
        RequeueResult(
            row["given_seq"],
            RequeueOutcome(row["outcome"]),
            row["to_topic"],
            row["was"],
            None
            if row["to_id"] is None
            else First(row["to_topic"], row["to_id"], row["to_seq"], row["id_topic"], row["id_seq"]),
        )
        for row in rows
    ]


async def canary(db: Connection, jobs: Sequence[First]) -> tuple[int, int]:
    """Of jobs that were requeued: how many are out again, and how many are gone, which means acknowledged as a rule."""
    row = await db.fetchrow(_CANARY, msgspec.json.encode(jobs).decode())
    assert row is not None, "it answers one row always"
    return row["failed"], row["gone"]


async def sweep(db: Connection, topic: str, keep: timedelta, limit: int) -> int:
    """Delete dead letters that died longer ago than `keep`, at most `limit`: how many."""
    count: int = await db.fetchval(_SWEEP, topic, keep, limit)
    return count
