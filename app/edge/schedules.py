"""Schedules, for whichever edge they are asked for or changed by. docs/schedules.md."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request

from app import cron
from app.edge.access import must_cover
from app.edge.context import Context, context_of
from app.edge.sight import as_seen
from app.engine.schedules import Run
from app.errors import InvalidRequest, InvalidSchedule
from app.keys import Key, Scope, covers
from app.queue.model import Batch
from app.queue.schedules import Schedule, Wanted, of_record
from app.topics.config import check_name
from app.topics.settings import NAME

NEXT: Final = 5


def let_in(request: Request) -> tuple[Context, Key | None]:
    """Refuse who may not change schedules of any topic. Raises Unauthorized, Forbidden."""
    context = context_of(request)
    return context, context.access.check(request, Scope.ADMIN)


def check_cron(text: str) -> str:
    """The expression, parsed. Raises InvalidSchedule."""
    try:
        expression = cron.parse(text)
        if not expression:
            raise ValueError("a schedule has five fields, and this has none")
    except ValueError as error:
        raise _senseless(error, {"cron": text}) from None
    return expression


def check_zone(name: str) -> str:
    """The time zone's name, if there is such a zone. Raises InvalidSchedule."""
    try:
        cron.time_zone(name)
    except ValueError as error:
        raise _senseless(error, {"time_zone": name}) from None
    return name


def check_schedule(name: str) -> str:
    """The name, if a schedule can have it. Raises InvalidRequest."""
    if NAME.match(name) is None:
        raise InvalidRequest(
            "A schedule's name starts with a letter or digit and has up to 255 letters, digits, '.', '_', ':' and '-'."
        )
    return name


def name_in(request: Request) -> str:
    """The schedule that a request's path names. Raises InvalidRequest."""
    return check_schedule(request.path_params["name"])


def job_of(batch: Batch) -> tuple[bytes, str]:
    """What a schedule keeps of a batch of one record; see of_record. Raises InvalidRequest."""
    if batch.run_ats:
        raise InvalidRequest("run_at has no place in a schedule, which says when. A delay counts from then.")
    return of_record(batch)


async def put(
    request: Request, name: str, wanted: Wanted, check: Callable[[Schedule | None], None] | None = None
) -> tuple[Schedule, bool]:
    """Make or replace a schedule: as it is then, and whether it was made; `check` as for Schedules.put.

    Raises Unauthorized, Forbidden, InvalidRequest, TopicNotFound, NotAQueue, AlreadyExists, Throttled.
    """
    context, key = let_in(request)
    must_cover(key, check_name(wanted.topic))
    kept, made = await context.engine.schedules.put(name, wanted, context.access.actor(request), covers(key), check)
    return as_seen(key, kept.topic, kept), made


async def get(request: Request) -> Schedule:
    """The schedule in the path. Raises Unauthorized, Forbidden, NotFound."""
    context, key = let_in(request)
    kept = await context.engine.schedules.get(name_in(request), covers(key))
    return as_seen(key, kept.topic, kept)


async def delete(request: Request) -> None:
    """Delete the schedule in the path. Raises as get."""
    context, key = let_in(request)
    await context.engine.schedules.delete(name_in(request), context.access.actor(request), covers(key))


async def pause(request: Request, *, paused: bool) -> Schedule:
    """Pause the schedule in the path, or let it go on: as it is then. Raises as get."""
    context, key = let_in(request)
    actor = context.access.actor(request)
    kept = await context.engine.schedules.pause(name_in(request), actor, covers(key), paused=paused)
    return as_seen(key, kept.topic, kept)


async def run(request: Request) -> Run:
    """Let it make its job now. Raises as get, and what an enqueue raises."""
    context, key = let_in(request)
    return await context.engine.schedules.run(name_in(request), context.access.actor(request), covers(key))


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


def _senseless(error: ValueError, detail: dict[str, object]) -> InvalidSchedule:
    text = str(error)
    return InvalidSchedule(f"{text[0].upper()}{text[1:]}.", detail)
