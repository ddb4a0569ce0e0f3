"""The end of background tasks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

AGAIN_SECONDS: Final = 1.0


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended; what they raise is dropped.

    One that goes on is cancelled again each second: a cancellation can be lost on its way, by redis-py while it
    connects and by Python 3.11's asyncio.wait_for when it meets the result.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
        await asyncio.gather(*done, return_exceptions=True)
