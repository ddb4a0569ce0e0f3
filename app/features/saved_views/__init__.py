"""Views of pages that are kept by name."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.saved_views import page, v0
from app.pages.frame import Page
from app.pages.permissions import KEEP_VIEWS

FEATURE: Final = Feature(
    "saved_views",
    routers=[v0.router],
    pages=[
        Page("POST", "/views", KEEP_VIEWS, page.save),
        Page("POST", "/views/delete", KEEP_VIEWS, page.delete),
    ],
)
