"""A worker's end of the dispatcher's channel: takes connections, and says what became of them."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from app.serve.dispatch import CLOSED, READY, TAKEN
from app.serve.protocol import BoundedProtocol


class Intake:
    """Open from start() to stop(). `make` is called with a callable for each connection, and makes its protocol."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._owed = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, **protocol: Any) -> None:
        """Say that this worker is ready, and serve what comes with a protocol of these arguments."""
        self._protocol = protocol
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)
        self._say(READY)

    async def stop(self) -> None:
        """Take what lies here, and no more. What is sent and not taken then is given to another worker."""
        while self._take():
            pass
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        await asyncio.gather(*self._tasks)

    def _take(self) -> bool:
        """Whether there was one."""
        try:
            word, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            word, descriptors = b"", []
        if not word:
            # The supervisor is gone. The lifeline says so as well, and that ends the process.
            asyncio.get_running_loop().remove_reader(self._channel)
            return False
        self._say(TAKEN)
        if not descriptors:  # this process has as many open as it may: the kernel dropped it
            self._say(CLOSED)
            return True
        task = asyncio.create_task(self._serve(socket.socket(fileno=descriptors[0])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
        except OSError:
            connection.close()
            self._say(CLOSED)

    def _make(self) -> asyncio.Protocol:
        return _Counted(self, **self._protocol)

    def closed(self) -> None:
        """A connection has ended."""
        self._say(CLOSED)

    def _say(self, word: bytes) -> None:
        self._owed += word
        with suppress(OSError):  # full, and said with the next word; or closed, and nobody asks
            self._owed = self._owed[self._channel.send(self._owed) :]


class _Counted(BoundedProtocol):
    """Tells the intake when its connection has ended."""

    def __init__(self, intake: Intake, **protocol: Any) -> None:
        super().__init__(**protocol)
        self._intake = intake

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._intake.closed()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        if socket is not self:
            socket.ended.subscribe(self._intake.closed)  # type: ignore[attr-defined]  # it is a BoundedSocket from now on
