"""What holders hand in and report: results with an ack, progress with a heartbeat; and what became of a job.
docs/semantics.md, sections 3 and 20."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import msgspec

from app.db import sql
from app.queue.consumer import MAX_RUNS, Ended
from app.queue.model import Connection, Held, LeaseId, Seq, Topic

_ACK = sql.load(__package__, "ack_results")
_COMPLETED = sql.load(__package__, "completed")
_EXTEND = sql.load(__package__, "extend_progress")
_FIND = sql.load(__package__, "find_result")
_UNENDED = sql.load(__package__, "unended")

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

    ttl_ms: int
    archived: bool
    told: bool = False


async def ack(
    db: Connection,
    topic: Topic,
    held: Sequence[Held],
    results: Sequence[str | None],
    keep: Keep,
    *,
    ended: Ended | None = None,
) -> set[int]:
    """Complete jobs: the places in `held` that were its holder's. results[i], the text of JSON, is what held[i] hands
    in. `held` must ascend by seq. Adds to `ended`."""
    _must_ascend(held)
    done: set[int] = set()
    for _ in range(MAX_RUNS):
        places = [i for i in range(len(held)) if i not in done]
        given = [results[i] for i in places]
        row = await db.fetchrow(_ACK, topic.name, *_columns(held, places), given, keep.ttl_ms, keep.archived, keep.told)
        assert row is not None, "it answers one row always"
        done.update(places[i - 1] for i in row["done"])
        if ended is not None:
            ended.add(row)
        if len(row["done"]) == len(row["picked"]):
            break
    return done


async def completed(db: Connection, topic: Topic, leases: Sequence[tuple[Seq, LeaseId]]) -> set[int]:
    """Of (seq, lease id) pairs: the places of jobs that were completed with a result under that very lease.

    A statement of its own: the ack that waited for its twin has a snapshot from before that one's commit.
    """
    seqs, ids = [seq for seq, _ in leases], [lease for _, lease in leases]
    return {row["ord"] - 1 for row in await db.fetch(_COMPLETED, topic.name, topic.id, seqs, ids)}


async def extend(
    db: Connection,
    topic: Topic,
    held: Sequence[Held],
    leases_ms: Sequence[int],
    progress: Sequence[Progress | None],
    *,
    cancelled: set[int] | None = None,
) -> dict[int, int]:
    """As consumer.extend, for holders that say how far they are."""
    _must_ascend(held)
    done: dict[int, int] = {}
    for _ in range(MAX_RUNS):
        places = [i for i in range(len(held)) if i not in done]
        said = [progress[i] for i in places]
        row = await db.fetchrow(
            _EXTEND,
            topic.name,
            *_columns(held, places),
            [leases_ms[i] for i in places],
            [one and one.percent for one in said],
            [one and one.note for one in said],
        )
        assert row is not None, "it answers one row always"
        done.update((places[i - 1], deadline) for i, deadline in zip(row["done"], row["deadlines"], strict=True))
        if cancelled is not None:
            cancelled.update(places[i - 1] for i in row["cancelled"])
        if len(row["done"]) == len(row["picked"]):
            break
    return done


async def find(db: Connection, topic: Topic, seq: int) -> Result | None:
    """What a job was completed with, also as the dead letter that it had become; None if there is no result."""
    row = await db.fetchrow(_FIND, topic.name, topic.id, seq)
    return None if row is None else Result(**dict(row))


async def unended(db: Connection, jobs: Sequence[tuple[Topic, int]]) -> set[int]:
    """Places of the jobs, by topic and seq, that still wait or are worked on."""
    names, ids = [topic.name for topic, _ in jobs], [topic.id for topic, _ in jobs]
    return {row["ord"] - 1 for row in await db.fetch(_UNENDED, names, ids, [seq for _, seq in jobs])}


def _must_ascend(held: Sequence[Held]) -> None:
    # Rows are locked in this order by every verb; out of order, two batches deadlock.
    assert all(a.seq <= b.seq for a, b in itertools.pairwise(held)), "held must ascend by seq"


def _columns(held: Sequence[Held], places: list[int]) -> tuple[list[int], list[LeaseId | None], list[str | None]]:
    return [held[i].seq for i in places], [held[i].lease for i in places], [held[i].node for i in places]
