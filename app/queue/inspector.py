"""Looking at a queue without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.db import sql
from app.queue.model import Budget, Connection, Reach, Topic

_COUNT = sql.load(__package__, "count")
_PROBE = sql.load(__package__, "probe")
_STATE = sql.load(__package__, "state")
_DRAWS = sql.load(__package__, "draws")
_WRITERS = sql.load(__package__, "writers")
_HEADS = sql.load(__package__, "heads")


@dataclass(frozen=True, slots=True)
class Counts:
    """`looked` is the most entries of one index that were looked at: a bound that it reaches has cut the count."""

    ready: int
    in_flight: int
    looked: int


async def count(db: Connection, topic: str, budget: Budget, bound: int | None, marks: Sequence[Reach] = ()) -> Counts:
    """Count a topic's ready and leased jobs, looking at no more than `bound` of each.

    `marks` are where lanes begin that had jobs consumed from them; nothing below them is counted.
    """
    row = await db.fetchrow(_COUNT, topic, bound, budget.ends, budget.max_deliveries, *_columns(marks))
    assert row is not None
    return Counts(**dict(row))


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a topic has something to claim; in how many ms the next delay or lease ends, None for not within a
    second; and when that was seen, in µs since 1970."""

    claimable: bool
    wait_ms: int | None
    at: int


async def probe(db: Connection, topics: Sequence[str], marks: Sequence[tuple[str, Reach]] = ()) -> dict[str, Probe]:
    """Look at topics, for all of them at once: topic → what was found. One that never had a job is left out.

    `marks`, by topic, are where lanes begin; nothing below them is looked at.
    """
    rows = await db.fetch(_PROBE, topics, [topic for topic, _ in marks], *_columns([reach for _, reach in marks]))
    return {row["topic"]: Probe(row["claimable"], row["wait_ms"], row["at"]) for row in rows}


@dataclass(frozen=True, slots=True)
class State:
    """What a topic holds. `looked` and `bytes` are of the first jobs only where a bound cut them."""

    topic: str
    head_seq: int
    earliest_seq: int | None
    looked: int
    bytes: int
    last_write_ms: int | None
    dead_lettered: int


async def states(db: Connection, topics: Sequence[Topic], bound: int) -> dict[str, State]:
    """Topics' states by name, looking at no more than `bound` jobs of each."""
    rows = await db.fetch(_STATE, [topic.name for topic in topics], [topic.sequence for topic in topics], bound)
    return {row["topic"]: State(**dict(row)) for row in rows}


@dataclass(frozen=True, slots=True)
class Draw:
    """How far a topic's sequence was drawn, and when it was looked at, in µs since 1970."""

    drawn: int
    at: int


async def draws(db: Connection, topics: Sequence[Topic]) -> dict[int, Draw]:
    """By topic id; a topic that was deleted is left out."""
    rows = await db.fetch(_DRAWS, [topic.id for topic in topics], [topic.sequence for topic in topics])
    return {row["topic_id"]: Draw(row["drawn"], row["at"]) for row in rows}


async def writers(db: Connection, topics: Sequence[Topic]) -> set[str]:
    """The transactions that may still commit jobs of these topics, by their virtual ids."""
    return set(await db.fetchval(_WRITERS, [topic.sequence for topic in topics]))


@dataclass(frozen=True, slots=True)
class Head:
    """Where a lane begins: the first ready job's position, the first due job's time in µs; None for none."""

    ready: int | None
    due: int | None


async def heads(db: Connection, lanes: Sequence[tuple[str, Reach]]) -> list[Head]:
    """For each (topic, reach): what comes first behind it."""
    rows = await db.fetch(_HEADS, [topic for topic, _ in lanes], *_columns([reach for _, reach in lanes]))
    return [Head(row["ready"], row["due"]) for row in rows]


def _columns(reaches: Sequence[Reach]) -> tuple[list[str], list[int], list[int], list[int | None]]:
    return (
        [reach.lane.tenant for reach in reaches],
        [reach.lane.priority for reach in reaches],
        [reach.after for reach in reaches],
        [reach.due for reach in reaches],
    )
