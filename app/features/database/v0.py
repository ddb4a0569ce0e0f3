"""/v0/admin: what is about the server and not about a topic."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from app.base.db import horizon
from app.http import direct
from app.http.context import context_of
from app.http.fields import encode
from app.http.openapi import operation
from app.http.v0.admin_bodies import HorizonAnswer
from app.http.v0.fields import answer

router = direct.router("admin")


@router.get(
    "/v0/admin/horizon",
    response_class=Response,
    openapi_extra=operation(answers={200: HorizonAnswer}, errors=[401, 403, 503]),
)
async def get_horizon(request: Request) -> Response:
    """Who keeps PostgreSQL from removing dead rows, the oldest first, and what to do about it."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check_server(request)
    return answer(encode(await horizon.read(context.pools.rest))[1:-1], began)
