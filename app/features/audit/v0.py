"""GET /v0/admin/audit: the audit trail."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.base.times import ms_of
from app.http.fields import CURSOR, PAGE_SIZE, cursor_of, cursor_to, page_size, time_of
from app.http.openapi import query
from app.http.route import Call
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Entry
from app.kernel.topics.settings import BIGINT_MAX

PARAMETERS: Final = (
    query("actor", "Only changes by this actor, such as a key's id.", {"type": "string"}),
    query("subject", "Only changes of this subject, such as a topic or a key's id.", {"type": "string"}),
    query("action", "Only changes of this kind.", {"type": "string", "enum": [a.value for a in Action]}),
    query("since", "Only changes since this RFC 3339 time.", {"type": "string", "format": "date-time"}),
    PAGE_SIZE,
    CURSOR,
)


class _AuditCursor(msgspec.Struct, forbid_unknown_fields=True):
    before: Annotated[int, Meta(ge=0, le=BIGINT_MAX)]


class AuditEntry(msgspec.Struct):
    """A change. at: in ms since 1970. address: where the request came from."""

    id: int
    at: int
    actor: str
    actor_name: str | None
    address: str | None
    action: str
    subject: str
    detail: dict[str, Any]


class AuditAnswer(msgspec.Struct):
    """A page of the audit trail, newest first. next_cursor: absent on the last page."""

    entries: list[AuditEntry]
    next_cursor: str | UnsetType = UNSET


async def page(call: Call) -> AuditAnswer:
    """List the changes that the audit trail has, newest first. A key with prefixes sees the changes of its topics."""
    given = call.request.query_params
    size = page_size(call.request)
    place = cursor_of(call.request, _AuditCursor)
    entries = await trail.page(
        call.context.pools.rest,
        BIGINT_MAX if place is None else place.before,
        size + 1,
        actor=given.get("actor"),
        subject=given.get("subject"),
        action=given.get("action"),
        since=time_of(given["since"], "since") if "since" in given else None,
        prefixes=call.prefixes,
    )
    more = cursor_to({"before": entries[size - 1].id}) if len(entries) > size else UNSET
    return AuditAnswer([_body_of(entry) for entry in entries[:size]], more)


def _body_of(entry: Entry) -> AuditEntry:
    fields: dict[str, Any] = msgspec.structs.asdict(entry)
    return AuditEntry(**{**fields, "at": ms_of(entry.at), "detail": msgspec.json.decode(entry.detail)})
