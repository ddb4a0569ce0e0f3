"""A TCP proxy that does to a connection what networks do: it loses replies, holds bytes back, and ends.

What it can't do is to reorder or change bytes: TCP does not either.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

CONNECT_SECONDS: Final = 5.0


class Proxy:
    """Listens on a port of 127.0.0.1 for another one. `swallowed` counts replies that were lost."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self.name = name
        self.swallowed = 0
        self.port = 0
        self._dice = dice
        self._target = 0
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._share = 0.0
        self._most = 0
        self._delay = 0.0
        self._held = 0  # who holds it; several may

    async def open(self, target: int) -> int:
        """The port that leads to `target`."""
        self._target = target
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), "127.0.0.1", 0, backlog=500)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()

    @contextmanager
    def swallowing(self, share: float, most: int = 1_000_000) -> Iterator[None]:
        """Lose this share of replies, `most` at most: the request has gone through, and then the connection ends."""
        self._share, self._most = share, most
        try:
            yield
        finally:
            self._share = 0.0

    @contextmanager
    def delaying(self, seconds: float) -> Iterator[None]:
        """Each piece, either way, takes up to so much longer."""
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    @contextmanager
    def clogged(self) -> Iterator[None]:
        """Nothing goes through, and nobody is told; afterwards all of it does."""
        self.clog()
        try:
            yield
        finally:
            self.unclog()

    def clog(self) -> None:
        self._held += 1
        self._mind()

    def unclog(self) -> None:
        self._held -= 1
        self._mind()

    def cut(self) -> None:
        """End what is open, with whatever is under way."""
        for link in list(self._links):
            link.end()

    def lose(self) -> bool:
        """Whether to lose the reply that is there."""
        if self._share and self._most and self._dice.random() < self._share:
            self._most -= 1
            self.swallowed += 1
            return True
        return False

    @property
    def pause(self) -> float:
        return self._dice.uniform(0, self._delay) if self._delay else 0.0

    @property
    def is_held(self) -> bool:
        return self._held > 0

    def _mind(self) -> None:
        for link in list(self._links):
            link.mind()

    def begin(self, link: _Link) -> None:
        self._links.add(link)
        link.task = asyncio.get_running_loop().create_task(link.connect(self._target))

    def forget(self, link: _Link) -> None:
        self._links.discard(link)


class _Link:
    """Two connections that are one."""

    def __init__(self, proxy: Proxy, client: asyncio.Transport) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.Transport | None = None
        self._waiting: list[tuple[bool, bytes]] = []  # held back, or on its way
        self._asked = False
        self._refused = False  # nobody listens there, which who is held back is not told
        self._ended = False
        self.task: asyncio.Task[None] | None = None

    async def connect(self, port: int) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                loop = asyncio.get_running_loop()
                server, _ = await loop.create_connection(lambda: _Server(self), "127.0.0.1", port)
        except OSError:  # and a timeout, which is one
            self._refused = True
            self.mind()
            return
        if self._ended:
            server.abort()
            return
        _at_once(server)
        self._server = server
        self.mind()

    def said(self, data: bytes, *, by_client: bool) -> None:
        """Pass it on, or not."""
        if by_client:
            self._asked = True
        elif self._asked:
            self._asked = False
            if self._proxy.lose():
                self.end()
                return
        pause = self._proxy.pause
        if self._proxy.is_held or self._server is None or self._waiting or pause:
            self._waiting.append((by_client, data))
            if pause and len(self._waiting) == 1:
                asyncio.get_running_loop().call_later(pause, self.mind)
            return
        self._write(by_client, data)

    def mind(self) -> None:
        """What was held back goes on, if it may."""
        if self._refused and not self._proxy.is_held:
            self.end()
        if self._ended or self._proxy.is_held or self._server is None:
            return
        waiting, self._waiting = self._waiting, []
        for by_client, data in waiting:
            self._write(by_client, data)

    def end(self) -> None:
        """Both ends are told at once, and what was held back is lost."""
        if not self._ended:
            self._ended = True
            self._waiting.clear()
            self._proxy.forget(self)
            self._client.abort()
            if self._server is not None:
                self._server.abort()

    def hung_up(self) -> None:
        """One end is gone. The other one hears of it, unless nothing goes through."""
        if self._proxy.is_held and not self._ended:
            asyncio.get_running_loop().call_later(0.1, self.hung_up)
            return
        if self._ended:
            return
        self.mind()
        self._ended = True
        self._proxy.forget(self)
        self._client.close()
        if self._server is not None:
            self._server.close()

    def _write(self, by_client: bool, data: bytes) -> None:
        end = self._server if by_client else self._client
        if end is not None and not end.is_closing():
            end.write(data)


class _Client(asyncio.Protocol):
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._link: _Link | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        client = cast("asyncio.Transport", transport)
        _at_once(client)
        self._link = _Link(self._proxy, client)
        self._proxy.begin(self._link)

    def data_received(self, data: bytes) -> None:
        assert self._link is not None
        self._link.said(data, by_client=True)

    def connection_lost(self, _: Exception | None) -> None:
        assert self._link is not None
        self._link.hung_up()


class _Server(asyncio.Protocol):
    def __init__(self, link: _Link) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:
        self._link.said(data, by_client=False)

    def connection_lost(self, _: Exception | None) -> None:
        self._link.hung_up()


def _at_once(transport: asyncio.Transport) -> None:
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
