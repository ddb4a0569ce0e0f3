"""Events for the application's users. docs/webhooks.md."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final

from starlette.routing import WebSocketRoute

from app.base.keys import Scope
from app.features.feature import Feature, Sweep, drains
from app.features.user_events import v0
from app.http.route import Route
from app.http.v0.dialect import V0
from app.kernel.model import Connection
from app.kernel.user_events import sweep_events

_v0 = partial(Route, dialect=V0, parameters=[v0.USER], finds=False)
_EVENTS: Final = "/v0/users/{id}/events"

_KEPT: Final = timedelta(minutes=5)
_MOST: Final = 100_000  # events of all users


async def _forget(db: Connection, limit: int) -> int:
    return await sweep_events(db, _KEPT, _MOST, limit)


FEATURE: Final = Feature(
    "user_events",
    sweeps=[Sweep("user_events", drains(_forget), 15, moves="deletes old events of users")],
    routes=[
        _v0(
            "POST",
            "/v0/users/{id}/token",
            v0.token,
            {200: v0.UserTokenAnswer},
            scope=Scope.ADMIN,
            server=True,
            takes=v0.UserTokenBody,
            empty=b"{}",
        ),
        _v0(
            "POST",
            _EVENTS,
            v0.send,
            {200: v0.UserEventAnswer},
            scope=Scope.WRITE,
            takes=v0.UserEventBody,
            refuses=frozenset({429}),
        ),
        _v0(
            "GET",
            _EVENTS,
            v0.listen,
            {200: None},
            scope=Scope(0),
            own_check=True,
            parameters=v0.LISTEN,
            refuses=frozenset({406, 429}),
            described={"responses": {"200": v0.STREAM}},
        ),
    ],
    sockets=[WebSocketRoute(_EVENTS, v0.listen_by_socket)],
)
