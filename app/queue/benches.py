"""Measurements of this instance in PostgreSQL: one is under way at most, over all processes, and the last ones are
kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from app.db import sql
from app.queue.model import Connection

_BEGIN = sql.load(__package__, "bench_begin")
_END = sql.load(__package__, "bench_end")
_LEFT = sql.load(__package__, "bench_left")
_READ = sql.load(__package__, "bench_read")

MOST_KEPT: Final = 20
LEFT_AFTER: Final = timedelta(minutes=2)  # one that has not ended was left by a process that died


class Figures(msgspec.Struct, frozen=True):
    """What a verb did: so many jobs by so many calls, and how long a call took, by nearest rank; None of none."""

    verb: str
    jobs: int
    calls: int
    seconds: float
    jobs_per_second: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Measured(msgspec.Struct, frozen=True):
    """What was asked for: so many jobs in all, a call, calls at once, and bytes of a payload; and what came of it."""

    jobs: int
    batch: int
    clients: int
    size: int
    verbs: list[Figures]


class Bench(Measured, frozen=True, kw_only=True):
    """A measurement: who asked for it, of which version."""

    id: UUID
    started_at: datetime
    finished_at: datetime
    actor: str
    version: str


async def begin(db: Connection, bench: UUID, actor: str, version: str) -> bool:
    """Begin one; False where one is under way."""
    return await db.fetchval(_BEGIN, bench, actor, version) is not None


async def end(db: Connection, bench: UUID, measured: Measured | None) -> None:
    """It has ended; None: it failed, and is forgotten."""
    await db.execute(_END, bench, None if measured is None else msgspec.json.encode(measured).decode(), MOST_KEPT)


async def left(db: Connection) -> list[UUID]:
    """Forget those whose process has died: which."""
    return [row["id"] for row in await db.fetch(_LEFT, LEFT_AFTER)]


async def read(db: Connection) -> list[Bench]:
    """Those that have ended, the last one first: MOST_KEPT of them."""
    found = [(msgspec.json.decode(row["figures"], type=Measured), row) for row in await db.fetch(_READ)]
    columns = ("id", "started_at", "finished_at", "actor", "version")
    return [Bench(**asdict(measured), **{name: row[name] for name in columns}) for measured, row in found]
