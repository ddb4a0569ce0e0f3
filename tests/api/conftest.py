"""Queues of the test's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Topic

if TYPE_CHECKING:
    from tests.conftest import Running

Serve = Callable[..., Awaitable["Running"]]


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    """A queue with every default. `put` gives it other settings."""
    made = Topic(http, topic)
    await made.put()
    return made
