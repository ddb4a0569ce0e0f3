"""/admin/schedules: the list of schedules, the page of one, and its form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.times import ms_or_none
from app.errors import AlreadyExists, Forbidden, HoldfastError, InvalidRequest, NotAQueue, Throttled, TopicNotFound
from app.features.saved_views import page as saved
from app.features.schedules import requests
from app.features.schedules.changes import Schedules
from app.features.schedules.store import MissedRule, Schedule, ScheduleSpec
from app.http.access import must_cover
from app.http.context import context_of
from app.http.sight import WHY
from app.kernel.model import as_json
from app.kernel.topics.policy import check_name
from app.pages.permissions import SCHEDULE, SEE_SCHEDULES, allows, check_permission
from app.pages.render import page
from app.pages.session import MOST_BYTES, fields_of

T = TypeVar("T")

MOST: Final = 50
MOST_TEXT: Final = 20_000  # characters of a payload on the page
MOST_RECORD: Final = MOST_BYTES // 4  # characters in a form's field, which grow by URL encoding
MISSED: Final = {
    MissedRule.SKIP: "no jobs",
    MissedRule.ONCE: "one job for all missed times",
    MissedRule.ALL: "one job for each missed time",
}
_NEW: Final = {"time_zone": "UTC", "missed": MissedRule.ONCE.value, "record": '{"data": {}}'}


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule, with its times in ms."""

    one: Schedule
    last_ms: int | None
    next_ms: int | None

    @property
    def state(self) -> tuple[str, str]:
        """A word for the state, and its tone."""
        if self.one.paused:
            return "paused", "watch"
        return ("failing", "bad") if self.one.error_code else ("on", "")


class _ScheduleChangedError(Exception):
    """The schedule has changed since the form was rendered."""


async def show(request: Request) -> Response:
    """Show a page of schedules by name. Raises InvalidRequest."""
    given = request.query_params
    prefix, after = given.get("q", "").strip(), given.get("after", "")
    if "\0" in prefix + after:
        raise InvalidRequest("A name must not contain a NUL character.")
    key = check_permission(request, SEE_SCHEDULES)
    allowed = () if key is None else key.prefixes
    found = await context_of(request).core(Schedules).page(prefix, after, MOST + 1, allowed)
    return page(
        request,
        "schedules.html",
        title="Schedules",
        rows=[row_of(one) for one in found[:MOST]],
        prefix=prefix,
        kept=await saved.of(request, _address(q=prefix), worth=bool(prefix)),
        first=_address(q=prefix) if after else "",
        following=_address(q=prefix, after=found[MOST - 1].name) if len(found) > MOST else "",
        here=_address(q=prefix, after=after),
        may_change=allows(request, SCHEDULE),
    )


async def one(request: Request) -> Response:
    """Show a schedule: its job, its last run and its next times. Raises InvalidRequest, NotFound."""
    found = await requests.get(requests.let_in(request))
    text = "" if found.hidden else as_json(*requests.payload_of(found)).decode()
    return page(
        request,
        "schedule.html",
        title=found.name,
        row=row_of(found),
        error_ms=ms_or_none(found.error_at),
        fires=[ms_or_none(at) for at in requests.next_fires(found)],
        hidden=WHY if found.hidden else "",
        payload=text[:MOST_TEXT],
        cut=max(len(text) - MOST_TEXT, 0),
        fields={name: bytes(value).decode() for name, value in requests.fields_of(found).items()},
        made=request.query_params.get("made", ""),
        may_change=allows(request, SCHEDULE, found.topic),
    )


async def pause(request: Request) -> Response:
    """Pause the schedule. Raises NotFound."""
    return _to((await requests.pause(requests.let_in(request), paused=True)).name)


async def resume(request: Request) -> Response:
    """Resume the schedule from now on. Raises NotFound."""
    return _to((await requests.pause(requests.let_in(request), paused=False)).name)


async def run(request: Request) -> Response:
    """Enqueue the schedule's job now. Raises NotFound, and the errors of an enqueue."""
    name, made = await requests.run(requests.let_in(request))
    return _to(name, f"?made={made.seq}")


async def delete(request: Request) -> Response:
    """Delete the schedule. Raises NotFound."""
    await requests.delete(requests.let_in(request))
    return RedirectResponse("/admin/schedules", 303)


async def ask_new(request: Request) -> Response:
    return _form(request, {**_NEW, "topic": request.query_params.get("topic", "")})


async def make_new(request: Request) -> Response:
    """Create a schedule, unless the name is taken."""
    fields, errors = await fields_of(request), dict[str, str]()
    name = fields.get("name", "").strip()
    _or_note(errors, "name", lambda: requests.check_schedule(name))

    def check(before: Schedule | None) -> None:
        if before is not None:
            raise AlreadyExists("A schedule with this name exists.")

    wanted = _spec_in(request, fields, errors)
    if wanted is None or not await _save(request, (name, wanted), check, errors):
        return _form(request, fields, errors=errors)
    return RedirectResponse(f"/admin/schedules/{name}", 303)


