"""Events for users, and the streams that listen to them. docs/webhooks.md.

An event that this process stores wakes its listeners at once, an event of another process by a hint. In case hints are
lost, and without Redis, one statement looks for new events of all listeners every POLL_SECONDS.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec

from app.base.db import sql
from app.base.loops import REST, Loop
from app.base.metrics import catalogue
from app.base.outages import UNREACHABLE, as_unavailable
from app.base.signals import Signal
from app.errors import HoldfastError, ShuttingDown, Throttled
from app.kernel.batching import GroupCommit
from app.kernel.model import Connection, Topic, id_of

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.base.metrics import Numbers
    from app.kernel.topics.policy import Policy

_SQL: Final = sql.load_all(__package__)
_SEND = _SQL["send_user_events"]
_READ = _SQL["read_user_events"]
_FROM = _SQL["user_events_from"]
_AFTER = _SQL["user_events_after"]
_SWEEP = _SQL["sweep_user_events"]
_USERS_OF = _SQL["users_of"]


class NewUserEvent(msgspec.Struct, frozen=True):
    """An event to store. `data` is JSON."""

    user_id: str
    event: str
    data: str


class UserEvent(msgspec.Struct, frozen=True):
    """A stored event. The ids of a user's events ascend."""

    id: int
    event: str
    data: str


class JobOwner(msgspec.Struct, frozen=True):
    """The user that a job is for, and the job's id."""

    user_id: str
    job_id: str


async def keep_events(db: Connection, events: Sequence[NewUserEvent], most: int) -> list[int]:
    """Store events. Returns their ids, in order. About `most` events of each user are kept, the newest ones.

    Waits for transactions that write to the same users.
    """
    columns = [e.user_id for e in events], [e.event for e in events], [e.data for e in events]
    ids: list[int] = await db.fetchval(_SEND, *columns, most)
    return ids


async def read_events(db: Connection, user_id: str, after: int, limit: int) -> list[UserEvent]:
    """Up to `limit` events of a user after an id, in ascending order."""
    return [UserEvent(*row) for row in await db.fetch(_READ, user_id, after, limit)]


async def newest_event(db: Connection, user_id: str, after: int) -> tuple[int, bool]:
    """The id of a user's newest event, 0 if there is none; whether all events after the given id are still stored."""
    row = await db.fetchrow(_FROM, user_id, after)
    assert row is not None, "the statement always answers one row"
    return row["newest"], after == 0 or row["known"]


async def users_with_more(db: Connection, seen: Sequence[tuple[str, int]]) -> list[str]:
    """The users that have events after their ids."""
    return [row["user_id"] for row in await db.fetch(_AFTER, [user for user, _ in seen], [at for _, at in seen])]


async def sweep_events(db: Connection, keep: timedelta, most: int, limit: int) -> int:
    """Forget events older than `keep`, and all but the newest `most`, at most `limit`. Returns how many."""
    count: int = await db.fetchval(_SWEEP, keep, most, limit)
    return count


async def users_of(db: Connection, topic: Topic, seqs: Sequence[int]) -> dict[int, JobOwner]:
    """The owners of jobs, by seq. Jobs that are for no user are left out."""
    rows = await db.fetch(_USERS_OF, topic.name, seqs)
    return {row["seq"]: JobOwner(row["user_id"], id_of(row["topic_id"], row["first_seq"])) for row in rows}


POLL_SECONDS: Final = 1.0
MOST_KEPT: Final = 1_000  # events of one user
MOST_STREAMS: Final = 50  # of one user, in one process
MOST_AT_ONCE: Final = 16  # events in one read: a megabyte at 64 KiB each
MOST_BYTES: Final = 1024 * 1024  # of events in one statement

log = logging.getLogger(__name__)


class Listener:
    """A stream of a user's events that has the events up to `after`. `more` is set if there may be more events, or if
    the stream must end, and then `error` says why."""

    def __init__(self, user_id: str, after: int) -> None:
        self.user_id = user_id
        self.after = after
        self.more = asyncio.Event()
        self.more.set()  # there may be events from before it was registered
        self.error: HoldfastError | None = None

    def end(self, error: HoldfastError) -> None:
        """Make the stream end with this error."""
        self.error = error
        self.more.set()


