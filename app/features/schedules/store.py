"""Read and write the rows of schedules. docs/schedules.md."""

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

# A record's fields, and the column of a batch for each. Without run_at, as the schedule sets the time.
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


class MissedRule(Enum):
    """The jobs for times that passed while nothing could be fired: none, one for all times, or one each."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class ScheduleSpec(msgspec.Struct, frozen=True):
    """A schedule as a caller defines it.

    cron: normalized. payload, fields: the job; `fields` has the record's other fields as a JSON object. paused: None
    leaves it unchanged.
    """

    topic: str
    cron: str
    time_zone: str
    missed: MissedRule
    payload: bytes
    fields: str
    paused: bool | None = None


class Schedule(Hideable, frozen=True):
    """A stored schedule.

    next_fire: None while paused. last_fire, last_seq: the last job's. error_*: the error of the last try, if it failed.
    payload: empty in a list. hidden: the reader may not see the job.
    """

    SECRET: ClassVar = {"payload": b"", "fields": "{}"}

    name: str
    topic: str
    cron: str
    time_zone: str
    missed: MissedRule
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
    """A schedule, its payload's size in bytes, and the seconds until it is due: 0 or less if it is due now."""

    name: str
    topic: str
    size: int
    seconds: float


class FireOutcome(msgspec.Struct, frozen=True):
    """The outcome of firing a schedule.

    fired: how many jobs were enqueued. last_fire, last_seq: the last one's. due_at: when to try next. error: the code
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
    """Read a schedule; None if it does not exist."""
    row = await db.fetchrow(_SQL["read"], name)
    return None if row is None else _schedule(row)


async def lock(db: Connection, name: str) -> Schedule | None:
    """Read a schedule and lock it until the end of the transaction; None if it does not exist."""
    row = await db.fetchrow(_SQL["lock"], name)
    return None if row is None else _schedule(row)


async def page(db: Connection, prefix: str, after: str, limit: int, allowed: Sequence[str] = ()) -> list[Schedule]:
    """Read up to `limit` schedules by name in byte order, without their jobs.

    prefix: the start of their names. after: only names after this one. allowed: prefixes of their topics' names, empty
    for all.
    """
    return [_schedule(row) for row in await db.fetch(_SQL["page"], prefix, after, limit, list(allowed))]


async def count(db: Connection) -> int:
    """Count all schedules. Until the transaction ends, no other one can be created."""
    await db.execute(_SQL["make_lock"])
    schedules: int = await db.fetchval(_SQL["count"])
    return schedules


async def write(db: Connection, name: str, wanted: ScheduleSpec, *, paused: bool, next_fire: datetime | None) -> None:
    """Create or replace a schedule. Its history (jobs so far, last job, last error) stays."""
    await db.execute(
        _SQL["write"],
        *(name, wanted.topic, wanted.cron, wanted.time_zone, wanted.missed.value),
        *(paused, next_fire, wanted.payload, wanted.fields),
    )


async def delete(db: Connection, name: str) -> None:
    await db.execute(_SQL["delete"], name)


async def clock(db: Connection) -> datetime:
    at: datetime = await db.fetchval(_SQL["clock"])
    return at


async def due(db: Connection, at: datetime | None, limit: int) -> list[DueSchedule]:
    """Read the `limit` schedules with the earliest due times, also future ones, in order. `at` replaces the clock."""
    return [DueSchedule(*row) for row in await db.fetch(_SQL["due"], at, limit)]


async def take(
    db: Connection, topic: str, names: Sequence[str], at: datetime | None
) -> tuple[list[Schedule], datetime | None]:
    """Lock a topic's due schedules, except locked ones, until the transaction ends. Returns them and the time, which is
    None if there are none."""
    rows = await db.fetch(_SQL["take"], topic, list(names), at, len(names))
    return [_schedule(row) for row in rows], rows[0]["at"] if rows else None


async def settle(db: Connection, outcomes: Sequence[FireOutcome]) -> None:
    """Write the outcomes of schedules that the transaction has locked."""
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
    """Return the payload of a batch of one record, and its other fields as JSON."""
    fields: dict[str, object] = {}
    for field, column in FIELDS.items():
        values = getattr(batch, column)
        if values and values[0] is not None:
            fields[field] = msgspec.Raw(values[0].encode()) if field == "meta" else values[0]
    return batch.payloads[0], msgspec.json.encode(fields).decode()


def job(schedule: Schedule, time: datetime, *, has_id: bool) -> Batch:
    """Build a schedule's job for a time. Its metadata has `$schedule` and `$fire_at`.

    has_id: give it a dedupe id, a hash of these two, unless the record has its own.
    """
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
    return replace(Schedule(**columns), missed=MissedRule(row["missed"]))
