"""Completed jobs that are kept, and replays of them."""

from __future__ import annotations

from typing import Final

from app.features.archive import messages
from app.features.feature import Feature

FEATURE: Final = Feature(
    "archive",
    routers=[messages.router],
)