class Users:
    """Stores events for users, tells other processes of them, and wakes the listeners of this process."""

    def __init__(self, pools: Pools, numbers: Numbers, max_waiting: int) -> None:
        self._pools = pools
        self._kept, self._dropped, self.sent = (
            numbers.counter(catalogue.USER_EVENTS, outcome) for outcome in ("kept", "dropped", "sent")
        )
        self._group: GroupCommit[Sequence[NewUserEvent], list[int]] = GroupCommit(
            self._commit, max_waiting=max_waiting, most=MOST_BYTES, weight=lambda some: sum(len(e.data) for e in some)
        )
        self._listeners: dict[str, set[Listener]] = {}  # by their users' digests
        self._poll = Loop(
            "look for users' events",
            self._look,
            POLL_SECONDS,
            first=POLL_SECONDS,
            passing=(asyncpg.PostgresError,),
        )
        self._stopping = False
        self.stored: Signal[str] = Signal()  # digest of a user whose events this process has stored

    async def send(self, event: NewUserEvent) -> int:
        """Store an event. Returns its id. Raises TooManyWaiting, Unavailable."""
        return (await self._group.submit(None, [event]))[0]

    async def find_owners(self, policy: Policy, seqs: Iterable[int]) -> Mapping[int, JobOwner]:
        """The owners of a topic's jobs, by seq, if it has user_events. Empty after an error, which is logged."""
        if not policy.config.user_events:
            return {}
        try:
            return await users_of(self._pools.hot, policy.topic, list(seqs))
        except (asyncpg.PostgresError, *UNREACHABLE) as error:
            log.warning("users get no events of jobs of topic %s: %r", policy.topic.name, error)
            return {}

    def tell(self, policy: Policy, event: str, seqs: Iterable[int], owners: Mapping[int, JobOwner]) -> None:
        """Tell users that their jobs have ended. Does not wait. Events that can't be stored are counted as dropped."""
        events = [
            NewUserEvent(one.user_id, event, _json({"topic": policy.topic.name, "seq": seq, "id": one.job_id}))
            for seq in seqs
            if (one := owners.get(seq)) is not None
        ]
        if not events:
            return
        try:
            self._group.submit(None, events).add_done_callback(lambda done: self._count_if_lost(done, len(events)))
        except HoldfastError:  # too many wait
            self._dropped.add(len(events))

    def _count_if_lost(self, done: asyncio.Future[list[int]], count: int) -> None:
        if done.cancelled() or done.exception() is not None:
            self._dropped.add(count)

    async def open(self, user_id: str, after: int | None) -> tuple[Listener, bool]:
        """Listen to a user's events, after an id or from now on. Also returns whether events may have been missed,
        because some after the id are not stored any more. Must be closed with `close`. Raises Throttled,
        Unavailable."""
        if len(self._listeners.get(digest_of(user_id), ())) >= MOST_STREAMS:
            raise Throttled(
                f"This user has too many open streams. The limit is {MOST_STREAMS}.",
                {"limit": "streams_per_user", "max": MOST_STREAMS},
            )
        listener = Listener(user_id, 0)
        self._listeners.setdefault(digest_of(user_id), set()).add(listener)
        try:
            newest, whole = await newest_event(self._pools.rest, user_id, after or 0)
        except BaseException:
            self.close(listener)
            raise
        listener.after = newest if after is None else min(after, newest)
        if self._stopping:
            listener.end(ShuttingDown("The service is stopping. Connect again."))
        self._poll.start()
        return listener, not whole

    def close(self, listener: Listener) -> None:
        digest = digest_of(listener.user_id)
        listeners = self._listeners.get(digest, set())
        listeners.discard(listener)
        if not listeners:
            self._listeners.pop(digest, None)

    async def next(self, listener: Listener, seconds: float) -> list[UserEvent]:
        """The next events; none after `seconds`, or sooner. Raises Unavailable."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await listener.more.wait()
        if not listener.more.is_set() or listener.error is not None:
            return []
        listener.more.clear()
        try:
            found = await read_events(self._pools.rest, listener.user_id, listener.after, MOST_AT_ONCE)
        except (asyncpg.PostgresError, *UNREACHABLE) as error:
            listener.more.set()
            raise as_unavailable(error) or error from None
        if found:
            listener.after = found[-1].id
        if len(found) == MOST_AT_ONCE:
            listener.more.set()
        return found

    def wake(self, digest: str) -> None:
        """A user has more events. Wakes the user's listeners."""
        for listener in self._listeners.get(digest, ()):
            listener.more.set()

    def count(self) -> int:
        return sum(map(len, self._listeners.values()))

    def stop(self) -> None:
        """End all streams, because the service is stopping."""
        self._stopping = True
        for listener in [one for some in self._listeners.values() for one in some]:
            listener.end(ShuttingDown("The service is stopping. Connect again."))

    async def drain(self) -> None:
        """Wait until all events are stored, and stop polling."""
        await self._poll.stop()
        await self._group.drain()

    async def _commit(self, calls: Sequence[Sequence[NewUserEvent]]) -> list[list[int]]:
        events = [event for call in calls for event in call]
        ids = iter(await keep_events(self._pools.hot_async, events, MOST_KEPT))
        self._kept.add(len(events))
        for digest in {digest_of(event.user_id) for event in events}:
            self.wake(digest)
            self.stored.emit(digest)
        return [[next(ids) for _ in call] for call in calls]

    async def _look(self) -> float | None:
        if not self._listeners:
            return REST
        listeners = [one for some in self._listeners.values() for one in some if not one.more.is_set()]
        for user_id in await users_with_more(self._pools.hot, [(one.user_id, one.after) for one in listeners]):
            self.wake(digest_of(user_id))
        return None


def digest_of(user_id: str) -> str:
    """The name of a user in messages between processes: of fixed length, and without characters to escape."""
    return hashlib.blake2b(user_id.encode(), digest_size=8).hexdigest()


def _json(fields: dict[str, object]) -> str:
    return msgspec.json.encode(fields).decode()
