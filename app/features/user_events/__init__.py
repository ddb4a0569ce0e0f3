"""The stream of a user's events."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.user_events import v0

FEATURE: Final = Feature(
    "user_events",
    routers=[v0.router],
)
