"""What routes and pages share: permissions, checks of what was typed, and the calls of the core."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request

from app.base import cron
from app.base.keys import Scope, covers
from app.errors import InvalidRequest, InvalidSchedule
from app.features.schedules.changes import Run, Schedules
from app.features.schedules.store import Schedule, ScheduleSpec, of_record
from app.http.access import must_cover
from app.http.context import context_of
from app.http.route import Call
from app.http.sight import as_seen
from app.kernel.audit.trail import Actor
from app.kernel.model import Batch
from app.kernel.topics.policy import check_name
from app.kernel.topics.settings import NAME

NEXT: Final = 5


def let_in(request: Request) -> Call:
    """The call of a page's visitor, who must have the scope admin. Raises Unauthorized, Forbidden."""
    context = context_of(request)
    return Call(request, context, context.access.check(request, Scope.ADMIN))


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


def name_in(call: Call) -> str:
    """The schedule that a request's path names. Raises InvalidRequest."""
    return check_schedule(call.request.path_params["name"])


def job_of(batch: Batch) -> tuple[bytes, str]:
    """The payload and the other fields of a record, as a schedule stores them. Raises InvalidRequest."""
    if batch.run_ats:
        raise InvalidRequest("run_at has no place in a schedule, which says when. A delay counts from then.")
    return of_record(batch)


async def put(
    call: Call, name: str, wanted: ScheduleSpec, check: Callable[[Schedule | None], None] | None = None
) -> tuple[Schedule, bool]:
    """Make or replace a schedule: as it is then, and whether it was made; `check` as for Schedules.put.

    Raises Forbidden, InvalidRequest, TopicNotFound, NotAQueue, AlreadyExists, Throttled.
    """
    must_cover(call.key, check_name(wanted.topic))
    kept, made = await _core(call).put(name, wanted, _actor(call), covers(call.key), check)
    return as_seen(call.key, kept.topic, kept), made


async def get(call: Call) -> Schedule:
    """The schedule in the path. Raises NotFound."""
    kept = await _core(call).get(name_in(call), covers(call.key))
    return as_seen(call.key, kept.topic, kept)


async def delete(call: Call) -> str:
    """Delete the schedule in the path: its name. Raises as get."""
    name = name_in(call)
    await _core(call).delete(name, _actor(call), covers(call.key))
    return name


async def pause(call: Call, *, paused: bool) -> Schedule:
    """Pause the schedule in the path, or let it go on: as it is then. Raises as get."""
    kept = await _core(call).pause(name_in(call), _actor(call), covers(call.key), paused=paused)
    return as_seen(call.key, kept.topic, kept)


async def run(call: Call) -> tuple[str, Run]:
    """Let it make its job now: its name, and the job. Raises as get, and what an enqueue raises."""
    name = name_in(call)
    return name, await _core(call).run(name, _actor(call), covers(call.key))


def fields_of(one: Schedule) -> dict[str, Any]:
    """The fields of its record, but for the payload, as JSON each."""
    return msgspec.json.decode(one.fields, type=dict[str, msgspec.Raw])


def payload_of(one: Schedule) -> tuple[bytes, str | None]:
    """The payload of its record, and its type, as a job has it."""
    kind = fields_of(one).get("content_type")
    return one.payload, None if kind is None else msgspec.json.decode(kind, type=str)


def next_fires(one: Schedule) -> list[datetime]:
    """Its next NEXT times; none while it is paused."""
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


def _core(call: Call) -> Schedules:
    return call.context.core(Schedules)


def _actor(call: Call) -> Actor:
    return call.context.access.actor(call.request)
