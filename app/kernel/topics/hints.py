"""Hints between processes: a topic changed, there is work, API keys changed. docs/semantics.md, sections 4, 15 and 21.

Nothing waits for a hint, and a lost hint does no harm: the TTL of a cache or the poll finds the same. Two carriers send
hints: Redis (bus.py) between all processes of a database, and sockets (relay.py) between the workers of one service.
Both have the same messages: `c <process> <topic>` for a change, `w <process> <topic id> <jobs>` for work,
`u <process> <digest>` for events of a user, `k <process>` for changed API keys, and `m <process>` if there were more
changes than a carrier could take.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

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
        """Take all hints out."""
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
