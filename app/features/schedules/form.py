"""/admin/schedules-new and /admin/schedules/{name}/edit: a schedule made, and one changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.errors import AlreadyExists, Forbidden, HoldfastError, NotAQueue, Throttled, TopicNotFound
from app.features.schedules import requests
from app.features.schedules.store import Missed, Schedule, Wanted
from app.http.access import must_cover
from app.http.sight import WHY
from app.kernel.forms import as_json
from app.kernel.topics.policy import check_name
from app.pages.render import page
from app.pages.session import MOST_BYTES, fields_of

T = TypeVar("T")

MOST_RECORD: Final = MOST_BYTES // 4  # characters that stand in a form's field: it is sent with escapes
MISSED: Final = {
    Missed.SKIP: "nothing",
    Missed.ONCE: "one job for all of them",
    Missed.ALL: "one job each",
}
_NEW: Final = {"time_zone": "UTC", "missed": Missed.ONCE.value, "record": '{"data": {}}'}


class _ChangedMeanwhileError(Exception):
    """It is not what the form was made from."""


async def ask(request: Request) -> Response:
    """The form for a new one."""
    return _form(request, {**_NEW, "topic": request.query_params.get("topic", "")})


async def make(request: Request) -> Response:
    """Make it, unless there is one of its name."""
    fields, errors = await fields_of(request), dict[str, str]()
    name = fields.get("name", "").strip()
    _tried(errors, "name", lambda: requests.check_schedule(name))

    def check(before: Schedule | None) -> None:
        if before is not None:
            raise AlreadyExists("There is a schedule of this name.")

    wanted = _wanted(request, fields, errors)
    if wanted is None or not await _kept(request, (name, wanted), check, errors):
        return _form(request, fields, errors=errors)
    return RedirectResponse(f"/admin/schedules/{name}", 303)


async def edit(request: Request) -> Response:
    """The form with what it is. Raises NotFound; Forbidden where its record is hidden."""
    one = await _seen(request)
    return _form(request, _typed(one), one)


async def change(request: Request) -> Response:
    """Replace it, unless it was changed since the form was made. Raises as edit."""
    one, fields, errors = await _seen(request), await fields_of(request), dict[str, str]()

    def check(before: Schedule | None) -> None:
        if before is None or _stamp(before) != fields.get("was"):
            raise _ChangedMeanwhileError

    wanted = _wanted(request, fields, errors, one)
    try:
        if wanted is None or not await _kept(request, (one.name, wanted), check, errors):
            return _form(request, fields, one, errors=errors)
    except _ChangedMeanwhileError:
        return _form(request, fields, await _seen(request), meanwhile=True)
    return RedirectResponse(f"/admin/schedules/{one.name}", 303)


async def _seen(request: Request) -> Schedule:
    one = await requests.get(requests.let_in(request))
    if one.hidden:
        raise Forbidden(WHY)
    return one


async def _kept(
    request: Request,
    named: tuple[str, Wanted],
    check: Callable[[Schedule | None], None],
    errors: dict[str, str],
) -> bool:
    """Whether it could be kept. What is wrong with it is put to its field."""
    try:
        await requests.put(requests.let_in(request), *named, check)
    except (TopicNotFound, NotAQueue) as error:
        errors["topic"] = error.message
    except (AlreadyExists, Throttled) as error:
        errors["name"] = error.message
    return not errors


def _wanted(
    request: Request, fields: Mapping[str, str], errors: dict[str, str], before: Schedule | None = None
) -> Wanted | None:
    """The schedule that was typed; None where something is wrong with it. A record that has no field, since it is too
    large for one, stays as it is."""
    call = requests.let_in(request)
    topic = fields.get("topic", "").strip()
    _tried(errors, "topic", lambda: must_cover(call.key, check_name(topic)))
    cron = _tried(errors, "cron", lambda: requests.check_cron(fields.get("cron", "")))
    zone = _tried(errors, "time_zone", lambda: requests.check_zone(fields.get("time_zone", "").strip() or "UTC"))
    if before is not None and "record" not in fields:
        job: tuple[bytes, str] | None = before.payload, before.fields
    else:
        text = fields.get("record", "").strip().encode()
        job = _tried(errors, "record", lambda: requests.job_of(call.context.record_of(text)))
    missed = {one.value: one for one in Missed}.get(fields.get("missed", ""), Missed.ONCE)
    return Wanted(topic, cron, zone, missed, *job) if cron and zone and job and not errors else None


def _tried(errors: dict[str, str], field: str, check: Callable[[], T]) -> T | None:
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
    """The form; of one that there is, or of a new one. `meanwhile`: with what it is now, beside what was typed."""
    stored = {} if one is None else _typed(one)
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


def _typed(one: Schedule) -> dict[str, str]:
    """What stands in the fields for a schedule."""
    shown = {"topic": one.topic, "cron": one.cron, "time_zone": one.time_zone, "missed": one.missed.value}
    fields = "".join(f', "{name}": {bytes(value).decode()}' for name, value in requests.fields_of(one).items())
    record = f'{{"data": {as_json(*requests.payload_of(one)).decode()}{fields}}}'
    return shown | ({"record": record} if len(record) <= MOST_RECORD else {})


def _stamp(one: Schedule) -> str:
    return one.updated_at.isoformat()
