"""Runs of sweeps in PostgreSQL: a row for each sweep says whether a run is under way, in whichever process.

A run belongs to the process that gives signs of life for it. Once these stop, the next process that wants the sweep
continues the run. No statement needs a session of its own, so this works behind PgBouncer too.
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

MOST_KEPT: Final = 50  # runs of a sweep
MOST_ERROR: Final = 500  # characters
NONE: Final = timedelta(0)


class LastRun(msgspec.Struct, frozen=True):
    """A run of a sweep. While it is `running`, `moved` is as of its last sign of life. A run that has neither ended nor
    is running was left behind by a process that died or stopped."""

    name: str
    run: UUID
    started_at: datetime
    finished_at: datetime | None
    moved: int
    error: str | None
    running: bool


class DueTime(msgspec.Struct, frozen=True):
    """A scheduled time that a run is for, and the schedule that it follows from, None for the default."""

    at: datetime
    schedule: str | None


class KeptSchedule(msgspec.Struct, frozen=True):
    """A sweep's schedule in the database, None for the default.

    due_after: scheduled times up to this one were seen to. at: the database's time.
    abandoned: whether a run was left behind.
    """

    schedule: str | None
    due_after: datetime
    at: datetime
    abandoned: bool


async def begin(
    db: Connection, name: str, run: UUID, *, dead: timedelta, rested: timedelta = NONE, due: DueTime | None = None
) -> int | None:
    """Begin a run, or continue one that was left behind. Returns how much that has moved already. None: not now.
    A run is under way, the last one succeeded less than `rested` ago, or another process has run for the time due.

    dead: a process that gave no sign of life for this long counts as dead.
    """
    at, schedule = (None, None) if due is None else (due.at, due.schedule)
    moved: int | None = await db.fetchval(_BEGIN, name, run, rested, dead, at, schedule)
    return moved


async def beat(db: Connection, name: str, run: UUID, moved: int) -> bool:
    """Give a sign of life. Returns whether the run is still this process's."""
    return await db.fetchval(_BEAT, name, run, moved) is not None


async def end(db: Connection, name: str, run: UUID, moved: int, error: str | None = None) -> None:
    """Write down that the run has ended; `error` says why it failed."""
    why = None if error is None else error[:MOST_ERROR].replace("\0", "")
    await db.fetchval(_END, name, run, moved, why, MOST_KEPT)


async def leave(db: Connection, name: str, run: UUID, moved: int | None) -> None:
    """Leave the run to other processes. `moved` is None if the row has the count already."""
    await db.fetchval(_LEAVE, name, run, moved)


async def read(db: Connection, names: Sequence[str], dead: timedelta) -> dict[str, LastRun]:
    """The last runs of sweeps by name. A sweep that never ran is left out."""
    return {row["name"]: LastRun(**row) for row in await db.fetch(_READ, list(names), dead)}


async def earlier(db: Connection, name: str) -> list[LastRun]:
    """The last MOST_KEPT runs of a sweep that moved something, or failed, the newest first."""
    return [LastRun(**row) for row in await db.fetch(_EARLIER, name, MOST_KEPT)]


async def schedule(db: Connection, name: str, dead: timedelta) -> KeptSchedule:
    """A sweep's schedule. Times count as scheduled from the first call on."""
    row = None
    while row is None:  # another process has made the row meanwhile
        row = await db.fetchrow(_READ_SCHEDULE, name, dead)
    return KeptSchedule(**row)


async def set_schedule(db: Connection, name: str, text: str, default: str) -> tuple[str, str]:
    """Set the schedule; a new one counts from now on. Returns what it was, and what it is."""
    row = await db.fetchrow(_WRITE_SCHEDULE, name, text, default)
    assert row is not None, "it answers one row always"
    return row["before"], row["after"]
