"""Routes of topics' schemas."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.schemas import messages

FEATURE: Final = Feature(
    "schemas",
    routers=[messages.router],
)
