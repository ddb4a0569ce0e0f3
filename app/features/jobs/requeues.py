"""Requeues dead letters into the topics they came from, and failed and expired jobs in their own topic.

docs/semantics.md, section 2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import sql
from app.base.outages import UNREACHABLE
from app.errors import TopicNotFound
from app.features.jobs.operations import (
    LAST,
    Filter,
    First,
    MatchCount,
    Operation,
    OperationRequest,
    OperationState,
    OperationStep,
    SearchPlace,
)
from app.kernel.model import Connection

if TYPE_CHECKING:
    from app.kernel.state import EngineState

_SQL: Final = sql.load_all(__package__)
_REQUEUE = _SQL["requeue"]
_FIND_DEAD = _SQL["find_dead"]
_FIND_FAILED = _SQL["find_failed"]
_FIND_OUT = _SQL["find_out"]
_UNTIL_TIME = _SQL["until_time"]
_CANARY = _SQL["canary"]
_SWEEP = _SQL["sweep_dead"]


class RequeueOutcome(Enum):
    """How a job's requeue ended. With KEY_CONFLICT and TOPIC_GONE the job stays where it was.

    KEY_CONFLICT: a pending job has its key. TOPIC_GONE: the queue that it came from no longer exists.
    """

    REQUEUED = "requeued"
    KEY_CONFLICT = "key_conflict"
    TOPIC_GONE = "topic_gone"


class RequeueResult(msgspec.Struct, frozen=True):
    """The result for one job. `was` and `job` are None unless it was requeued.

    `seq`: its seq before. `was`: its state before. `job`: where it is now.
    """

    seq: int
    outcome: RequeueOutcome
    topic: str
    was: str | None
    job: First | None


class Search(msgspec.Struct, frozen=True):
    """A search in a topic for jobs that failed by `until` and match.

    `topic`: name and id, since the topic may be gone.
    `starts`: only jobs that go back to topics with one of these prefixes; empty allows all.
    `only_from`: only dead letters that came from this topic.
    `dead`: search dead letters, otherwise jobs that failed in place.
    """

    topic: tuple[str, int]
    until: datetime
    match: Filter
    starts: Sequence[str] = ()
    only_from: str | None = None
    dead: bool = True


class SearchPage(msgspec.Struct, frozen=True):
    """Seqs in ascending order. `more`: whether there may be more jobs after `last`."""

    seqs: list[int]
    more: bool
    last: SearchPlace | None


async def until_time(db: Connection, older_than_ms: int) -> datetime:
    """The time `older_than_ms` ago by the database's clock."""
    time: datetime = await db.fetchval(_UNTIL_TIME, older_than_ms)
    return time


async def find(db: Connection, search: Search, after: SearchPlace, *, looks: int, limit: int) -> SearchPage:
    """The next `limit` jobs that match, among the next `looks`, in the order in which they failed."""
    match = search.match
    row = await db.fetchrow(
        _FIND_DEAD if search.dead else _FIND_FAILED,
        *(*search.topic, after.time, after.seq, search.until, search.only_from, list(search.starts)),
        *(match.error, match.tag, match.key, match.tenant, looks, limit, match.cluster),
    )
    assert row is not None, "the statement returns one row always"
    last = None if row["last_time"] is None else SearchPlace(row["last_time"], row["last_seq"])
    return SearchPage(row["seqs"], row["more"], last)


