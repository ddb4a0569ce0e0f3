"""/admin/schedules: jobs that come by the clock: which there are, what each makes and when; and changes of one."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.errors import InvalidRequest
from app.features.saved_views import page as saved
from app.features.schedules import requests
from app.features.schedules.changes import Schedules
from app.features.schedules.store import Schedule
from app.http.context import context_of
from app.http.sight import WHY
from app.kernel.forms import as_json
from app.pages.permissions import SCHEDULE, SEE_SCHEDULES, allows, must_be_allowed
from app.pages.render import page

MOST: Final = 50
MOST_TEXT: Final = 20_000  # characters of a payload that are shown


class Row(msgspec.Struct, frozen=True):
    """A schedule, with its times in ms."""

    one: Schedule
    last_ms: int | None
    next_ms: int | None

    @property
    def state(self) -> tuple[str, str]:
        """A word for how it is, and its tone."""
        if self.one.paused:
            return "paused", "watch"
        return ("fails", "bad") if self.one.error_code else ("on", "")


async def show(request: Request) -> Response:
    """A page of schedules by name. What is asked for stands in the address. Raises InvalidRequest."""
    given = request.query_params
    prefix, after = given.get("q", "").strip(), given.get("after", "")
    if "\0" in prefix + after:
        raise InvalidRequest("A name has no NUL character.")
    key = must_be_allowed(request, SEE_SCHEDULES)
    allowed = () if key is None else key.prefixes
    found = await context_of(request).core(Schedules).page(prefix, after, MOST + 1, allowed)
    return page(
        request,
        "schedules.html",
        title="Schedules",
        rows=[row(one) for one in found[:MOST]],
        prefix=prefix,
        kept=await saved.of(request, _address(q=prefix), worth=bool(prefix)),
        first=_address(q=prefix) if after else "",
        following=_address(q=prefix, after=found[MOST - 1].name) if len(found) > MOST else "",
        here=_address(q=prefix, after=after),
        may_change=allows(request, SCHEDULE),
    )


async def one(request: Request) -> Response:
    """A schedule: what it makes, when it did last, and when it will. Raises InvalidRequest, NotFound."""
    found = await requests.get(requests.let_in(request))
    text = "" if found.hidden else as_json(*requests.payload_of(found)).decode()
    return page(
        request,
        "schedule.html",
        title=found.name,
        row=row(found),
        error_ms=_ms(found.error_at),
        fires=[_ms(at) for at in requests.next_fires(found)],
        hidden=WHY if found.hidden else "",
        payload=text[:MOST_TEXT],
        cut=max(len(text) - MOST_TEXT, 0),
        fields={name: bytes(value).decode() for name, value in requests.fields_of(found).items()},
        made=request.query_params.get("made", ""),
        may_change=allows(request, SCHEDULE, found.topic),
    )


async def pause(request: Request) -> Response:
    """Let it rest. Raises NotFound."""
    return _to((await requests.pause(requests.let_in(request), paused=True)).name)


async def resume(request: Request) -> Response:
    """Let it go on from now on. Raises NotFound."""
    return _to((await requests.pause(requests.let_in(request), paused=False)).name)


async def run(request: Request) -> Response:
    """Let it make its job now. Raises NotFound, and what an enqueue raises."""
    name, made = await requests.run(requests.let_in(request))
    return _to(name, f"?made={made.seq}")


async def delete(request: Request) -> Response:
    """Delete it. Raises NotFound."""
    await requests.delete(requests.let_in(request))
    return RedirectResponse("/admin/schedules", 303)


def row(found: Schedule) -> Row:
    """A schedule as a list shows it."""
    return Row(found, _ms(found.last_fire), _ms(found.next_fire))


def _to(name: str, query: str = "") -> Response:
    return RedirectResponse(f"/admin/schedules/{name}{query}", 303)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def _address(**query: str) -> str:
    given = {name: value for name, value in query.items() if value}
    return "/admin/schedules" + (f"?{urlencode(given)}" if given else "")
