"""A topic of the test's own, which nobody has made yet."""

from __future__ import annotations

import httpx
import pytest

from tests.api.messages.client import Messages


@pytest.fixture
def messages(http: httpx.AsyncClient, topic: str) -> Messages:
    return Messages(http, topic)
