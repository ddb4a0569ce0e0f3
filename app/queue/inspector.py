"""Looking at a queue without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.db import sql
from app.queue.model import Budget, Connection, Topic

_COUNT = sql.load(__package__, "count")
_PROBE = sql.load(__package__, "probe")
_STATE = sql.load(__package__, "state")


@dataclass(frozen=True, slots=True)
class Counts:
    """`exact` is false where the bound on what was looked at cut the count."""

    ready: int
    in_flight: int
    exact: bool


async def count(db: Connection, topic: str, budget: Budget, bound: int | None) -> Counts:
    """Count a topic's ready and leased jobs, looking at no more than `bound` of each."""
    row = await db.fetchrow(_COUNT, topic, bound, budget.ends, budget.max_deliveries)
    assert row is not None
    return Counts(row["ready"], row["in_flight"], bound is None or row["looked"] < bound)


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a topic has something to claim; in how many ms the next delay or lease ends, None for never."""

    claimable: bool
    wait_ms: int | None


async def probe(db: Connection, topics: Sequence[str]) -> dict[str, Probe]:
    """Look at topics, for all of them at once: topic → what was found. One that never had a job is left out."""
    rows = await db.fetch(_PROBE, topics)
    return {row["topic"]: Probe(row["claimable"], row["wait_ms"]) for row in rows}


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
