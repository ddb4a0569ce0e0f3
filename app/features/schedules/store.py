"""Schedules: rows that say when to put a job into a queue, and what became of it so far. docs/schedules.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from hashlib import sha256
from typing import ClassVar, Final

import asyncpg
import msgspec
from msgspec.structs import replace

from app.base.db import sql
from app.kernel.model import Batch, Connection, Hideable, Seq

_SQL: Final = sql.load_all(__package__)

MOST_TEXT: Final = 500  # characters of an error

# What a record's fields are called, and which column of a batch has them. run_at is none: a schedule says when.
FIELDS: Final = {
    "tag": "tags",
    "node": "producers",
    "meta": "metadata",
    "tenant": "tenants",
    "priority": "priorities",
    "delay_ms": "delays_ms",
    "ttl_ms": "ttls_ms",
    "max_deliveries": "max_deliveries",
    "content_type": "content_types",
    "key": "keys",
    "group": "groups",
    "dedupe_id": "dedupe_ids",
    "webhook": "webhooks",
}
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Missed(Enum):
    """What becomes of times that went by while nothing could be fired: nothing; one job for all of them; one each."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class ScheduleSpec(msgspec.Struct, frozen=True):
    """What a caller wants a schedule to be.

    `cron` is parsed. `payload` and `fields` are the job: `fields` has the record's other fields as a JSON object.
    `paused` None leaves it as it is.
    """

    topic: str
    cron: str
    time_zone: str
    missed: Missed
    payload: bytes
    fields: str
    paused: bool | None = None


class Schedule(Hideable, frozen=True):
    """A schedule.

    `next_fire` is None while it is paused. `last_fire` and `last_seq` are of the last job. `error_*` say why the last
    try made none. `payload` is empty in a list. `hidden`: the reader may not see the job.
    """

    SECRET: ClassVar = {"payload": b"", "fields": "{}"}

    name: str
    topic: str
    cron: str
    time_zone: str
    missed: Missed
    paused: bool
    next_fire: datetime | None
    last_fire: datetime | None
    last_seq: int | None
    fires: int
    error_code: str | None
    error_text: str | None
    error_at: datetime | None
    created_at: datetime
    updated_at: datetime
    payload: bytes = b""
    fields: str = "{}"
    hidden: bool = False


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule, the size of its payload in bytes, and in how many seconds it is due: 0 or less if it is due now."""

    name: str
    topic: str
    size: int
    seconds: float


class FireOutcome(msgspec.Struct, frozen=True):
    """What a try to fire a schedule led to.

    `fired` jobs were made; `last_fire` and `last_seq` are the last one's. `due_at`: when to try again. `error`: code
    and text of the refusal.
    """

    name: str
    next_fire: datetime | None
    due_at: datetime | None
    fired: int = 0
    last_fire: datetime | None = None
    last_seq: Seq | None = None
    error: tuple[str, str] | None = None


async def read(db: Connection, name: str) -> Schedule | None:
    """A schedule; None if there is none of this name."""
    row = await db.fetchrow(_SQL["read"], name)
    return None if row is None else _schedule(row)


async def lock(db: Connection, name: str) -> Schedule | None:
    """The same, locked to the end of the transaction."""
    row = await db.fetchrow(_SQL["lock"], name)
    return None if row is None else _schedule(row)


async def page(db: Connection, prefix: str, after: str, limit: int, allowed: Sequence[str] = ()) -> list[Schedule]:
    """Up to `limit` schedules whose names start with `prefix` and come after `after`, by name in byte order, without
    what they put in. With `allowed`, only of topics whose names start with one of these."""
    return [_schedule(row) for row in await db.fetch(_SQL["page"], prefix, after, limit, list(allowed))]


async def count(db: Connection) -> int:
    """How many there are. Nobody makes another one until the transaction ends."""
    await db.execute(_SQL["make_lock"])
    schedules: int = await db.fetchval(_SQL["count"])
    return schedules


async def write(db: Connection, name: str, wanted: ScheduleSpec, *, paused: bool, next_fire: datetime | None) -> None:
    """Keep it as it is wanted. What it has done so far stays."""
    await db.execute(
        _SQL["write"],
        *(name, wanted.topic, wanted.cron, wanted.time_zone, wanted.missed.value),
        *(paused, next_fire, wanted.payload, wanted.fields),
    )


async def delete(db: Connection, name: str) -> None:
    """Delete a schedule."""
    await db.execute(_SQL["delete"], name)


async def clock(db: Connection) -> datetime:
    """What time it is, by the database's clock."""
    at: datetime = await db.fetchval(_SQL["clock"])
    return at


async def due(db: Connection, at: datetime | None, limit: int) -> list[DueSchedule]:
    """The `limit` schedules that are due first, in order, those that are not yet due included. `at`: what time it is,
    where it is not the clock's."""
    return [DueSchedule(*row) for row in await db.fetch(_SQL["due"], at, limit)]


async def take(
    db: Connection, topic: str, names: Sequence[str], at: datetime | None
) -> tuple[list[Schedule], datetime | None]:
    """Lock a topic's schedules that are due and not locked, to the end of the caller's transaction; and the time, None
    if there are none."""
    rows = await db.fetch(_SQL["take"], topic, list(names), at, len(names))
    return [_schedule(row) for row in rows], rows[0]["at"] if rows else None


async def settle(db: Connection, outcomes: Sequence[FireOutcome]) -> None:
    """Write the outcomes of schedules that the caller's transaction has locked."""
    await db.execute(
        _SQL["settle"],
        [one.name for one in outcomes],
        [one.next_fire for one in outcomes],
        [one.due_at for one in outcomes],
        [one.fired for one in outcomes],
        [one.last_fire for one in outcomes],
        [one.last_seq for one in outcomes],
        [None if one.error is None else one.error[0] for one in outcomes],
        [None if one.error is None else one.error[1][:MOST_TEXT].replace("\0", "") for one in outcomes],
    )


def of_record(batch: Batch) -> tuple[bytes, str]:
    """The payload of a batch of one record, and its other fields as JSON."""
    fields: dict[str, object] = {}
    for field, column in FIELDS.items():
        values = getattr(batch, column)
        if values and values[0] is not None:
            fields[field] = msgspec.Raw(values[0].encode()) if field == "meta" else values[0]
    return batch.payloads[0], msgspec.json.encode(fields).decode()


def job(schedule: Schedule, time: datetime, *, has_id: bool) -> Batch:
    """The job that a schedule makes for a time, which its metadata says: `$schedule` and `$fire_at`. With `has_id`, it
    has a dedupe id: a hash of these two, unless the record has its own."""
    fired = msgspec.json.encode({"$schedule": schedule.name, "$fire_at": time})
    batch = Batch(payloads=[schedule.payload], metadata=[fired.decode()])
    for field, value in _fields.decode(schedule.fields).items():
        if field == "meta":
            own = bytes(value).strip()[1:-1].strip()
            batch.metadata = [f"{{{own.decode()},{fired[1:].decode()}" if own else fired.decode()]
        else:
            setattr(batch, FIELDS[field], [msgspec.json.decode(value)])
    if has_id and not batch.dedupe_ids:
        batch.dedupe_ids = [sha256(f"{schedule.name} {time.isoformat()}".encode()).hexdigest()]
    return batch


def _schedule(row: asyncpg.Record) -> Schedule:
    columns = {name: value for name, value in row.items() if name != "at"}
    return replace(Schedule(**columns), missed=Missed(row["missed"]))
