"""The audit trail, shown."""

from __future__ import annotations

from typing import Final

from app.features.audit import page, v0
from app.features.feature import Feature
from app.pages.frame import Page
from app.pages.permissions import SEE_RIGHTS

FEATURE: Final = Feature(
    "audit",
    routers=[v0.router],
    pages=[
        Page("GET", "/audit", SEE_RIGHTS, page.show),
    ],
)
