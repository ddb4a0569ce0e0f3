"""Reads of what queues hold, and the upkeep of their tallies."""

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

LIVE_LOOKED_AT: Final = 100  # jobs of a queue that are read to find its first live one
DEAD_LOOKED_AT: Final = 10_000  # dead letters of a queue that are counted


class Counts(msgspec.Struct, frozen=True):
    """Jobs of one snapshot by state.

    count: all unfinished jobs. looked: most entries that were read from one index. If it equals the bound, there may be
    more jobs than were counted.
    """

    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    count: int
    looked: int


class Lows(msgspec.Struct, frozen=True):
    """Where a topic's lanes and tallies begin. Rows below need not be read.

    floor: a position and a time in µs since 1970, for lanes that are not listed.
    known: how many lanes there are in all, if that was counted.
    """

    lanes: Sequence[Reach] = ()
    tally: int = 0
    floor: tuple[int, int] = (0, 0)
    known: int = 0


async def count(db: Connection, topic: Topic, budget: Budget, bound: int | None, lows: Lows | None = None) -> Counts:
    """Count a topic's jobs, with up to `bound` due ones."""
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
    """Fold each topic's tallies into one row, from above its low mark up to `upto`."""
    await db.execute(_FOLD, [topic.id for topic, _ in lows], [low for _, low in lows], upto)


async def reconcile(db: Connection, topic: Topic) -> int:
    """Count a topic's jobs one by one and correct its tallies. Returns by how many jobs they were off; 0 if another
    process is doing it.

    Must run in a transaction, which holds the lock until its end.
    """
    if not await db.fetchval(_RECONCILE_LOCK, topic.id):
        return 0
    jobs: int = await db.fetchval(_RECONCILE, topic.name, topic.id)
    return jobs


class Probe(msgspec.Struct, frozen=True):
    """Whether a topic has a job to claim.

    wait_ms: until the next delay or lease ends; None: not within a second. at: the time of the read, in µs since 1970.
    """

    claimable: bool
    wait_ms: int | None
    at: int


async def probe(db: Connection, topics: Mapping[str, Lows]) -> dict[str, Probe]:
    """Probe all these topics with one statement, above their marks. Topics that never had a job are left out."""
    marks = [(topic, reach) for topic, lows in topics.items() for reach in lows.lanes]
    floors = zip(*(lows.floor for lows in topics.values()), strict=True)
    rows = await db.fetch(
        _PROBE, list(topics), *floors, [topic for topic, _ in marks], *columns([reach for _, reach in marks])
    )
    return {row["topic"]: Probe(row["claimable"], row["wait_ms"], row["at"]) for row in rows}


class QueueState(msgspec.Struct, frozen=True):
    """What a topic holds, in unfinished jobs."""

    topic: str
    head_seq: int
    earliest_seq: int | None
    count: int
    bytes: int
    last_write_ms: int | None
    dead_lettered: int
    ttl_lost_to: int  # the last seqs known to be lost to age and to caps; 0 for none
    cap_lost_to: int


async def states(db: Connection, topics: Sequence[Topic], bound: int) -> dict[str, QueueState]:
    """Topics' states by name, with up to `bound` expired jobs of each. Deleted topics are left out."""
    names, ids = [topic.name for topic in topics], [topic.id for topic in topics]
    rows = await rows_of(db, _STATE, names, ids, [topic.sequence for topic in topics], bound)
    return {row["topic"]: QueueState(**dict(row)) for row in rows}


async def total_bytes(db: Connection) -> int:
    """Bytes of all unfinished jobs and of all records."""
    held: int = await db.fetchval(_TOTAL_BYTES)
    return held


class Draw(msgspec.Struct, frozen=True):
    """How far a topic's sequence and the tallies' were drawn, with the time of the read in µs since 1970."""

    drawn: int
    tally: int
    at: int


async def draws(db: Connection, topics: Sequence[Topic]) -> dict[int, Draw]:
    """How far sequences were drawn, by topic id. Deleted topics are left out."""
    rows = await rows_of(db, _DRAWS, [topic.id for topic in topics], [topic.sequence for topic in topics])
    return {row["topic_id"]: Draw(row["drawn"], row["tally"], row["at"]) for row in rows}


async def writers(db: Connection, topics: Sequence[Topic]) -> set[str]:
    """The virtual ids of transactions that may still commit jobs of these topics, or tallies."""
    return set(await db.fetchval(_WRITERS, [topic.sequence for topic in topics]))


async def drawers(db: Connection, topic: Topic) -> set[str]:
    """The virtual ids of transactions that may still commit a job of this topic with a seq that was drawn before."""
    return set(await db.fetchval(_DRAWERS, topic.sequence))


async def read(db: Connection, topic: Topic, ask: Ask, upto: int) -> tuple[int, Records]:
    """Read a queue's live jobs after a cursor, without claiming them, up to a seq below which no new job can appear.
    Also returns the last skipped seq of an expired job that is not marked yet, 0 for none."""
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
    assert row is not None, "an aggregate always answers one row"
    expired_to, *found = row
    return expired_to, records_of(found)


class LaneHead(msgspec.Struct, frozen=True):
    """Where a lane begins: the first ready job's position, the first due job's time in µs, and how long the earlier one
    has been claimable. None for none."""

    ready: int | None
    due: int | None
    waited_ms: int | None


async def heads(db: Connection, lanes: Sequence[tuple[str, Reach]]) -> list[LaneHead]:
    """The head of each lane of a topic, after its reach."""
    rows = await db.fetch(_HEADS, [topic for topic, _ in lanes], *columns([reach for _, reach in lanes]))
    return [LaneHead(row["ready"], row["due"], row["waited_ms"]) for row in rows]


class Depth(msgspec.Struct):
    """What a queue holds.

    bytes: of payloads. looked: as in Counts. oldest_ms: how long the oldest ready job has been claimable.
    """

    topic: str
    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    bytes: int
    looked: int
    oldest_ms: int | None

    @property
    def count(self) -> int:
        """All unfinished jobs."""
        return self.ready + self.in_flight + self.scheduled + self.blocked


async def depths(db: Connection, queues: Sequence[tuple[Topic, Budget, Lows]], bound: int) -> dict[str, Depth]:
    """What queues hold, by name, with up to `bound` due jobs of each."""
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
    """The last and first seqs of a queue, and its failed jobs.

    earliest_seq: None if none of the first LIVE_LOOKED_AT jobs is live.
    failed: jobs that stayed in the queue. letters: jobs in its dead-letter topic, counted up to DEAD_LOOKED_AT.
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
    """Sights of queues by name. Each queue is given with its dead-letter topic. Deleted topics are left out."""
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
    """How many past days of events, results and the archive have no files yet, by table."""
    return {row["of_table"]: row["days"] for row in await db.fetch(_UNARCHIVED)}


def columns(reaches: Sequence[Reach]) -> tuple[list[str], list[int], list[int], list[int | None]]:
    """Reaches as columns for statements: tenants, priorities, positions and times."""
    return (
        [reach.lane.tenant for reach in reaches],
        [reach.lane.priority for reach in reaches],
        [reach.after for reach in reaches],
        [reach.due for reach in reaches],
    )
