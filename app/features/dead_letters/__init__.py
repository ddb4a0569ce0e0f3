"""Failed jobs: shown by what failed, requeued, purged."""

from __future__ import annotations

from typing import Final

from app.features.dead_letters import (
    messages_purge,
    messages_requeue,
    page,
    purge_page,
    requeue_page,
    rows_page,
    v0_failures,
    v0_requeue,
)
from app.features.feature import Feature
from app.pages.frame import Page
from app.pages.permissions import PURGE, REQUEUE, SEE

FEATURE: Final = Feature(
    "dead_letters",
    routers=[v0_requeue.router, messages_requeue.router, v0_failures.router, messages_purge.router],
    pages=[
        Page("GET", "/topics/{topic}/dead", SEE, page.show),
        Page("GET", "/topics/{topic}/dead/jobs", SEE, rows_page.show),
        Page("GET", "/topics/{topic}/dead/requeue", REQUEUE, requeue_page.ask),
        Page("POST", "/topics/{topic}/dead/requeue", REQUEUE, requeue_page.begin),
        Page("GET", "/topics/{topic}/dead/purge", PURGE, purge_page.ask),
        Page("POST", "/topics/{topic}/dead/purge", PURGE, purge_page.run),
    ],
)
