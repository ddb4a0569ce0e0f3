"""Reads a job's row, the jobs ahead of it, and what queues looked like earlier. docs/explain.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from app.base.db import sql
from app.base.times import ms_of, rfc3339
from app.errors import NotFound, TooMuchToRead, Unavailable
from app.kernel import ledger
from app.kernel.counts.inspector import Lows
from app.kernel.engine import Core, Engine
from app.kernel.ledger import Past, PastJob
from app.kernel.model import Budget, Connection, Lane, Topic
from app.kernel.settle.results import Progress
from app.kernel.topics.settings import BIGINT_MAX

_SQL: Final = sql.load_all(__package__)
_JOB = _SQL["explain_job"]
_LANES = _SQL["lanes_ahead"]
_HEAD = _SQL["group_head"]

COUNTED: Final = 10_000  # jobs counted at most in each part of a lane
# Reads of the past:
AT_ONCE: Final = 1  # in a process, so that other users of the pool find connections
SECONDS: Final = 10.0  # timeout of one read
PATIENCE_SECONDS: Final = 5.0  # how long a read waits for its turn


class JobNow(msgspec.Struct, frozen=True):
    """A job at `now_ms`. Times are in ms since 1970 by the database's clock.

    `state`: ready, scheduled, blocked, leased (the lease is valid), failed, expired or cancelled.
    `due`: whether it is in the due part of its lane. If so, `place` is a time in µs, otherwise its position.
    `spent`: whether it has no deliveries left. `cancelled`: whether it was cancelled while leased.
    `percent`, `note`, `progress_ms`: the progress last reported under this lease. `percent` is None without a report.
    """

    state: str
    due: bool
    tenant: str
    grp: str | None
    priority: int
    place: int
    deliveries: int
    crashes: int
    max_deliveries: int
    spent: bool
    cancelled: bool
    node: str | None
    last_error: str | None
    original_topic: str | None
    original_seq: int | None
    original_deliveries: int | None
    percent: int | None
    note: str | None
    progress_ms: int | None
    now_ms: int
    created_ms: int
    updated_ms: int
    visible_ms: int
    leased_ms: int | None
    expires_ms: int | None

    @property
    def progress(self) -> Progress | None:
        """The progress that the worker reported under the current lease, None without a report."""
        if self.percent is None or self.state != "leased":
            return None
        return Progress(self.percent, self.note, self.progress_ms or self.now_ms)

    @property
    def lane(self) -> Lane:
        return Lane(self.tenant, self.priority)


async def job(db: Connection, topic: Topic, budget: Budget, seq: int) -> JobNow | None:
    """A job, None if it doesn't exist."""
    row = await db.fetchrow(_JOB, topic.name, topic.id, seq, budget.ends, budget.max_deliveries)
    return None if row is None else JobNow(**dict(row))


class GroupHead(msgspec.Struct, frozen=True):
    """The first job of a group. `seq` and `state` (as in JobNow) are None while the next job is being unblocked.

    `until_ms`: when its state ends, in ms since 1970.
    `before`: how many blocked jobs of the group come before the given seq.
    """

    seq: int | None
    state: str | None
    node: str | None
    until_ms: int | None
    deliveries: int | None
    before: int


async def head(db: Connection, topic: Topic, tenant: str, group: str | None, seq: int = BIGINT_MAX) -> GroupHead:
    """The first job of a group, and how many blocked jobs come before `seq`, at most COUNTED; by default all count."""
    row = await db.fetchrow(_HEAD, topic.name, tenant, group, seq, COUNTED)
    assert row is not None, "the statement returns one row always"
    return GroupHead(**dict(row))


async def claimable(
    db: Connection, topic: Topic, lows: Lows, before: JobNow | None = None, *, by_time: bool = False
) -> dict[Lane, int]:
    """How many jobs could be claimed now, by lane: at most COUNTED due and COUNTED fresh jobs each.

    `before`: count only the jobs that come before this one in its lane.
    `by_time`: due and fresh jobs take turns by time. Otherwise due jobs come first.
    """
    rows = await db.fetch(
        _LANES,
        topic.name,
        COUNTED,
        *_place(before, by_time=by_time),
        [reach.lane.tenant for reach in lows.lanes],
        [reach.lane.priority for reach in lows.lanes],
        [reach.after for reach in lows.lanes],
        [reach.due or 0 for reach in lows.lanes],
    )
    return {Lane(row["tenant"], row["priority"]): row["due"] + row["ready"] for row in rows}


def _place(row: JobNow | None, *, by_time: bool) -> tuple[str | None, int | None, int | None, int | None]:
    if row is None:
        return None, None, None, None
    if row.due:
        # With by_time, positions don't tell which fresh jobs are older, so all of them count.
        return row.tenant, row.priority, row.place, None if by_time else 0
    return row.tenant, row.priority, row.visible_ms * 1000 if by_time else None, row.place


class Pasts(Core):
    """Reads what queues looked like earlier. One read at a time in this process."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pool = engine.pools.rest
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def at(self, topic: Topic, instant: datetime) -> Past:
        """What a queue looked like at an instant.

        Raises NotFound if the ledger does not go back that far, TooMuchToRead after SECONDS, and Unavailable if the
        read has waited PATIENCE_SECONDS for its turn.
        """
        async with self._in_turn() as db:
            past = await ledger.as_of(db, topic, instant)
        _check_retention(instant, past.from_ms)
        return past

    async def jobs_at(
        self, topic: Topic, instant: datetime, *, state: str | None, behind: int, limit: int
    ) -> list[PastJob]:
        """The jobs of a queue at an instant by seq, up to `limit` of them behind the seq `behind`.

        `state`: only jobs in this state. Raises the errors of `at`.
        """
        async with self._in_turn() as db:
            jobs, from_ms = await ledger.jobs_as_of(db, topic, instant, state=state, behind=behind, limit=limit)
        _check_retention(instant, from_ms)
        return jobs

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Connection]:
        """A connection for one read. Raises TooMuchToRead, Unavailable."""
        try:
            await asyncio.wait_for(self._turn.acquire(), PATIENCE_SECONDS)
        except TimeoutError:
            raise Unavailable("Another look at the past is still running. Try again in a few seconds.") from None
        try:
            async with self._pool.acquire() as db, db.transaction(readonly=True):
                await db.execute(f"SET LOCAL statement_timeout = '{SECONDS * 1000:.0f}ms'")
                yield db
        except asyncpg.QueryCanceledError:
            raise TooMuchToRead(SECONDS) from None
        finally:
            self._turn.release()


def _check_retention(instant: datetime, from_ms: int) -> None:
    at_ms = ms_of(instant)
    if at_ms < from_ms:
        raise NotFound(
            f"Events are kept since {rfc3339(from_ms)}. Choose a later time.", {"at": at_ms, "from": from_ms}
        )
