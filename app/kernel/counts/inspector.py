"""Looking at a queue without touching it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.batching import rows_of
from app.kernel.logs.log import LOOKED_AT, Ask, Records, records_of
from app.kernel.model import Budget, Connection, Reach, Topic

_SQL: Final = sql.load_all(__package__)
_COUNT = _SQL["count"]
_PROBE = sql.load(__package__, "probe")
_STATE = _SQL["state"]
_DRAWS = _SQL["draws"]
_WRITERS = _SQL["writers"]
_HEADS = _SQL["heads"]
_FOLD = _SQL["fold"]
_RECONCILE = _SQL["reconcile"]
_RECONCILE_LOCK = _SQL["reconcile_lock"]
_DEPTHS = _SQL["depths"]
_DRAWERS = _SQL["drawers"]
_TOTAL_BYTES = _SQL["total_bytes"]
_READ_JOBS = sql.load(__package__, "read_jobs")
_SURVEY = _SQL["survey"]
_UNARCHIVED = _SQL["unarchived"]

LIVE_LOOKED_AT: Final = 100  # jobs of a queue, for its first live one
DEAD_LOOKED_AT: Final = 10_000  # dead letters of a queue


class Counts(msgspec.Struct, frozen=True):
    """Jobs of one snapshot, by what a caller may expect of them now. `count` has all that are not finished. `looked` is
    the most entries of one index that were looked at: a bound that it reaches has cut the count."""

    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    count: int
    looked: int


class Lows(msgspec.Struct, frozen=True):
    """Where a topic's rows begin: its lanes, and its tallies. Nothing below counts any more. `floor`: a position and a
    time in µs since 1970, for lanes that are not listed; `known`: how many there are in all, where that was counted."""

    lanes: Sequence[Reach] = ()
    tally: int = 0
    floor: tuple[int, int] = (0, 0)
    known: int = 0


async def count(db: Connection, topic: Topic, budget: Budget, bound: int | None, lows: Lows | None = None) -> Counts:
    """Count a topic's jobs, looking at no more than `bound` of those whose time has come or passed."""
    lows = lows or Lows()
    tenants, priorities, _, times = columns(lows.lanes)
    row = await db.fetchrow(
        _COUNT,
        topic.name,
        topic.id,
        budget.ends,
        budget.max_deliveries,
        bound,
        lows.tally,
        tenants,
        priorities,
        times,
    )
    assert row is not None
    return Counts(**dict(row))


async def fold(db: Connection, lows: Sequence[tuple[Topic, int]], upto: int) -> None:
    """Fold each topic's tallies above its low mark, and up to an id, into one row."""
    await db.execute(_FOLD, [topic.id for topic, _ in lows], [low for _, low in lows], upto)


async def reconcile(db: Connection, topic: Topic) -> int:
    """Count a topic's jobs one by one and set its tallies right: by how many jobs they were off.

    Needs a transaction: the lock that it takes first must last until its end. Somebody else's being at it counts as 0.
    """
    if not await db.fetchval(_RECONCILE_LOCK, topic.id):
        return 0
    jobs: int = await db.fetchval(_RECONCILE, topic.name, topic.id)
    return jobs


class Probe(msgspec.Struct, frozen=True):
    """Whether a topic has something to claim; in how many ms the next delay or lease ends, None for not within a
    second; and when that was seen, in µs since 1970."""

    claimable: bool
    wait_ms: int | None
    at: int


async def probe(db: Connection, topics: Mapping[str, Lows]) -> dict[str, Probe]:
    """Look at topics, for all of them at once: topic → what was found. One that never had a job is left out. Nothing
    below their marks is looked at."""
    marks = [(topic, reach) for topic, lows in topics.items() for reach in lows.lanes]
    floors = zip(*(lows.floor for lows in topics.values()), strict=True)
    rows = await db.fetch(
        _PROBE, list(topics), *floors, [topic for topic, _ in marks], *columns([reach for _, reach in marks])
    )
    return {row["topic"]: Probe(row["claimable"], row["wait_ms"], row["at"]) for row in rows}


class State(msgspec.Struct, frozen=True):
    """What a topic holds: what is not finished."""

    topic: str
    head_seq: int
    earliest_seq: int | None
    count: int
    bytes: int
    last_write_ms: int | None
    dead_lettered: int
    ttl_lost_to: int  # the last seqs known to be lost to age and to caps, 0 for none
    cap_lost_to: int


async def states(db: Connection, topics: Sequence[Topic], bound: int) -> dict[str, State]:
    """Topics' states by name, looking at no more than `bound` jobs of each that have outlived their time. One that was
    deleted is left out."""
    names, ids = [topic.name for topic in topics], [topic.id for topic in topics]
    rows = await rows_of(db, _STATE, names, ids, [topic.sequence for topic in topics], bound)
    return {row["topic"]: State(**dict(row)) for row in rows}


async def total_bytes(db: Connection) -> int:
    """Bytes of all that topics hold and that is not finished."""
    held: int = await db.fetchval(_TOTAL_BYTES)
    return held


