"""Read topics by a cursor, watch them, and delete records."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature, Sweep, drains
from app.features.logs import store, sweeps, v0, v0_watch
from app.features.logs.watches import Watches
from app.http.route import Route
from app.http.v0.dialect import V0

_v0 = partial(Route, dialect=V0)
_TOPIC: Final = "/v0/topics/{topic}"

FEATURE: Final = Feature(
    "logs",
    cores=[Watches],
    sweeps=[
        Sweep("logs", sweeps.trim, 30, moves="deletes records of logs that are too old or over a cap"),
        Sweep("watches", drains(store.sweep), 60, moves="deletes watches without a connection"),
    ],
    routes=[
        _v0(
            "POST",
            f"{_TOPIC}/diff",
            v0.diff,
            {200: v0.DiffAnswer},
            scope=Scope.READ,
            takes=v0.DiffBody,
            empty=b"{}",
            verb="diff",
        ),
        _v0(
            "POST",
            f"{_TOPIC}/delete",
            v0.delete,
            {200: v0.RecordsDeletedAnswer},
            scope=Scope.DELETE,
            takes=v0.DeleteBody,
            verb="deletions_delete",
        ),
        _v0(
            "POST",
            "/v0/watch",
            v0_watch.make_watch,
            {200: v0_watch.WatchAnswer},
            scope=Scope.READ,
            takes=v0_watch.WatchBody,
            parameters=[v0_watch.LENIENT],
            refuses=frozenset({404}),
            verb="make_watch",
        ),
        _v0(
            "GET",
            "/v0/watch/{wid}",
            v0_watch.watch,
            {200: None},
            scope=Scope.READ,
            query_token=True,
            parameters=v0_watch.CONNECTION,
            refuses=frozenset({406}),
            described={"responses": {"200": v0_watch.STREAM}},
            verb="watch",
        ),
    ],
)