async def edit(request: Request) -> Response:
    """Show the form of an existing schedule. Raises NotFound, and Forbidden if its record is hidden."""
    one = await _visible_schedule(request)
    return _form(request, _field_values(one), one)


async def change(request: Request) -> Response:
    """Replace the schedule, unless it has changed since the form was rendered. Raises NotFound, Forbidden."""
    one, fields, errors = await _visible_schedule(request), await fields_of(request), dict[str, str]()

    def check(before: Schedule | None) -> None:
        if before is None or _stamp(before) != fields.get("was"):
            raise _ScheduleChangedError

    wanted = _spec_in(request, fields, errors, one)
    try:
        if wanted is None or not await _save(request, (one.name, wanted), check, errors):
            return _form(request, fields, one, errors=errors)
    except _ScheduleChangedError:
        return _form(request, fields, await _visible_schedule(request), meanwhile=True)
    return RedirectResponse(f"/admin/schedules/{one.name}", 303)


async def _visible_schedule(request: Request) -> Schedule:
    one = await requests.get(requests.let_in(request))
    if one.hidden:
        raise Forbidden(WHY)
    return one


async def _save(
    request: Request,
    named: tuple[str, ScheduleSpec],
    check: Callable[[Schedule | None], None],
    errors: dict[str, str],
) -> bool:
    """Save the schedule. Returns whether it was saved; if not, `errors` has the message by field."""
    try:
        await requests.put(requests.let_in(request), *named, check)
    except (TopicNotFound, NotAQueue) as error:
        errors["topic"] = error.message
    except (AlreadyExists, Throttled) as error:
        errors["name"] = error.message
    return not errors


def _spec_in(
    request: Request, fields: Mapping[str, str], errors: dict[str, str], before: Schedule | None = None
) -> ScheduleSpec | None:
    """Parse the form, None if a field is wrong. A record too large for a field stays as it is."""
    call = requests.let_in(request)
    topic = fields.get("topic", "").strip()
    _or_note(errors, "topic", lambda: must_cover(call.key, check_name(topic)))
    cron = _or_note(errors, "cron", lambda: requests.check_cron(fields.get("cron", "")))
    zone = _or_note(errors, "time_zone", lambda: requests.check_zone(fields.get("time_zone", "").strip() or "UTC"))
    if before is not None and "record" not in fields:
        job: tuple[bytes, str] | None = before.payload, before.fields
    else:
        text = fields.get("record", "").strip().encode()
        job = _or_note(errors, "record", lambda: requests.job_of(call.context.record_of(text)))
    missed = {one.value: one for one in MissedRule}.get(fields.get("missed", ""), MissedRule.ONCE)
    return ScheduleSpec(topic, cron, zone, missed, *job) if cron and zone and job and not errors else None


def _or_note(errors: dict[str, str], field: str, check: Callable[[], T]) -> T | None:
    try:
        return check()
    except HoldfastError as error:
        errors[field] = error.message
        return None


def _form(
    request: Request,
    typed: Mapping[str, str],
    one: Schedule | None = None,
    *,
    errors: Mapping[str, str] | None = None,
    meanwhile: bool = False,
) -> Response:
    """Render the form of a schedule, or of a new one. `meanwhile`: show the current values beside the typed ones."""
    stored = {} if one is None else _field_values(one)
    return page(
        request,
        "schedule_form.html",
        409 if meanwhile else 422 if errors else 200,
        title="New schedule" if one is None else f"Edit {one.name}",
        name=None if one is None else one.name,
        was="" if one is None else _stamp(one),
        typed={field: typed.get(field, stored.get(field, "")) for field in ("name", "topic", "cron", *_NEW)},
        stored=stored if meanwhile else {},
        errors=errors or {},
        choices={one.value: text for one, text in MISSED.items()},
        too_large=one is not None and "record" not in stored,
    )


def _field_values(one: Schedule) -> dict[str, str]:
    values = {"topic": one.topic, "cron": one.cron, "time_zone": one.time_zone, "missed": one.missed.value}
    fields = "".join(f', "{name}": {bytes(value).decode()}' for name, value in requests.fields_of(one).items())
    record = f'{{"data": {as_json(*requests.payload_of(one)).decode()}{fields}}}'
    return values | ({"record": record} if len(record) <= MOST_RECORD else {})


def _stamp(one: Schedule) -> str:
    return one.updated_at.isoformat()


def row_of(found: Schedule) -> ScheduleRow:
    return ScheduleRow(found, ms_or_none(found.last_fire), ms_or_none(found.next_fire))


def _to(name: str, query: str = "") -> Response:
    return RedirectResponse(f"/admin/schedules/{name}{query}", 303)


def _address(**query: str) -> str:
    given = {name: value for name, value in query.items() if value}
    return "/admin/schedules" + (f"?{urlencode(given)}" if given else "")
