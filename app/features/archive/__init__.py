"""The archive of completed jobs, and replays of them."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.archive import messages
from app.features.archive.archive import sweep
from app.features.feature import EASE, Feature, Sweep
from app.http.fields import CURSOR
from app.http.messages.dialect import MESSAGES
from app.http.messages.message import PurgeAnswer
from app.http.route import Route

_route = partial(Route, dialect=MESSAGES, refuses=frozenset({409}))
_LOG: Final = "/api/topics/{topic}/message-log"

FEATURE: Final = Feature(
    "archive",
    sweeps=[Sweep("archive", sweep, 3600, EASE, "deletes completed jobs that are past their replay window")],
    routes=[
        _route(
            "POST",
            "/api/topics/{topic}/replay",
            messages.replay,
            {200: messages.ReplayAnswer},
            scope=Scope.ADMIN | Scope.WRITE,
            takes=messages.ReplayBody,
            empty=b"{}",
            refuses=frozenset({409, 422}),
        ),
        _route(
            "GET",
            _LOG,
            messages.message_log,
            {200: messages.LogAnswer},
            scope=Scope.ADMIN | Scope.READ,
            parameters=[messages.LIMIT, messages.OFFSET, CURSOR],
        ),
        _route(
            "DELETE",
            _LOG,
            messages.purge_log,
            {200: PurgeAnswer},
            scope=Scope.ADMIN | Scope.DELETE,
            parameters=[messages.BEFORE],
        ),
    ],
)
