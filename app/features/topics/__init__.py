"""Topics: made, configured, paused, drained, deleted, shown."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.topics import config_page, list_page, messages, page, v0, v0_control
from app.pages.frame import Page
from app.pages.permissions import CHANGE_JOBS, CONFIGURE, CONTROL, SEE

FEATURE: Final = Feature(
    "topics",
    routers=[v0.router, v0_control.router, messages.router],
    pages=[
        Page("GET", "/find", SEE, list_page.find),
        Page("GET", "/topics", SEE, list_page.show),
        Page("GET", "/topics/{topic}", SEE, page.show),
        Page("POST", "/topics/{topic}/release", CHANGE_JOBS, page.take_back),
        Page("POST", "/topics/{topic}/pause", CONTROL, page.pause),
        Page("POST", "/topics/{topic}/resume", CONTROL, page.resume),
        Page("GET", "/topics/{topic}/config", SEE, config_page.show),
        Page("POST", "/topics/{topic}/config", CONFIGURE, config_page.review),
        Page("POST", "/topics/{topic}/config/save", CONFIGURE, config_page.save),
        Page("GET", "/topics/{topic}/config/undo/{entry}", CONFIGURE, config_page.undo),
    ],
)