class Draw(msgspec.Struct, frozen=True):
    """How far a topic's sequence was drawn, and the tallies', and when that was looked at, in µs since 1970."""

    drawn: int
    tally: int
    at: int


async def draws(db: Connection, topics: Sequence[Topic]) -> dict[int, Draw]:
    """By topic id; a topic that was deleted is left out."""
    rows = await rows_of(db, _DRAWS, [topic.id for topic in topics], [topic.sequence for topic in topics])
    return {row["topic_id"]: Draw(row["drawn"], row["tally"], row["at"]) for row in rows}


async def writers(db: Connection, topics: Sequence[Topic]) -> set[str]:
    """The transactions that may still commit jobs of these topics, by their virtual ids."""
    return set(await db.fetchval(_WRITERS, [topic.sequence for topic in topics]))


async def drawers(db: Connection, topic: Topic) -> set[str]:
    """The transactions that may still commit a job of this topic with a seq drawn before, by their virtual ids."""
    return set(await db.fetchval(_DRAWERS, topic.sequence))


async def read(db: Connection, topic: Topic, ask: Ask, upto: int) -> tuple[int, Records]:
    """Read a queue's live jobs behind a cursor, without claiming, up to a seq that nothing can turn up below; before
    them, the last seq passed over of a job that has outlived its time and is not marked yet, 0 for none."""
    row = await db.fetchrow(
        _READ_JOBS,
        topic.name,
        ask.after,
        upto,
        ask.limit,
        ask.max_bytes,
        list(ask.without),
        LOOKED_AT,
        ask.tags,
        ask.metadata,
        ask.payloads,
    )
    assert row is not None, "an aggregate answers one row always"
    expired_to, *shown = row
    return expired_to, records_of(shown)


class Head(msgspec.Struct, frozen=True):
    """Where a lane begins: the first ready job's position, the first due job's time in µs, and for how long the earlier
    of them could have been claimed; None for none."""

    ready: int | None
    due: int | None
    waited_ms: int | None


async def heads(db: Connection, lanes: Sequence[tuple[str, Reach]]) -> list[Head]:
    """For each (topic, reach): what comes first behind it."""
    rows = await db.fetch(_HEADS, [topic for topic, _ in lanes], *columns([reach for _, reach in lanes]))
    return [Head(row["ready"], row["due"], row["waited_ms"]) for row in rows]


class Depth(msgspec.Struct):
    """What a queue holds. `looked` is as in Counts; `bytes` are of payloads; `oldest_ms` is for how long its oldest
    claimable job could have been claimed, None for none."""

    topic: str
    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    bytes: int
    looked: int
    oldest_ms: int | None


async def depths(db: Connection, queues: Sequence[tuple[Topic, Budget, Lows]], bound: int) -> dict[str, Depth]:
    """What queues hold, by name, looking at no more than `bound` jobs of each whose time has come or passed."""
    marks = [(topic.name, reach) for topic, _, lows in queues for reach in lows.lanes]
    rows = await db.fetch(
        _DEPTHS,
        [topic.name for topic, _, _ in queues],
        [topic.id for topic, _, _ in queues],
        [budget.ends for _, budget, _ in queues],
        [budget.max_deliveries for _, budget, _ in queues],
        [lows.tally for _, _, lows in queues],
        bound,
        [name for name, _ in marks],
        *columns([reach for _, reach in marks]),
    )
    return {row["topic"]: Depth(**dict(row)) for row in rows}


class Sight(msgspec.Struct, frozen=True):
    """How far a queue goes, and its failed jobs.

    earliest_seq: None if none of the first LIVE_LOOKED_AT jobs is live.
    failed: those kept in the queue. letters: those in its dead-letter topic, counted up to DEAD_LOOKED_AT.
    """

    topic: str
    head_seq: int
    earliest_seq: int | None
    failed: int
    letters: int

    @property
    def dead(self) -> int:
        """All its failed jobs."""
        return self.failed + self.letters


async def survey(db: Connection, queues: Sequence[tuple[Topic, str | None]]) -> dict[str, Sight]:
    """Sights of queues by name; each queue is given with the name of its dead-letter topic. A topic that was deleted is
    left out."""
    topics = [topic for topic, _ in queues]
    rows = await rows_of(
        db,
        _SURVEY,
        [topic.name for topic in topics],
        [topic.sequence for topic in topics],
        [topic.id for topic in topics],
        [dead_letter for _, dead_letter in queues],
        LIVE_LOOKED_AT,
        DEAD_LOOKED_AT,
    )
    return {row["topic"]: Sight(**dict(row)) for row in rows}


async def count_unarchived(db: Connection) -> dict[str, int]:
    """How many days of events, results and the archive are over and have no files yet, by table."""
    return {row["of_table"]: row["days"] for row in await db.fetch(_UNARCHIVED)}


def columns(reaches: Sequence[Reach]) -> tuple[list[str], list[int], list[int], list[int | None]]:
    """Reaches as statements take them: tenants, priorities, positions and times."""
    return (
        [reach.lane.tenant for reach in reaches],
        [reach.lane.priority for reach in reaches],
        [reach.after for reach in reaches],
        [reach.due for reach in reaches],
    )
