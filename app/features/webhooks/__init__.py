"""Webhooks: HTTP calls when jobs end. docs/webhooks.md, docs/adr/0041."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.webhooks import page
from app.pages.frame import Menu, Page
from app.pages.permissions import SEE_SERVER

FEATURE: Final = Feature(
    "webhooks",
    pages=[
        Page("GET", "/webhooks", SEE_SERVER, page.show, Menu("Webhooks", 5)),
    ],
)
