"""How topics are doing: overview, history, what to scale by."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.stats import home_page, v0, v0_history, v0_overview, v0_scale
from app.pages.frame import Page
from app.pages.permissions import SEE

FEATURE: Final = Feature(
    "stats",
    routers=[v0.router, v0_scale.router, v0_history.router, v0_overview.router],
    pages=[
        Page("GET", "/", SEE, home_page.show),
    ],
)
