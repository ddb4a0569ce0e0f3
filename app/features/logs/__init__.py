"""Log topics: read, watched, shortened."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.logs import v0_delete, v0_diff, v0_watch

FEATURE: Final = Feature(
    "logs",
    routers=[v0_diff.router, v0_watch.router, v0_delete.router],
)