async def find_out(
    db: Connection, topic: tuple[str, int], seqs: Sequence[int], starts: Sequence[str]
) -> dict[tuple[str, int], list[int]]:
    """Find failed jobs by the seqs that they have in the topic or had there before they became dead letters.

    Returns the topics that they are in now, with their seqs there in ascending order.
    """
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
    """Requeue jobs. The result leaves out jobs that have not failed.

    `seqs`: ascending, since rows are locked in this order.
    `ttl_ms`: the default time to live, used if neither the job nor its topic sets one.
    Raises asyncpg's UndefinedObjectError or InternalServerError, without a change, if a topic was deleted meanwhile.
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
    """How many of these requeued jobs have failed again, and how many are gone, which usually means completed."""
    row = await db.fetchrow(_CANARY, msgspec.json.encode(jobs).decode())
    assert row is not None, "the statement returns one row always"
    return row["failed"], row["gone"]


async def sweep(db: Connection, topic: str, keep: timedelta, limit: int) -> int:
    """Delete up to `limit` dead letters that are older than `keep`. Returns how many."""
    count: int = await db.fetchval(_SWEEP, topic, keep, limit)
    return count


def searches_of(wanted: OperationRequest, until: datetime) -> list[Search]:
    """The searches for an operation's jobs, in order.

    First the topic's dead letters in its dead-letter topic, then dead letters of other topics in this one, then jobs
    that failed in place.
    """
    match, starts = wanted.match, wanted.starts
    places = [Search(wanted.topic, until, match, starts), Search(wanted.topic, until, match, starts, dead=False)]
    if wanted.dead is not None:
        places.insert(0, Search(wanted.dead, until, match, starts, only_from=wanted.topic[0]))
    return places


async def count_matching(db: Connection, wanted: OperationRequest, until: datetime, most: int) -> MatchCount:
    """How many jobs that failed by `until` a requeue would take. Not exact after `most` jobs in one place."""
    if wanted.seqs is not None:
        places = await find_out(db, wanted.topic, wanted.seqs, wanted.starts)
        return MatchCount(sum(map(len, places.values())), exact=True)
    count, exact = 0, True
    for search in searches_of(wanted, until):
        found = await find(db, search, SearchPlace(), looks=most, limit=most)
        count, exact = count + len(found.seqs), exact and not found.more
    return MatchCount(count, exact)


async def requeue_batch(
    db: Connection, run: Operation, limit: int, *, looks: int, ttl_ms: int
) -> tuple[OperationStep, list[RequeueResult]]:
    """Requeue up to `limit` jobs of an operation, among the next `looks`. `db` must be in a transaction."""
    wanted = run.wanted
    canary = wanted.canary if run.state is OperationState.CANARY else None
    if canary is not None:
        limit = min(limit, canary.first - len(run.first))
    ask = partial(requeue, db, ttl_ms=ttl_ms, starts=wanted.starts)
    done: list[RequeueResult] = []
    stage, at, missing = run.stage, run.at, 0
    if wanted.seqs is not None:
        part = sorted(seq for seq in set(wanted.seqs) if seq > at.seq)[:limit]
        if part:
            for place, seqs in sorted((await find_out(db, wanted.topic, part, wanted.starts)).items()):
                done += await ask(place, seqs)
            missing, at = len(part) - len(done), SearchPlace(seq=part[-1])
        stage = stage if len(part) == limit else LAST
    else:
        searches = searches_of(wanted, run.until)
        search = searches[stage]
        found = await find(db, search, at, looks=looks, limit=limit)
        if found.seqs:
            done = await ask(search.topic, found.seqs, only_from=search.only_from)
        missing, at = len(found.seqs) - len(done), found.last or at
        if not found.more:
            stage, at = (LAST if search is searches[-1] else stage + 1), SearchPlace()
    moved = [one for one in done if one.outcome is RequeueOutcome.REQUEUED]
    first = [*run.first, *(one.job for one in moved if one.job is not None)] if canary is not None else run.first
    state, wait_ms = run.state, None
    if canary is not None and (len(first) >= canary.first or stage == LAST):
        if first:
            wait_ms = canary.timeout_ms
        else:
            state = OperationState.RUNNING
    skipped = len(done) - len(moved) + missing
    step = OperationStep(
        *(state, stage, at, first), requeued=len(moved), skipped=skipped, failed_again=run.failed_again, wait_ms=wait_ms
    )
    return step, done


async def report_requeues(state: EngineState, done: Sequence[RequeueResult]) -> None:
    """Wake the workers that wait for these jobs, in all processes."""
    counts: dict[tuple[str, int], int] = {}
    for one in done:
        if one.job is not None:
            place = (one.job.topic, one.job.topic_id)
            counts[place] = counts.get(place, 0) + 1
    for (name, topic_id), count in counts.items():
        with contextlib.suppress(TopicNotFound, *UNREACHABLE):
            policy = await state.policies.get(name)
            if policy.topic.id == topic_id:
                state.note_move(policy.topic, ready=count)
                await state.groups.let_next_through(policy)
        state.lanes.forget(topic_id)
        state.marks.look_at_due(topic_id)
        state.writes.note(topic_id)
        state.waiters.announce(topic_id, count)
