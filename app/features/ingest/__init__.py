"""Jobs from senders that speak neither dialect."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.ingest import routes

FEATURE: Final = Feature(
    "ingest",
    routers=[routes.router],
)
