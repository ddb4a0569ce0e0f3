"""Schedules, for both dialects: what is asked for, and what an answer has."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request

from app import cron
from app.api.bounds import about
from app.api.fields import known_parameters
from app.api.openapi import NAME as NAME_SCHEMA
from app.api.openapi import path
from app.api.paging import cursor_of, cursor_to, foreign_cursor, page_size, prefix, prefix_in
from app.api.route import Call
from app.errors import InvalidRequest
from app.features.schedules import requests
from app.features.schedules.changes import Schedules
from app.features.schedules.store import Missed, Schedule, Wanted
from app.keys import Scope
from app.queue.model import Batch
from app.topics.config import check_name
from app.topics.settings import PATTERN

MOST_ZONE: Final = 64
NAME_IN_PATH: Final = {**path("name", "The schedule's name.", NAME_SCHEMA), "example": "nightly"}
PREFIX: Final = prefix("schedules")

MissedPolicy = Literal["skip", "once", "all"]


class When(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """When to put what into which queue."""

    topic: Annotated[str, about("A queue, which must be there.", pattern=PATTERN)]
    cron: Annotated[
        str,
        Meta(extra_json_schema={"minLength": 1, "maxLength": cron.MOST_LENGTH}),
        about("Five fields: minute, hour, day of month, month, day of week."),
    ]
    time_zone: Annotated[
        Annotated[str, Meta(extra_json_schema={"maxLength": MOST_ZONE})] | None,
        about("An IANA time zone, by whose clocks it is due.", "UTC"),
    ] = None
    missed: Annotated[
        MissedPolicy | None,
        about("What to make of times that were missed: nothing, one job for all, or one each, up to 1000.", "once"),
    ] = None
    paused: Annotated[bool | None, about("Whether it rests. Absent: as before; a new one does not.")] = None


class ScheduleError(msgspec.Struct):
    """Why nothing came of the last try; `code` as an enqueue would answer it."""

    code: str
    message: str


async def put_when(call: Call, body: When, batch: Batch) -> tuple[Schedule, bool]:
    """Make or replace the schedule in the path; whether it was made. `batch`: its job.

    Raises as requests.put, and InvalidSchedule.
    """
    name = requests.name_in(call)
    payload, fields = requests.job_of(batch)
    expression = requests.check_cron(body.cron)
    zone = requests.check_zone("UTC" if body.time_zone is None else body.time_zone)
    missed = Missed(body.missed or "once")
    wanted = Wanted(body.topic, expression, zone, missed, payload, fields, body.paused)
    return await requests.put(call, name, wanted)


async def page_of(call: Call) -> tuple[list[Schedule], str | None]:
    """A page of schedules by name, of topics that the caller's key is for; and the cursor to the next one."""
    request, context = call.request, call.context
    allowed = context.access.prefixes(request, Scope.ADMIN)
    known_parameters(request, {"prefix", "page_size", "cursor"})
    size = page_size(request)
    found = await context.core(Schedules).page(prefix_in(request), _after(request), size + 1, allowed)
    more = cursor_to({"after": found[size - 1].name}) if len(found) > size else None
    return found[:size], more


def error_of(one: Schedule) -> ScheduleError | None:
    """Why nothing came of its last try; None if a job did."""
    if one.error_code is None or one.error_text is None:
        return None
    return ScheduleError(one.error_code, one.error_text)


def _after(request: Request) -> str:
    place = cursor_of(request, dict[str, str])
    try:
        return "" if place is None else check_name(place["after"])
    except (KeyError, InvalidRequest):
        raise foreign_cursor() from None
