"""Turns rows that SQL users insert into jobs."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.inbox import inbox

FEATURE: Final = Feature("inbox", loops=lambda engine: [inbox.loop(engine)])
