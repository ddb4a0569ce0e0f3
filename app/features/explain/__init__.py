"""Why a job is not running, and what a queue looked like earlier."""

from __future__ import annotations

from typing import Final

from app.features.explain import as_of_page, v0
from app.features.feature import Feature
from app.pages.frame import Page
from app.pages.permissions import SEE

FEATURE: Final = Feature(
    "explain",
    routers=[v0.router],
    pages=[
        Page("GET", "/topics/{topic}/asof", SEE, as_of_page.show),
    ],
)
