"""Schedules, for both dialects: what is asked for, and what an answer has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request

from app import cron
from app.api.bounds import about
from app.api.fields import known_parameters
from app.api.openapi import NAME as NAME_SCHEMA
from app.api.openapi import path
from app.api.paging import cursor_of, cursor_to, foreign_cursor, page_size, prefix, prefix_in
from app.edge.access import must_cover
from app.edge.context import Context, context_of
from app.engine.schedules import Covers, Run
from app.errors import InvalidRequest, InvalidSchedule
from app.keys import Key, Scope
from app.queue.model import Batch
from app.queue.schedules import Missed, Schedule, Wanted, of_record
from app.topics.config import NAME, PATTERN, check_name

MOST_ZONE: Final = 64
NEXT: Final = 5
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


async def put(request: Request, body: When, batch: Batch) -> tuple[Schedule, bool]:
    """Make or replace the schedule in the path; whether it was made. `batch`: its job.

    Raises Unauthorized, Forbidden, InvalidRequest, InvalidSchedule, TopicNotFound, NotAQueue, AlreadyExists, Throttled.
    """
    context, key = let_in(request)
    name = name_in(request)
    must_cover(key, check_name(body.topic))
    if batch.run_ats:
        raise InvalidRequest("run_at has no place in a schedule, which says when. A delay counts from then.")
    payload, fields = of_record(batch)
    zone = "UTC" if body.time_zone is None else body.time_zone
    try:
        expression = cron.parse(body.cron)
        if not expression:
            raise ValueError("a schedule has five fields, and this has none")
        cron.time_zone(zone)
    except ValueError as error:
        text = str(error)
        raise InvalidSchedule(f"{text[0].upper()}{text[1:]}.", {"cron": body.cron, "time_zone": zone}) from None
    missed = Missed(body.missed or "once")
    wanted = Wanted(body.topic, expression, zone, missed, payload, fields, body.paused)
    return await context.engine.schedules.put(name, wanted, context.access.actor(request), _covers(key))


async def get(request: Request) -> Schedule:
    """The schedule in the path. Raises Unauthorized, Forbidden, NotFound."""
    context, key = let_in(request)
    return await context.engine.schedules.get(name_in(request), _covers(key))


async def page(request: Request) -> tuple[list[Schedule], str | None]:
    """A page of schedules by name, of topics that the caller's key is for; and the cursor to the next one."""
    context = context_of(request)
    allowed = context.access.prefixes(request, Scope.ADMIN)
    known_parameters(request, {"prefix", "page_size", "cursor"})
    size = page_size(request)
    found = await context.engine.schedules.page(prefix_in(request), _after(request), size + 1, allowed)
    more = cursor_to({"after": found[size - 1].name}) if len(found) > size else None
    return found[:size], more


async def delete(request: Request) -> None:
    """Delete the schedule in the path. Raises as get."""
    context, key = let_in(request)
    await context.engine.schedules.delete(name_in(request), context.access.actor(request), _covers(key))


async def pause(request: Request, *, paused: bool) -> Schedule:
    """Pause the schedule in the path, or let it go on: as it is then. Raises as get."""
    context, key = let_in(request)
    actor = context.access.actor(request)
    return await context.engine.schedules.pause(name_in(request), actor, _covers(key), paused=paused)


async def run(request: Request) -> Run:
    """Let it make its job now. Raises as get, and what an enqueue raises."""
    context, key = let_in(request)
    return await context.engine.schedules.run(name_in(request), context.access.actor(request), _covers(key))


def error_of(one: Schedule) -> ScheduleError | None:
    """Why nothing came of its last try; None if a job did."""
    if one.error_code is None or one.error_text is None:
        return None
    return ScheduleError(one.error_code, one.error_text)


def fields_of(one: Schedule) -> dict[str, Any]:
    """The fields of its record, but for the payload, as JSON each."""
    return msgspec.json.decode(one.fields, type=dict[str, msgspec.Raw])


def payload_of(one: Schedule) -> tuple[bytes, str | None]:
    """The payload of its record, and its type, as a job has it."""
    kind = fields_of(one).get("content_type")
    return one.payload, None if kind is None else msgspec.json.decode(kind, type=str)


def next_fires(one: Schedule) -> list[datetime]:
    """The next times that it is fired for, NEXT of them; none while it is paused."""
    if one.next_fire is None:
        return []
    try:
        zone = cron.time_zone(one.time_zone)
    except ValueError:  # this machine does not know it
        return [one.next_fire]
    return [one.next_fire, *cron.next_times(one.cron, one.next_fire, NEXT - 1, zone)]


def let_in(request: Request) -> tuple[Context, Key | None]:
    """Refuse who may not change schedules of any topic. Raises Unauthorized, Forbidden."""
    context = context_of(request)
    return context, context.access.check(request, Scope.ADMIN)


def _covers(key: Key | None) -> Covers:
    return lambda topic: key is None or key.covers(topic)


def name_in(request: Request) -> str:
    """The schedule that a request's path names. Raises InvalidRequest."""
    name: str = request.path_params["name"]
    if NAME.match(name) is None:
        raise InvalidRequest(
            "A schedule's name starts with a letter or digit and has up to 255 letters, digits, '.', '_', ':' and '-'."
        )
    return name


def _after(request: Request) -> str:
    place = cursor_of(request, dict[str, str])
    try:
        return "" if place is None else check_name(place["after"])
    except (KeyError, InvalidRequest):
        raise foreign_cursor() from None
