"""Health, version and metrics."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.health import routes
from app.http.dialect import PLAIN
from app.http.messages.dialect import MESSAGES
from app.http.route import Route

_health = partial(
    Route, "GET", do=routes.health, gives={200: routes.Health}, dialect=PLAIN, scope=None, refuses=frozenset({401})
)
_ready = partial(
    Route, "GET", do=routes.ready, gives={200: routes.Ready}, dialect=PLAIN, scope=None, refuses=frozenset({401, 503})
)
_metrics = partial(Route, dialect=PLAIN, scope=Scope.READ, own_check=True)
_about = partial(Route, dialect=MESSAGES, scope=None)

FEATURE: Final = Feature(
    "health",
    routes=[
        _health("/healthz", verb="health"),
        _health("/v0/health", verb="health"),
        _ready("/readyz"),
        _ready("/v0/ready"),
        _metrics("GET", "/metrics", routes.metrics, {200: None}, described=routes.PLAIN_TEXT, verb="metrics"),
        _metrics(
            "GET",
            "/v0/metrics",
            routes.metrics_v0,
            {200: routes.MetricsAnswer},
            described=routes.TEXT_TOO,
            verb="metrics_metrics_v0",
        ),
        _about("GET", "/api/version", routes.version, {200: routes.Version}, verb="about_version"),
        _about("GET", "/api/auth/status", routes.auth_status, {200: routes.AuthStatus}, verb="about_auth_status"),
    ],
)
