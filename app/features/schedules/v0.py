"""/v0/schedules: jobs enqueued by cron expressions."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.base import cron
from app.base.keys import Scope
from app.base.times import ms_of, ms_or_none
from app.features.schedules import requests
from app.features.schedules.changes import Schedules
from app.features.schedules.store import MissedRule, Schedule, ScheduleSpec
from app.http import openapi
from app.http.bounds import about
from app.http.fields import cursor_to, name_after, page_size, prefix, prefix_in
from app.http.route import Call
from app.http.sight import WHY
from app.http.v0.records import AppendBody, Record, columns_of
from app.kernel.model import as_json
from app.kernel.topics.settings import PATTERN

MOST_ZONE: Final = 64
NAME: Final = {**openapi.path("name", "The schedule's name.", openapi.NAME), "example": "nightly"}
PREFIX: Final = prefix("schedules")

MissedPolicy = Literal["skip", "once", "all"]


class PutScheduleBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A schedule: the queue, the times, and the job."""

    topic: Annotated[str, about("An existing queue.", pattern=PATTERN)]
    cron: Annotated[
        str,
        Meta(extra_json_schema={"minLength": 1, "maxLength": cron.MOST_LENGTH}),
        about("Five fields: minute, hour, day of month, month, day of week."),
    ]
    time_zone: Annotated[
        Annotated[str, Meta(extra_json_schema={"maxLength": MOST_ZONE})] | None,
        about("The IANA time zone of the cron expression.", "UTC"),
    ] = None
    missed: Annotated[
        MissedPolicy | None,
        about("The jobs for missed times: skip: none; once: one for all; all: one each, up to 1000.", "once"),
    ] = None
    paused: Annotated[bool | None, about("Whether it is paused. Absent: unchanged; a new schedule is not paused.")] = (
        None
    )
    record: Annotated[Record, about("The job, as in an enqueue, without run_at.")]


class ScheduleError(msgspec.Struct):
    """The error of the last try. `code`: the error code that an enqueue would answer."""

    code: str
    message: str


class TopicScheduleItem(msgspec.Struct, kw_only=True):
    """A schedule without its record. Times are in ms since 1970. `next_fire` is null while it is paused. `last_fire`
    and `last_seq` are the last job's. `fires`: the number of jobs so far."""

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
    """A schedule with its record and its next five times."""

    record: dict[str, Any] | UnsetType = UNSET
    hidden: Annotated[str | UnsetType, about("Why the record is not shown.")] = UNSET
    next_fires: list[int]


class TopicSchedules(msgspec.Struct):
    """A page of schedules by name; `next_cursor` is absent on the last one."""

    schedules: list[TopicScheduleItem]
    next_cursor: str | UnsetType = UNSET


class ScheduleDeletion(msgspec.Struct):
    """A deleted schedule. Jobs that it has enqueued stay."""

    name: str
    deleted: bool


class ScheduleRun(msgspec.Struct):
    """The enqueued job, and the time in its meta.$fire_at."""

    name: str
    topic: str
    seq: int
    fire_at: int


async def page(call: Call) -> TopicSchedules:
    """List schedules by name, without their records."""
    request, context = call.request, call.context
    allowed = context.access.prefixes(request, Scope.ADMIN)
    size = page_size(request)
    found = await context.core(Schedules).page(prefix_in(request), name_after(request), size + 1, allowed)
    more = cursor_to({"after": found[size - 1].name}) if len(found) > size else UNSET
    return TopicSchedules([_item(one) for one in found[:size]], more)


async def put(call: Call, body: PutScheduleBody) -> tuple[int, TopicSchedule]:
    """Create or replace a schedule. Its times count from now on. An unchanged cron and time_zone keep due times."""
    batch, _ = columns_of(AppendBody(records=[body.record]))
    name = requests.name_in(call)
    payload, fields = requests.job_of(batch)
    expression = requests.check_cron(body.cron)
    zone = requests.check_zone("UTC" if body.time_zone is None else body.time_zone)
    missed = MissedRule(body.missed or "once")
    wanted = ScheduleSpec(body.topic, expression, zone, missed, payload, fields, body.paused)
    kept, made = await requests.put(call, name, wanted)
    return 201 if made else 200, _answer_of(kept)


async def get(call: Call) -> TopicSchedule:
    """Show a schedule: its record, its last job and its next times."""
    return _answer_of(await requests.get(call))


async def delete(call: Call) -> ScheduleDeletion:
    """Delete a schedule. Jobs that it has enqueued stay."""
    return ScheduleDeletion(await requests.delete(call), deleted=True)


async def pause(call: Call) -> TopicSchedule:
    """Pause a schedule. Times during the pause don't count as missed."""
    return _answer_of(await requests.pause(call, paused=True))


async def resume(call: Call) -> TopicSchedule:
    """Resume a schedule from now on."""
    return _answer_of(await requests.pause(call, paused=False))


async def run(call: Call) -> ScheduleRun:
    """Enqueue a schedule's job now, even if it is paused. Its times don't change."""
    name, made = await requests.run(call)
    return ScheduleRun(name, made.topic.name, made.seq, ms_of(made.time))


def _answer_of(one: Schedule) -> TopicSchedule:
    item, next_fires = msgspec.structs.asdict(_item(one)), [ms_of(at) for at in requests.next_fires(one)]
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
        next_fire=ms_or_none(one.next_fire),
        last_fire=ms_or_none(one.last_fire),
        last_seq=one.last_seq,
        fires=one.fires,
        last_error=_error(one),
        last_error_at=ms_or_none(one.error_at),
        created_at=ms_of(one.created_at),
        updated_at=ms_of(one.updated_at),
    )


def _error(one: Schedule) -> ScheduleError | None:
    if one.error_code is None or one.error_text is None:
        return None
    return ScheduleError(one.error_code, one.error_text)
