"""A queue of the test's own, and a client of a further one."""

from __future__ import annotations

import httpx
import pytest

from tests.api.dialect import Topic


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    """A queue with every default. `put` gives it other settings."""
    made = Topic(http, topic)
    await made.put()
    return made
