"""Hints between the workers of one service, over unix sockets in the folder that they share. See hints.py.

Each worker has a datagram socket, named by its slot. A worker that is restarted takes over its slot's socket. Datagrams
go directly from worker to worker, and nothing waits: a worker that does not read learns later that it has missed hints.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.base.loops import REST, Loop
from app.base.metrics import Numbers, catalogue
from app.kernel.topics.hints import GATHER_SECONDS, HintBatch, Hints

SUFFIX: Final = ".hints"
MOST_BYTES: Final = 2_000 if sys.platform == "darwin" else 60_000  # of a datagram; Linux queues ten for a busy worker
BUFFER_BYTES: Final = 256 * 1024
AT_ONCE: Final = 64  # datagrams that are read in one turn of the event loop
OWED_SECONDS: Final = 0.1  # between attempts to reach a worker that does not read

log = logging.getLogger(__name__)


class Relay:
    """One worker's socket. From its creation on the system keeps datagrams of other workers; start() begins to read.

    `folder` is the service's own. Raises OSError if the socket can't be created, for instance if its path is too long.
    """

    def __init__(self, folder: Path, slot: int, slots: int, hints: Hints, numbers: Numbers | None = None) -> None:
        counted = numbers or Numbers()
        self._sent, self._dropped, self._heard_of = (
            counted.counter(catalogue.RELAY_HINTS, outcome) for outcome in ("sent", "dropped", "heard")
        )
        self._hints = hints
        # One socket for each worker: unread datagrams count against the buffer of the sending socket.
        self._others = {str(folder / f"{other}{SUFFIX}"): _socket() for other in range(slots) if other != slot}
        self._owed: set[str] = set()
        self._loop = Loop("tell the other workers", self._send, gap=GATHER_SECONDS)
        self._listening = False
        mine = folder / f"{slot}{SUFFIX}"
        mine.unlink(missing_ok=True)
        self._socket = _socket()
        try:
            self._socket.bind(str(mine))
        except BaseException:
            self._close()
            raise
        self._outbox = hints.outbox(self._loop.wake)

    def start(self) -> None:
        """Start sending and listening."""
        asyncio.get_running_loop().add_reader(self._socket, self._hear)
        self._listening = True
        self._loop.start()

    async def stop(self) -> None:
        """Send the remaining hints, and stop."""
        await self._loop.stop()
        if self._listening:
            self._listening = False
            self._tell(self._outbox.take())
            asyncio.get_running_loop().remove_reader(self._socket)
        self._close()

    def _close(self) -> None:
        for end in (self._socket, *self._others.values()):
            end.close()

    async def _send(self) -> float:
        self._tell(self._outbox.take())
        return OWED_SECONDS if self._owed else REST

    def _tell(self, batch: HintBatch) -> None:
        messages = batch.messages(self._hints.me)
        datagrams = _pack(messages)
        for other in self._others:
            if other in self._owed:
                sent = self._give(other, f"m {self._hints.me}".encode())
                if sent is False:
                    self._dropped.add(len(messages))
                    continue
                self._owed.discard(other)
            for datagram in datagrams:
                sent = self._give(other, datagram)
                if sent is False:
                    self._owed.add(other)
                    self._dropped.add(len(messages))
                    break
            else:
                self._sent.add(len(messages))

    def _give(self, other: str, datagram: bytes) -> bool | None:
        """Whether the system took it; None if the worker is not running. A new worker has no outdated caches."""
        try:
            self._others[other].sendto(datagram, other)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError:
            return False
        return True

    def _hear(self) -> None:
        for _ in range(AT_ONCE):
            try:
                datagram = self._socket.recv(MOST_BYTES)
            except OSError:
                return
            for message in datagram.split(b"\n"):
                self._heard_of.add(self._hints.receive(message, relayed=True))


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, buffer, BUFFER_BYTES)
    return made


def _pack(messages: Sequence[str]) -> list[bytes]:
    """Put messages into as few datagrams as possible."""
    datagrams: list[bytes] = []
    for message in messages:
        data = message.encode()
        if datagrams and len(datagrams[-1]) + 1 + len(data) <= MOST_BYTES:
            datagrams[-1] += b"\n" + data
        else:
            datagrams.append(data)
    return datagrams
