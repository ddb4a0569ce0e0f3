"""/v0/schedules: jobs that are made when a cron expression is due."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.body import read_json
from app.api.bounds import about
from app.api.fields import encode
from app.api.openapi import operation
from app.api.paging import CURSOR, PAGE_SIZE
from app.api.schedules import NAME_IN_PATH, PREFIX, MissedPolicy, ScheduleError, When, error_of, page_of, put_when
from app.api.v0.bodies import Performance
from app.api.v0.columns import columns_of
from app.api.v0.fields import answer
from app.api.v0.record_bodies import AppendBody, Record
from app.edge import schedules
from app.edge.sight import WHY
from app.queue.forms import as_json
from app.queue.schedules import Schedule

router = direct.router("schedules")


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
    performance: Performance


class TopicSchedules(msgspec.Struct):
    """A page of schedules by name; `next_cursor` is absent on the last one."""

    schedules: list[TopicScheduleItem]
    performance: Performance
    next_cursor: str | UnsetType = UNSET


class ScheduleDeleted(msgspec.Struct):
    """What it has made stays."""

    name: str
    deleted: bool
    performance: Performance


class ScheduleRun(msgspec.Struct):
    """The job that was made, and the time in its meta.$fire_at."""

    name: str
    topic: str
    seq: int
    fire_at: int
    performance: Performance


_body = msgspec.json.Decoder(PutScheduleBody)


@router.get(
    "/v0/schedules",
    response_class=Response,
    openapi_extra=operation(
        parameters=[PREFIX, PAGE_SIZE, CURSOR], answers={200: TopicSchedules}, errors=[400, 401, 403, 503]
    ),
)
async def page(request: Request) -> Response:
    """Schedules by name, a page at a time, without their records."""
    began = time.perf_counter()
    found, more = await page_of(request)
    fields: dict[str, object] = {"schedules": [_item(one) for one in found]}
    if more is not None:
        fields["next_cursor"] = more
    return answer(encode(fields)[1:-1], began)


@router.put(
    "/v0/schedules/{name}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[NAME_IN_PATH],
        body=PutScheduleBody,
        answers={200: TopicSchedule, 201: TopicSchedule},
        errors=[400, 401, 403, 404, 409, 413, 415, 422, 503],
    ),
)
async def put(request: Request) -> Response:
    """Make a schedule, or replace one. It counts from now on; one whose cron and time zone stay keeps what is due."""
    began = time.perf_counter()
    context, _ = schedules.let_in(request)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    batch, _ = columns_of(AppendBody(records=[body.record]))
    kept, made = await put_when(request, body, batch)
    return _answer(kept, began, 201 if made else 200)


@router.get(
    "/v0/schedules/{name}",
    response_class=Response,
    openapi_extra=operation(parameters=[NAME_IN_PATH], answers={200: TopicSchedule}, errors=[400, 401, 403, 404, 503]),
)
async def get(request: Request) -> Response:
    """A schedule: what it makes, when it did last, and when it will."""
    began = time.perf_counter()
    return _answer(await schedules.get(request), began)


@router.delete(
    "/v0/schedules/{name}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[NAME_IN_PATH], answers={200: ScheduleDeleted}, errors=[400, 401, 403, 404, 503]
    ),
)
async def delete(request: Request) -> Response:
    """Delete a schedule. What it has made stays."""
    began = time.perf_counter()
    await schedules.delete(request)
    return answer(encode({"name": request.path_params["name"], "deleted": True})[1:-1], began)


@router.post(
    "/v0/schedules/{name}/pause",
    response_class=Response,
    openapi_extra=operation(parameters=[NAME_IN_PATH], answers={200: TopicSchedule}, errors=[400, 401, 403, 404, 503]),
)
async def pause(request: Request) -> Response:
    """Let a schedule rest. Times that go by meanwhile are not missed."""
    began = time.perf_counter()
    return _answer(await schedules.pause(request, paused=True), began)


@router.post(
    "/v0/schedules/{name}/resume",
    response_class=Response,
    openapi_extra=operation(parameters=[NAME_IN_PATH], answers={200: TopicSchedule}, errors=[400, 401, 403, 404, 503]),
)
async def resume(request: Request) -> Response:
    """Let a schedule that rests go on, from now on."""
    began = time.perf_counter()
    return _answer(await schedules.pause(request, paused=False), began)


@router.post(
    "/v0/schedules/{name}/run",
    response_class=Response,
    openapi_extra=operation(
        parameters=[NAME_IN_PATH],
        answers={200: ScheduleRun},
        errors=[400, 401, 403, 404, 409, 422, 503],
    ),
)
async def run(request: Request) -> Response:
    """Make a schedule's job now, paused or not. Its times stay as they are."""
    began = time.perf_counter()
    made = await schedules.run(request)
    fields = {
        "name": request.path_params["name"],
        "topic": made.topic.name,
        "seq": made.seq,
        "fire_at": _ms(made.time),
    }
    return answer(encode(fields)[1:-1], began)


def _answer(one: Schedule, began: float, status: int = 200) -> Response:
    data = None if one.hidden else msgspec.Raw(as_json(*schedules.payload_of(one)))
    fields = {
        **msgspec.structs.asdict(_item(one)),
        **({"hidden": WHY} if data is None else {"record": {"data": data, **schedules.fields_of(one)}}),
        "next_fires": [_ms(at) for at in schedules.next_fires(one)],
    }
    return answer(encode(fields)[1:-1], began, status=status)


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
