"""What holds the database up, shown."""

from __future__ import annotations

from typing import Final

from app.features.database import page, v0
from app.features.feature import Feature
from app.pages.frame import Page
from app.pages.permissions import SEE_SERVER

FEATURE: Final = Feature(
    "database",
    routers=[v0.router],
    pages=[
        Page("GET", "/horizon", SEE_SERVER, page.show),
    ],
)
