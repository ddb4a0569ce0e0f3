"""Housekeeping: one bounded sweep each. SKIP LOCKED makes any number of them at once correct; there is no leader."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.upkeep import messages, page, v0
from app.pages.frame import Page
from app.pages.permissions import REAP, SEE_SERVER

FEATURE: Final = Feature(
    "upkeep",
    routers=[v0.router, messages.router],
    pages=[
        Page("GET", "/reapers", SEE_SERVER, page.show),
        Page("GET", "/reapers/{name}", SEE_SERVER, page.earlier),
        Page("POST", "/reapers/{name}/run", REAP, page.run),
        Page("POST", "/reapers/delete/schedule", REAP, page.reschedule),
    ],
)
