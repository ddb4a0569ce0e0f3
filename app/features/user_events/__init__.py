"""The stream of a user's events. docs/user-events.md."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.routing import WebSocketRoute

from app.base.keys import Scope
from app.features.feature import Feature, Sweep
from app.features.user_events import sweeps, v0
from app.http.route import Route
from app.http.v0.dialect import V0

_v0 = partial(Route, dialect=V0, parameters=[v0.USER], finds=False)
_EVENTS: Final = "/v0/users/{id}/events"

FEATURE: Final = Feature(
    "user_events",
    sweeps=[Sweep("user_events", sweeps.forget, 15, moves="forgets events for users")],
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
