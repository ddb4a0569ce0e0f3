"""Health, version, metrics."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.health import health, messages, metrics

FEATURE: Final = Feature(
    "health",
    routers=[health.router, metrics.router, messages.router],
)
