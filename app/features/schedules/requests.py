"""Shared by routes and pages: permissions, checks of input, and the calls of the core."""

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
    """Check that a page's visitor has the scope admin, and return their call. Raises Unauthorized, Forbidden."""
    context = context_of(request)
    return Call(request, context, context.access.check(request, Scope.ADMIN))


def check_cron(text: str) -> str:
    """Parse and normalize a cron expression. Raises InvalidSchedule."""
    try:
        expression = cron.parse(text)
        if not expression:
            raise ValueError("a cron expression must have five fields, and this one is empty")
    except ValueError as error:
        raise _invalid(error, {"cron": text}) from None
    return expression


def check_zone(name: str) -> str:
    """Check that a time zone exists, and return its name. Raises InvalidSchedule."""
    try:
        cron.time_zone(name)
    except ValueError as error:
        raise _invalid(error, {"time_zone": name}) from None
    return name


def check_schedule(name: str) -> str:
    """Check a schedule's name, and return it. Raises InvalidRequest."""
    if NAME.match(name) is None:
        raise InvalidRequest(
            "A schedule's name must start with a letter or digit, "
            "and have up to 255 letters, digits, '.', '_', ':' and '-'."
        )
    return name


def name_in(call: Call) -> str:
    """Return the schedule's name in the path. Raises InvalidRequest."""
    return check_schedule(call.request.path_params["name"])


def job_of(batch: Batch) -> tuple[bytes, str]:
    """Return a record's payload and other fields as a schedule stores them. Raises InvalidRequest."""
    if batch.run_ats:
        raise InvalidRequest("A schedule's record can't have run_at. Use delay_ms, which counts from the due time.")
    return of_record(batch)


async def put(
    call: Call, name: str, wanted: ScheduleSpec, check: Callable[[Schedule | None], None] | None = None
) -> tuple[Schedule, bool]:
    """Create or replace a schedule with `Schedules.put`. Returns the schedule, and whether it was created.

    Raises Forbidden, InvalidRequest, TopicNotFound, NotAQueue, AlreadyExists, Throttled.
    """
    must_cover(call.key, check_name(wanted.topic))
    stored, made = await _core(call).put(name, wanted, _actor(call), covers(call.key), check)
    return as_seen(call.key, stored.topic, stored), made


async def get(call: Call) -> Schedule:
    """Read the schedule in the path. Raises InvalidRequest, NotFound."""
    stored = await _core(call).get(name_in(call), covers(call.key))
    return as_seen(call.key, stored.topic, stored)


async def delete(call: Call) -> str:
    """Delete the schedule in the path. Returns its name. Raises InvalidRequest, NotFound."""
    name = name_in(call)
    await _core(call).delete(name, _actor(call), covers(call.key))
    return name


async def pause(call: Call, *, paused: bool) -> Schedule:
    """Pause or resume the schedule in the path. Returns the changed schedule. Raises InvalidRequest, NotFound."""
    stored = await _core(call).pause(name_in(call), _actor(call), covers(call.key), paused=paused)
    return as_seen(call.key, stored.topic, stored)


async def run(call: Call) -> tuple[str, Run]:
    """Enqueue the schedule's job now. Returns its name and the job.

    Raises InvalidRequest, NotFound, and the errors of an enqueue.
    """
    name = name_in(call)
    return name, await _core(call).run(name, _actor(call), covers(call.key))


def fields_of(one: Schedule) -> dict[str, Any]:
    """Return the fields of the schedule's record except the payload, each as JSON."""
    return msgspec.json.decode(one.fields, type=dict[str, msgspec.Raw])


def payload_of(one: Schedule) -> tuple[bytes, str | None]:
    """Return the payload of the schedule's record, and its content type."""
    kind = fields_of(one).get("content_type")
    return one.payload, None if kind is None else msgspec.json.decode(kind, type=str)


def next_fires(one: Schedule) -> list[datetime]:
    """Return the next NEXT times, or none for a paused schedule."""
    if one.next_fire is None:
        return []
    try:
        zone = cron.time_zone(one.time_zone)
    except ValueError:  # this machine lacks the time zone
        return [one.next_fire]
    return [one.next_fire, *cron.next_times(one.cron, one.next_fire, NEXT - 1, zone)]


def _invalid(error: ValueError, detail: dict[str, object]) -> InvalidSchedule:
    text = str(error)
    return InvalidSchedule(f"{text[0].upper()}{text[1:]}.", detail)


def _core(call: Call) -> Schedules:
    return call.context.core(Schedules)


def _actor(call: Call) -> Actor:
    return call.context.access.actor(call.request)
