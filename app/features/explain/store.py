"""Reads a job's row, the jobs before it, and what queues looked like earlier. docs/explain.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from app.base.db import sql
from app.base.times import ms_of
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

COUNTED: Final = 10_000  # most jobs of a part of a lane that are counted
# Reads of the past:
AT_ONCE: Final = 1  # of a process: what else the pool is for must find connections
SECONDS: Final = 10.0  # for one
PATIENCE_SECONDS: Final = 5.0  # for those before it


class JobNow(msgspec.Struct, frozen=True):
    """A job as it is at `now_ms`. Times are in ms since 1970 by the database's clock.

    `state` is ready, scheduled, blocked, leased (by a good lease), failed, expired or cancelled. `due`: it stands in
    the due part of its lane, at `place` (a time in µs), otherwise `place` is its position. `spent`: its last delivery
    is over. `cancelled`: somebody has cancelled it while it was leased.
    `percent`, `note`, `progress_ms`: what the holder of this lease said last of its progress; percent None: nothing.
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
        """How far the work is, as far as its holder has said."""
        if self.percent is None or self.state != "leased":
            return None
        return Progress(self.percent, self.note, self.progress_ms or self.now_ms)

    @property
    def lane(self) -> Lane:
        """Where it stands."""
        return Lane(self.tenant, self.priority)


async def job(db: Connection, topic: Topic, budget: Budget, seq: int) -> JobNow | None:
    """A job, None if it is not there."""
    row = await db.fetchrow(_JOB, topic.name, topic.id, seq, budget.ends, budget.max_deliveries)
    return None if row is None else JobNow(**dict(row))


class GroupHead(msgspec.Struct, frozen=True):
    """The first job of a group. `seq` and `state` (as in JobNow) are None while the next job is being unblocked.

    `until_ms`: when its state ends, in ms since 1970. `before`: how many jobs wait before the one that was asked about.
    """

    seq: int | None
    state: str | None
    node: str | None
    until_ms: int | None
    deliveries: int | None
    before: int


async def head(db: Connection, topic: Topic, tenant: str, group: str | None, seq: int = BIGINT_MAX) -> GroupHead:
    """The first job of a group, and how many wait before a job, by default before a new one; COUNTED at most."""
    found = await db.fetchrow(_HEAD, topic.name, tenant, group, seq, COUNTED)
    assert found is not None, "it answers one row always"
    return GroupHead(**dict(found))


async def claimable(
    db: Connection, topic: Topic, lows: Lows, before: JobNow | None = None, *, by_time: bool = False
) -> dict[Lane, int]:
    """How many jobs could be claimed now, by lane, COUNTED due and COUNTED fresh ones at most; of the lane of `before`,
    only those that come before it. `by_time`: due ones come in turn with fresh ones, rather than before them."""
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
    """A job's place in its lane, as parameters of the statement."""
    if row is None:
        return None, None, None, None
    if row.due:
        # Which fresh ones are older than it is not told by their positions.
        return row.tenant, row.priority, row.place, None if by_time else 0
    return row.tenant, row.priority, row.visible_ms * 1000 if by_time else None, row.place


class Pasts(Core):
    """Reads what queues looked like earlier, one reading at a time in this process."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pool = engine.pools.rest
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def at(self, topic: Topic, instant: datetime) -> Past:
        """What a queue looked like at an instant.

        Raises NotFound for one before its events are shown, TooMuchToRead where it takes longer than SECONDS, and
        Unavailable where others are asked about for longer than PATIENCE_SECONDS meanwhile.
        """
        async with self._in_turn() as db:
            past = await ledger.as_of(db, topic, instant)
        _must_be_shown(instant, past.from_ms)
        return past

    async def jobs_at(
        self, topic: Topic, instant: datetime, *, state: str | None, behind: int, limit: int
    ) -> list[PastJob]:
        """Which jobs a queue had at an instant, of a state or of any, by seq: up to `limit` behind a seq.

        Raises as `at` does.
        """
        async with self._in_turn() as db:
            jobs, from_ms = await ledger.jobs_as_of(db, topic, instant, state=state, behind=behind, limit=limit)
        _must_be_shown(instant, from_ms)
        return jobs

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Connection]:
        """A connection for one reading. Raises TooMuchToRead, Unavailable."""
        try:
            await asyncio.wait_for(self._turn.acquire(), PATIENCE_SECONDS)
        except TimeoutError:
            raise Unavailable("Others ask what queues looked like, which takes a while. Try again.") from None
        try:
            async with self._pool.acquire() as db, db.transaction(readonly=True):
                await db.execute(f"SET LOCAL statement_timeout = '{SECONDS * 1000:.0f}ms'")
                yield db
        except asyncpg.QueryCanceledError:
            raise TooMuchToRead(SECONDS) from None
        finally:
            self._turn.release()


def _must_be_shown(instant: datetime, from_ms: int) -> None:
    at_ms = ms_of(instant)
    if at_ms < from_ms:
        raise NotFound("Nothing is kept of what happened so long ago.", {"at": at_ms, "from": from_ms})
