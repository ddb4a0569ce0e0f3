"""/admin/audit: the audit trail, newest entries first. The address has the filter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.base.outages import TOO_SLOW
from app.base.times import ms_of
from app.errors import InvalidRequest
from app.features.saved_views import page as saved
from app.http.context import context_of
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Entry
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.forms import TypedForm, form_with_fault, instant_of
from app.pages.render import page

MOST: Final = 50
SECONDS: Final = 3  # timeout of the search
FEW: Final = 5  # values shown unfolded
_FILTERS: Final = ("subject", "actor", "action", "since")
_ID: Final = re.compile(r"[0-9]{1,18}\Z")
_HREFS: Final = {
    "topic": "/admin/topics/",
    "key": "/admin/keys/",
    "user": "/admin/users/",
    "grant": "/admin/users/",
    "cron": "/admin/schedules/",
}
_OF_TOPICS: Final = {"cluster", "jobs", "log", "records", "replay", "requeue"}
# The subjects of these actions have no page any more.
_ENDS: Final = {Action.TOPIC_DELETED.value, Action.USER_DELETED.value, Action.CRON_DELETED.value}


class Value(msgspec.Struct, frozen=True):
    """A detail of an entry. `before`: the value before, None if the entry doesn't have it."""

    name: str
    text: str
    before: str | None = None


class AuditRow(msgspec.Struct, frozen=True):
    """An entry as the page shows it. `href`: the page of its subject, "" if there is none."""

    at_ms: int
    action: str
    subject: str
    href: str
    actor: str
    name: str
    address: str
    values: list[Value]


async def show(request: Request) -> Response:
    """Render the page. Raises InvalidRequest, Forbidden."""
    given = {name: value for name in _FILTERS if (value := request.query_params.get(name, "").strip())}
    before = request.query_params.get("before", "")
    if before and _ID.match(before) is None:
        raise InvalidRequest("before is not valid. Use the Next link of this page.")
    status, form, found = 200, TypedForm(given), None
    try:
        found = await _read(request, given, int(before) if before else BIGINT_MAX)
    except InvalidRequest as error:
        status, form = error.status, form_with_fault(given, error)
    entries = found or []
    return page(
        request,
        "audit.html",
        status,
        title="Audit",
        form=form,
        actions=[action.value for action in Action],
        filtered=bool(given),
        kept=await saved.of(request, _address(given), worth=bool(given) and not form.faults),
        timed_out=found is None,
        few=FEW,
        rows=[_row(entry) for entry in entries[:MOST]],
        first=_address(given) if before else "",
        following=_address(given | {"before": str(entries[MOST - 1].id)}) if len(entries) > MOST else "",
    )


async def _read(request: Request, given: Mapping[str, str], before: int) -> list[Entry] | None:
    """A page and one entry more. None if the search takes too long, as it does if few of very many entries match."""
    context = context_of(request)
    prefixes = context.access.prefixes(request, Scope.ADMIN)
    since = instant_of(given["since"], "since") if "since" in given else None
    try:
        async with context.pools.rest.acquire() as db, db.transaction(readonly=True):
            await db.execute(f"SET LOCAL statement_timeout = '{SECONDS}s'")
            return await trail.page(
                db,
                before,
                MOST + 1,
                actor=given.get("actor"),
                subject=given.get("subject"),
                action=given.get("action"),
                since=since,
                prefixes=prefixes,
            )
    except TOO_SLOW:
        return None


def _row(entry: Entry) -> AuditRow:
    kind = entry.action.partition(".")[0]
    base = _HREFS.get("topic" if kind in _OF_TOPICS else kind, "") if entry.action not in _ENDS else ""
    return AuditRow(
        at_ms=ms_of(entry.at),
        action=entry.action,
        subject=entry.subject,
        href=base + quote(entry.subject, safe="") if base else "",
        actor=entry.actor,
        name=entry.actor_name or entry.actor,
        address=entry.address or "",
        values=list(_values(msgspec.json.decode(entry.detail))),
    )


def _values(detail: Mapping[str, Any], under: str = "") -> list[Value]:
    """The values in an entry's detail, nested ones with the outer name before their own."""
    found = []
    for name, value in detail.items():
        match value:
            case {"from": before, "to": to, **rest} if not rest:
                found.append(Value(under + name, _text(to), _text(before)))
            case dict() if value and not under:
                found += _values(value, f"{name}.")
            case _:
                found.append(Value(under + name, _text(value)))
    return found


def _text(value: Any) -> str:
    """A value as text. Objects and mixed lists are shown as JSON."""
    match value:
        case None:
            return "none"
        case str():
            return value or "none"
        case list() if all(isinstance(one, str) for one in value):
            return ", ".join(value) or "none"
        case _:
            return msgspec.json.encode(value).decode()


def _address(query: Mapping[str, str]) -> str:
    return "/admin/audit" + (f"?{urlencode(query)}" if query else "")
