"""A queue of the test's own, and services that answer without delay."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Topic

if TYPE_CHECKING:
    from tests.conftest import Running

Serve = Callable[..., Awaitable["Running"]]


@pytest.fixture(scope="session")
def serve(serve: Serve) -> Serve:
    """Starts services whose connections send at once: asyncio turns Nagle's algorithm off for sockets of the protocol
    TCP only, and one that was made without naming it waits 40 ms in each answer, for the client's delayed ACK."""

    async def start(**settings: object) -> Running:
        service = await serve(**settings)
        service._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by what it accepts
        return service

    return start


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    """A queue with every default. `put` gives it other settings."""
    made = Topic(http, topic)
    await made.put()
    return made
