"""GET /v0/admin/audit: who changed what."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.http import direct
from app.http.context import context_of
from app.http.fields import encode, known_parameters, time_of
from app.http.openapi import operation, query
from app.http.paging import CURSOR, PAGE_SIZE, cursor_of, cursor_to, page_size
from app.http.v0.admin_bodies import AuditAnswer, entry_shown
from app.http.v0.fields import answer
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.topics.settings import BIGINT_MAX

router = direct.router("audit")


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    before: Annotated[int, Meta(ge=0, le=BIGINT_MAX)]


@router.get(
    "/v0/admin/audit",
    response_class=Response,
    openapi_extra=operation(
        parameters=[
            query("actor", "Only changes by this key id, or other actor.", {"type": "string"}),
            query("subject", "Only changes of this topic or key id.", {"type": "string"}),
            query("action", "Only changes of this kind.", {"type": "string", "enum": [a.value for a in Action]}),
            query("since", "Only changes from this time on, RFC 3339.", {"type": "string", "format": "date-time"}),
            PAGE_SIZE,
            CURSOR,
        ],
        answers={200: AuditAnswer},
        errors=[400, 401, 403, 503],
    ),
)
async def page(request: Request) -> Response:
    """Changes of topics' configurations and of keys, the newest first. A key with prefixes sees those of its topics."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check(request, Scope.ADMIN)
    given = request.query_params
    known_parameters(request, {"actor", "subject", "action", "since", "page_size", "cursor"})
    size = page_size(request)
    place = cursor_of(request, _Place)
    entries = await trail.page(
        context.pools.rest,
        BIGINT_MAX if place is None else place.before,
        size + 1,
        actor=given.get("actor"),
        subject=given.get("subject"),
        action=given.get("action"),
        since=time_of(given["since"], "since") if "since" in given else None,
        prefixes=context.access.prefixes(request, Scope.ADMIN),
    )
    fields: dict[str, object] = {"entries": [entry_shown(entry) for entry in entries[:size]]}
    if len(entries) > size:
        fields["next_cursor"] = cursor_to({"before": entries[size - 1].id})
    return answer(encode(fields)[1:-1], began)
