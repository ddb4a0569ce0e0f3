"""Runs of sweeps in PostgreSQL: a row for each sweep says whether a run is under way, in whichever process.

A run belongs to the process that gives signs of life for it, and to nobody once these have stopped: whoever wants the
sweep next goes on with it. Nothing here needs a session of its own, so it works behind PgBouncer too.
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


class Last(msgspec.Struct, frozen=True):
    """The last run of a sweep. `running`: it is under way, and `moved` what it had moved at its last sign of life. One
    that has neither ended nor is running was left behind."""

    name: str
    run: UUID
    started_at: datetime
    finished_at: datetime | None
    moved: int
    error: str | None
    running: bool


class Due(msgspec.Struct, frozen=True):
    """A scheduled time that a run is for, and the schedule as it is kept that names it."""

    at: datetime
    schedule: str | None


class Kept(msgspec.Struct, frozen=True):
    """A sweep's schedule as it is kept, None for the default; up to when scheduled times were seen to; the database's
    time; and whether a run was left behind."""

    schedule: str | None
    due_after: datetime
    at: datetime
    abandoned: bool


async def begin(
    db: Connection, name: str, run: UUID, *, dead: timedelta, rested: timedelta = NONE, due: Due | None = None
) -> int | None:
    """Begin a run, or go on with one that was left behind: what was moved already. None: not now, since one is under
    way, or the last one did not fail and ended less than `rested` ago, or somebody has seen to what is due.

    `dead`: a process that gave no sign for so long is.
    """
    at, schedule = (None, None) if due is None else (due.at, due.schedule)
    moved: int | None = await db.fetchval(_BEGIN, name, run, rested, dead, at, schedule)
    return moved


async def beat(db: Connection, name: str, run: UUID, moved: int) -> bool:
    """Give a sign of life; whether the run is still this process's."""
    return await db.fetchval(_BEAT, name, run, moved) is not None


async def end(db: Connection, name: str, run: UUID, moved: int, error: str | None = None) -> None:
    """It has ended; `error` says why it failed."""
    why = None if error is None else error[:MOST_ERROR].replace("\0", "")
    await db.fetchval(_END, name, run, moved, why, MOST_KEPT)


async def leave(db: Connection, name: str, run: UUID, moved: int | None) -> None:
    """This process can't go on: leave the run to others. `moved` None: what it has moved is known already."""
    await db.fetchval(_LEAVE, name, run, moved)


async def read(db: Connection, names: Sequence[str], dead: timedelta) -> dict[str, Last]:
    """The last run of each of these that has ever run."""
    return {row["name"]: Last(**row) for row in await db.fetch(_READ, list(names), dead)}


async def earlier(db: Connection, name: str) -> list[Last]:
    """The last MOST_KEPT runs of a sweep that moved something, or failed, the last one first."""
    return [Last(**row) for row in await db.fetch(_EARLIER, name, MOST_KEPT)]


async def schedule(db: Connection, name: str, dead: timedelta) -> Kept:
    """A sweep's schedule. It counts from the first time that anybody asks."""
    row = None
    while row is None:  # somebody has made it meanwhile
        row = await db.fetchrow(_READ_SCHEDULE, name, dead)
    return Kept(**row)


async def set_schedule(db: Connection, name: str, text: str, default: str) -> tuple[str, str]:
    """Set it, to be counted from now on if it is another: what it was, and what it is."""
    row = await db.fetchrow(_WRITE_SCHEDULE, name, text, default)
    assert row is not None, "it answers one row always"
    return row["before"], row["after"]
