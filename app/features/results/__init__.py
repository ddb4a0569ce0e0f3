"""Results of jobs."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.results import v0

FEATURE: Final = Feature(
    "results",
    routers=[v0.router],
)
