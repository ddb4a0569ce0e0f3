"""Hints between processes: a topic changed, there is work, API keys changed. docs/semantics.md, sections 4, 15 and 21.

Nothing waits for a hint, and a lost hint does no harm: the TTL of a cache or the poll finds the same. Two carriers send
hints: Redis (bus.py) between all processes of a database, and `Relay` between the workers of one service. Both have
the same messages: `c <process> <topic>` for a change, `w <process> <topic id> <jobs>` for work,
`u <process> <digest>` for events of a user, `k <process>` for changed API keys, and `m <process>` if there were more
changes than a carrier could take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from app.base.loops import REST, Loop
from app.base.metrics import Numbers, catalogue
from app.base.signals import Signal

GATHER_SECONDS: Final = 0.02  # hints within this time are sent together
MOST_WAITING: Final = 1_000  # topics, and users, of one kind of hint that wait for a carrier
DIGEST_DIGITS: Final = 16

log = logging.getLogger(__name__)


class HintBatch(msgspec.Struct):
    """Hints that are sent together. `missed`: there were more changes than `changed` can have."""

    changed: set[str] = msgspec.field(default_factory=set)
    work: dict[int, int] = msgspec.field(default_factory=dict)
    users: set[str] = msgspec.field(default_factory=set)
    keys: bool = False
    missed: bool = False

    def messages(self, me: str) -> list[str]:
        """The messages to send; `me` is the sender."""
        messages = [f"c {me} {topic}" for topic in self.changed]
        messages += [f"w {me} {topic_id} {jobs}" for topic_id, jobs in self.work.items()]
        messages += [f"u {me} {digest}" for digest in self.users]
        messages += [f"k {me}"] if self.keys or self.missed else []
        return messages + ([f"m {me}"] if self.missed else [])


class Outbox:
    """The hints that a carrier has not sent yet. If there are too many, hints of work are dropped, and changes become
    one `missed`. `wake` is called when there is something to send."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._batch = HintBatch()
        self._wake = wake

    def tell_changed(self, topic: str) -> None:
        if topic in self._batch.changed or len(self._batch.changed) < MOST_WAITING:
            self._batch.changed.add(topic)
        else:
            self._batch.missed = True
        self._wake()

    def tell_work(self, topic_id: int, jobs: int) -> None:
        work = self._batch.work
        if topic_id in work or len(work) < MOST_WAITING:
            work[topic_id] = work.get(topic_id, 0) + jobs
            self._wake()

    def tell_user(self, digest: str) -> None:
        if len(self._batch.users) < MOST_WAITING:
            self._batch.users.add(digest)
            self._wake()

    def tell_keys(self) -> None:
        self._batch.keys = True
        self._wake()

    def take(self) -> HintBatch:
        batch, self._batch = self._batch, HintBatch()
        return batch

    def put_back(self, batch: HintBatch) -> None:
        """Keep the changes of a batch that could not be sent. Its work is dropped: the poll has found it by then."""
        for topic in batch.changed:
            self.tell_changed(topic)
        self._batch.missed = self._batch.missed or batch.missed
        if batch.keys or batch.missed:
            self.tell_keys()


class Hints:
    """The hints that one process sends and receives.

    `service` is a name that the workers of one service share if they have a relay. A hint that came over the relay is
    ignored when it comes over Redis too.
    """

    def __init__(self, service: str = "") -> None:
        self.me = f"{service}.{secrets.token_hex(8)}"
        self._siblings = f"{service}." if service else ""
        self._outboxes: list[Outbox] = []
        # Received from other processes.
        self.topic_changed: Signal[str] = Signal()  # the name of a topic whose configuration changed
        self.work_made: Signal[int, int] = Signal()  # topic id, number of jobs or records
        self.user_changed: Signal[str] = Signal()  # the digest of a user who has more events
        self.keys_changed: Signal[()] = Signal()  # API keys were created, rotated or revoked
        self.missed: Signal[()] = Signal()  # hints may have been lost

    def outbox(self, wake: Callable[[], object]) -> Outbox:
        """The outbox for a further carrier. It gets all hints from now on. `wake` is called when there are some."""
        self._outboxes.append(Outbox(wake))
        return self._outboxes[-1]

    def tell_changed(self, topic: str) -> None:
        """Tell other processes that a topic's configuration has changed. Never waits."""
        for outbox in self._outboxes:
            outbox.tell_changed(topic)

    def tell_work(self, topic_id: int, jobs: int) -> None:
        """Tell other processes that so many jobs can be claimed. Never waits."""
        for outbox in self._outboxes:
            outbox.tell_work(topic_id, jobs)

    def tell_user(self, digest: str) -> None:
        """Tell other processes that a user has more events. Never waits."""
        for outbox in self._outboxes:
            outbox.tell_user(digest)

    def tell_keys(self) -> None:
        """Tell other processes that API keys have changed. Never waits."""
        for outbox in self._outboxes:
            outbox.tell_keys()

    def receive(self, data: bytes, *, relayed: bool = False) -> bool:
        """Handle a message that came over the relay or over Redis. Returns whether it was new and valid."""
        match data.decode(errors="replace").split(" "):
            case [_, sender, *_] if sender == self.me:
                return False
            case ["c", _, topic]:
                self.topic_changed.emit(topic)
            case ["w", sender, topic_id, jobs] if topic_id.isdecimal() and jobs.isdecimal() and len(data) < 100:
                if not relayed and self._siblings and sender.startswith(self._siblings):
                    return False
                self.work_made.emit(int(topic_id), int(jobs))
            case ["u", _, digest] if len(digest) == DIGEST_DIGITS:
                self.user_changed.emit(digest)
            case ["k", _]:
                self.keys_changed.emit()
            case ["m", _]:
                self.missed.emit()
            case _:
                log.warning("ignored a hint of an unknown kind: %r", data[:100])
                return False
        return True


SUFFIX: Final = ".hints"
MOST_BYTES: Final = 2_000 if sys.platform == "darwin" else 60_000  # of a datagram; Linux queues ten for a busy worker
BUFFER_BYTES: Final = 256 * 1024
AT_ONCE: Final = 64  # datagrams that are read in one turn of the event loop
OWED_SECONDS: Final = 0.1  # between attempts to reach a worker that does not read


class Relay:
    """Hints between the workers of one service, over unix datagram sockets in a folder that they share.

    Each worker has a socket, named by its slot. A worker that is restarted takes over its slot's socket. Datagrams go
    directly from worker to worker, and nothing waits: a worker that does not read learns later that it missed hints.
    From its creation on the system keeps datagrams of other workers; start() begins to read.

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
        self._loop = Loop("send hints to other workers", self._send, gap=GATHER_SECONDS)
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
