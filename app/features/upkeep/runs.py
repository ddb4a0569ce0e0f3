"""Runs of sweeps in PostgreSQL. Each sweep has a row with its current or last run, for all processes.

A run belongs to the process that writes its heartbeat. After the heartbeat stops, the next process that wants to run
the sweep continues the run. No statement needs a session of its own, so this works behind PgBouncer too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from app.base.db import sql
from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_BEGIN = _SQL["begin_run"]
_BEAT = _SQL["beat"]
_END = _SQL["end_run"]
_EARLIER = _SQL["earlier_runs"]
_LEAVE = _SQL["leave_run"]
_READ = _SQL["read_runs"]
_READ_SCHEDULE = _SQL["read_schedule"]
_WRITE_SCHEDULE = _SQL["write_schedule"]

MOST_KEPT: Final = 50  # stored runs per sweep
MOST_ERROR: Final = 500  # characters
NONE: Final = timedelta(0)


class LastRun(msgspec.Struct, frozen=True):
    """A run of a sweep. While it is `running`, `moved` is as of its last heartbeat. A run that has not finished and is
    not running was abandoned: its process died or stopped."""

    name: str
    run: UUID
    started_at: datetime
    finished_at: datetime | None
    moved: int
    error: str | None
    running: bool


class DueTime(msgspec.Struct, frozen=True):
    """A scheduled time to run at, and its schedule, None for the default."""

    at: datetime
    schedule: str | None


class StoredSchedule(msgspec.Struct, frozen=True):
    """A sweep's stored schedule, None for the default.

    due_after: scheduled times up to this one are done. at: the database's time. abandoned: whether a run was abandoned.
    """

    schedule: str | None
    due_after: datetime
    at: datetime
    abandoned: bool


async def begin(
    db: Connection, name: str, run: UUID, *, dead: timedelta, rested: timedelta = NONE, due: DueTime | None = None
) -> int | None:
    """Begin a run, or continue an abandoned one. Returns how much that has moved already.

    Returns None if a run is in progress, if the last one succeeded less than `rested` ago, or if another process has
    run for the `due` time. dead: a process without a heartbeat for this long counts as dead.
    """
    at, schedule = (None, None) if due is None else (due.at, due.schedule)
    moved: int | None = await db.fetchval(_BEGIN, name, run, rested, dead, at, schedule)
    return moved


async def beat(db: Connection, name: str, run: UUID, moved: int) -> bool:
    """Write the heartbeat of a run. Returns whether the run still belongs to this process."""
    return await db.fetchval(_BEAT, name, run, moved) is not None


async def end(db: Connection, name: str, run: UUID, moved: int, error: str | None = None) -> None:
    """End a run. `error`: why it failed."""
    why = None if error is None else error[:MOST_ERROR].replace("\0", "")
    await db.fetchval(_END, name, run, moved, why, MOST_KEPT)


async def leave(db: Connection, name: str, run: UUID, moved: int | None) -> None:
    """Abandon a run, so that another process can continue it. `moved` is None if the row has the count already."""
    await db.fetchval(_LEAVE, name, run, moved)


async def read(db: Connection, names: Sequence[str], dead: timedelta) -> dict[str, LastRun]:
    """Read the last runs of sweeps by name. A sweep that never ran is left out."""
    return {row["name"]: LastRun(**row) for row in await db.fetch(_READ, list(names), dead)}


async def earlier(db: Connection, name: str) -> list[LastRun]:
    """Read the last MOST_KEPT runs of a sweep that moved something or failed, newest first."""
    return [LastRun(**row) for row in await db.fetch(_EARLIER, name, MOST_KEPT)]


async def schedule(db: Connection, name: str, dead: timedelta) -> StoredSchedule:
    """Read a sweep's schedule. Times count from the first call on."""
    row = None
    while row is None:  # another process has just created the row
        row = await db.fetchrow(_READ_SCHEDULE, name, dead)
    return StoredSchedule(**row)


async def set_schedule(db: Connection, name: str, text: str, default: str) -> tuple[str, str]:
    """Set a sweep's schedule. Times of a new one count from now on. Returns the schedules before and after."""
    row = await db.fetchrow(_WRITE_SCHEDULE, name, text, default)
    assert row is not None, "the statement always returns a row"
    return row["before"], row["after"]
