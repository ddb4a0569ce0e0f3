"""Passes new connections to the worker with the fewest. docs/adr/0006.

The supervisor accepts connections and sends their descriptors over unix sockets, one pair for each worker. A worker
answers with single bytes: READY once, TAKEN for each connection, CLOSED when one has ended. A connection that was sent
but not taken stays open here. If the worker dies, it goes to another one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

READY, TAKEN, CLOSED = b"r", b"+", b"-"
CONNECTION = b"c"  # sent with each descriptor, which needs a byte

AT_ONCE = 64  # connections accepted in one iteration of the event loop
STUCK_SECONDS = 0.5  # a worker that has not taken a connection for so long gets no others
PAUSE_SECONDS = 0.1  # before the next try when the system has no descriptor left


@dataclass(eq=False, slots=True)
class WorkerLink:
    """One process of a worker. `held`: its number of open connections, as reported."""

    channel: socket.socket
    ready: bool = False
    held: int = 0
    last: int = 0
    untaken: deque[tuple[float, socket.socket]] = field(default_factory=deque)

    def is_stuck(self, now: float) -> bool:
        return bool(self.untaken) and now - self.untaken[0][0] > STUCK_SECONDS


class Dispatcher:
    """Distributes the connections of a listening socket, which the caller closes, to worker processes.

    `complete` is set once all `workers` are ready at the same time.
    """

    def __init__(self, bound: socket.socket, workers: int) -> None:
        self.complete = asyncio.Event()
        self._bound = bound
        self._workers = workers
        self._links: set[WorkerLink] = set()
        self._waiting: deque[socket.socket] = deque()
        self._given = 0
        self._accepting = False

    async def run(self) -> None:
        """Accept and distribute connections until cancelled. Then close the ones that no worker took."""
        self._bound.setblocking(False)
        self._accepting = True
        self._flow()
        try:
            await asyncio.Event().wait()
        finally:
            self._end()

    def last_turn(self) -> None:
        """Accept and distribute the waiting connections for the last time. The listening socket may be closed then."""
        if self._accepting:
            self._accept()
            self._end()

    def _end(self) -> None:
        if self._accepting:
            self._accepting = False
            asyncio.get_running_loop().remove_reader(self._bound)
            self._flow()

    @contextmanager
    def door(self) -> Iterator[socket.socket]:
        """A channel's end for a worker that is about to start. Closed here after the worker has inherited it."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            link = WorkerLink(ours)
            self._links.add(link)
            asyncio.get_running_loop().add_reader(ours, self._on_message, link)
            yield theirs

    def _on_message(self, link: WorkerLink) -> None:
        try:
            words = link.channel.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            words = b""
        if not words:
            self._lost(link)
        for _ in range(words.count(TAKEN)):
            link.untaken.popleft()[1].close()
        link.held -= words.count(CLOSED)
        link.ready = link.ready or READY in words
        if READY in words and sum(link.ready for link in self._links) == self._workers:
            self.complete.set()
        self._flow()

    def _lost(self, link: WorkerLink) -> None:
        """Handle a worker that has ended, or that is stopping."""
        asyncio.get_running_loop().remove_reader(link.channel)
        link.channel.close()
        self._links.discard(link)
        self._waiting.extend(connection for _, connection in link.untaken)
        link.untaken.clear()

    def _flow(self) -> None:
        """Distribute waiting connections, and accept more as long as a worker takes them."""
        if not self._accepting:
            while self._waiting:
                self._waiting.pop().close()
            return
        while self._waiting and self._give(self._waiting[0]):
            self._waiting.popleft()
        if self._waiting or self._takers() == []:
            asyncio.get_running_loop().remove_reader(self._bound)
        else:
            asyncio.get_running_loop().add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("Can't accept connections right now: %s", error)
                asyncio.get_running_loop().remove_reader(self._bound)
                asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._flow)
                return
            if not self._give(connection):
                self._waiting.append(connection)
                self._flow()
                return

    def _takers(self) -> list[WorkerLink]:
        """The workers that take connections, best one first."""
        now = time.monotonic()
        takers = [link for link in self._links if link.ready and not link.is_stuck(now)]
        return sorted(takers, key=lambda link: (link.held, link.last))

    def _give(self, connection: socket.socket) -> bool:
        for link in self._takers():
            # If the channel is full or closed, try the next one. The end of a worker is noticed elsewhere.
            with suppress(OSError):
                socket.send_fds(link.channel, [CONNECTION], [connection.fileno()])
                self._given += 1
                link.last = self._given
                link.held += 1
                link.untaken.append((time.monotonic(), connection))
                return True
        return False
