"""Looks that a page waits for a little only: what takes longer comes after it, or is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

SECONDS: Final = 0.25  # beside what the page costs otherwise it stays below the 500 ms that a page may take

Found = TypeVar("Found")


async def soon(look: Awaitable[Found]) -> Found | None:
    """What a look finds; None where it takes longer than a page should, and it is given up."""
    try:
        async with asyncio.timeout(SECONDS):
            return await look
    except TimeoutError:
        return None
