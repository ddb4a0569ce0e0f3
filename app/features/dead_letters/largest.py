"""What failed in a topic, for all pages that show it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from app.base.outages import TOO_SLOW
from app.features.dead_letters.failures import Failures
from app.features.dead_letters.reader import FailureReader
from app.http.context import Context
from app.kernel.topics.policy import Policy

CLUSTERS: Final = 20
LATELY: Final = timedelta(hours=1)
SECONDS: Final = 3  # that counting them may take


async def largest_failures(
    context: Context, policy: Policy, patience: float, *, lately: bool = False
) -> Failures | None:
    """The CLUSTERS largest of what is out, or of what went out LATELY, as of half a minute ago at most; None where they
    can't be had within `patience` seconds. Raises what asyncpg raises."""

    async def read() -> Failures | None:
        try:
            async with asyncio.timeout(SECONDS):
                since = datetime.now(UTC) - LATELY if lately else None
                return await context.core(FailureReader).read(policy, since, CLUSTERS)
        except (TimeoutError, *TOO_SLOW):
            return None

    key = ("failures", policy.topic.id, policy.config.dead_letter, lately)
    return await context.engine.kept.within(key, read, patience)
