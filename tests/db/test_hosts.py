"""A URL of several hosts: one that says nothing must not take the others' time, nor keep a connection for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from app.base.db.connect import UNHEARD_SECONDS, Hosts, apart


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("postgresql://u:p@a:1/x", ["postgresql://u:p@a:1/x"]),
        ("postgres://a,b:2/x?sslmode=require", ["postgres://a/x?sslmode=require", "postgres://b:2/x?sslmode=require"]),
        (
            "postgresql://u:p%40,q@[::1]:1,b,c:3/x",
            ["postgresql://u:p%40,q@[::1]:1/x", "postgresql://u:p%40,q@b/x", "postgresql://u:p%40,q@c:3/x"],
        ),
        ("postgresql:///x?host=/tmp", ["postgresql:///x?host=/tmp"]),
    ],
)
def test_a_url_for_each_host(url: str, urls: list[str]) -> None:
    assert apart(url) == urls


async def test_a_host_that_says_nothing_takes_its_part_of_the_time_once(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    callers = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        callers.append(writer)

    silent = await asyncio.start_server(take, "127.0.0.1", 0)
    parts = urlsplit(await new_database())
    credentials, _, host = parts.netloc.rpartition("@")
    netloc = f"{credentials}@127.0.0.1:{silent.sockets[0].getsockname()[1]},{host}"
    hosts = Hosts(urlunsplit(parts._replace(netloc=netloc, query="target_session_attrs=read-write")))
    try:
        for _ in range(2):
            connection: Any = await hosts.connect(timeout=6)
            try:
                assert await connection.fetchval("SELECT 1") == 1
                link = connection._transport.get_extra_info("socket")
                assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                if hasattr(socket, "TCP_USER_TIMEOUT"):
                    assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNHEARD_SECONDS * 1000
            finally:
                connection.terminate()
        assert len(callers) == 1, "who was the right one is asked first"
        with pytest.raises(asyncpg.InvalidCatalogNameError):  # which is the same everywhere, and said at once
            await Hosts(urlunsplit(parts._replace(netloc=f"{credentials}@{host},{host}", path="/none"))).connect(
                timeout=3
            )
    finally:
        for writer in callers:
            writer.close()
        silent.close()
