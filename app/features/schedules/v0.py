"""/v0/schedules: jobs that are made when a cron expression is due."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from app.api.bounds import about
from app.api.route import Call
from app.api.v0.columns import columns_of
from app.api.v0.record_bodies import AppendBody, Record
from app.edge.sight import WHY
from app.features.schedules import requests
from app.features.schedules.bodies import MissedPolicy, ScheduleError, When, error_of, page_of, put_when
from app.features.schedules.store import Schedule
from app.queue.forms import as_json


class PutScheduleBody(When, kw_only=True):
    """When to put what into which queue."""

    record: Annotated[Record, about("The job, as an append has it; without run_at.")]


class TopicScheduleItem(msgspec.Struct, kw_only=True):
    """A schedule without its record. Times are in ms since 1970: of the next job, null while it is paused, and of the
    last one, whose seq is last_seq. `fires`: jobs so far."""

    name: str
    topic: str
    cron: str
    time_zone: str
    missed: MissedPolicy
    paused: bool
    next_fire: int | None
    last_fire: int | None
    last_seq: int | None
    fires: int
    last_error: ScheduleError | None
    last_error_at: int | None
    created_at: int
    updated_at: int


class TopicSchedule(TopicScheduleItem, kw_only=True):
    """A schedule, its record, and the next five times."""

    record: dict[str, Any] | UnsetType = UNSET
    hidden: Annotated[str | UnsetType, about("Why the record is not shown.")] = UNSET
    next_fires: list[int]


class TopicSchedules(msgspec.Struct):
    """A page of schedules by name; `next_cursor` is absent on the last one."""

    schedules: list[TopicScheduleItem]
    next_cursor: str | UnsetType = UNSET


class ScheduleDeleted(msgspec.Struct):
    """What it has made stays."""

    name: str
    deleted: bool


class ScheduleRun(msgspec.Struct):
    """The job that was made, and the time in its meta.$fire_at."""

    name: str
    topic: str
    seq: int
    fire_at: int


async def page(call: Call) -> TopicSchedules:
    """Schedules by name, a page at a time, without their records."""
    found, more = await page_of(call)
    return TopicSchedules([_item(one) for one in found], UNSET if more is None else more)


async def put(call: Call, body: PutScheduleBody) -> tuple[int, TopicSchedule]:
    """Make a schedule, or replace one. It counts from now on; one whose cron and time zone stay keeps what is due."""
    batch, _ = columns_of(AppendBody(records=[body.record]))
    kept, made = await put_when(call, body, batch)
    return 201 if made else 200, _shown(kept)


async def get(call: Call) -> TopicSchedule:
    """A schedule: what it makes, when it did last, and when it will."""
    return _shown(await requests.get(call))


async def delete(call: Call) -> ScheduleDeleted:
    """Delete a schedule. What it has made stays."""
    return ScheduleDeleted(await requests.delete(call), deleted=True)


async def pause(call: Call) -> TopicSchedule:
    """Let a schedule rest. Times that go by meanwhile are not missed."""
    return _shown(await requests.pause(call, paused=True))


async def resume(call: Call) -> TopicSchedule:
    """Let a schedule that rests go on, from now on."""
    return _shown(await requests.pause(call, paused=False))


async def run(call: Call) -> ScheduleRun:
    """Make a schedule's job now, paused or not. Its times stay as they are."""
    name, made = await requests.run(call)
    return ScheduleRun(name, made.topic.name, made.seq, _ms(made.time))


def _shown(one: Schedule) -> TopicSchedule:
    item, next_fires = msgspec.structs.asdict(_item(one)), [_ms(at) for at in requests.next_fires(one)]
    if one.hidden:
        return TopicSchedule(**item, hidden=WHY, next_fires=next_fires)
    record = {"data": msgspec.Raw(as_json(*requests.payload_of(one))), **requests.fields_of(one)}
    return TopicSchedule(**item, record=record, next_fires=next_fires)


def _item(one: Schedule) -> TopicScheduleItem:
    return TopicScheduleItem(
        name=one.name,
        topic=one.topic,
        cron=one.cron,
        time_zone=one.time_zone,
        missed=one.missed.value,
        paused=one.paused,
        next_fire=_ms_or_none(one.next_fire),
        last_fire=_ms_or_none(one.last_fire),
        last_seq=one.last_seq,
        fires=one.fires,
        last_error=error_of(one),
        last_error_at=_ms_or_none(one.error_at),
        created_at=_ms(one.created_at),
        updated_at=_ms(one.updated_at),
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _ms_or_none(at: datetime | None) -> int | None:
    return None if at is None else _ms(at)
