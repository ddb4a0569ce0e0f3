"""Watches: several topics sent on one connection. docs/semantics.md, section 17.

The places of watches are stored in PostgreSQL, so that a client can continue with any process. This process saves its
watches' places every SAVE_SECONDS in one statement, which also finds watches that other processes have taken over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.loops import REST, Loop
from app.base.metrics import catalogue
from app.base.outages import UNREACHABLE, as_unavailable
from app.base.signals import Signal
from app.errors import HoldfastError, ShuttingDown, TopicNotFound, Unavailable, WatchTaken
from app.features.logs import store
from app.features.logs.diffs import Diffs, SharedReads
from app.features.logs.store import HeldWatch, Options, WatchPlace
from app.kernel.counts import inspector
from app.kernel.engine import Core
from app.kernel.logs import log as core
from app.kernel.logs.log import Ask, Extent
from app.kernel.logs.readers import ParkedReader, Read
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.kernel.engine import Engine

SAVE_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 0.25  # pause before a queue with open transactions is read again
EVENTS: Final = ("record", "tombstone", "caught-up", "topic-deleted", "error", "heartbeat")

log = logging.getLogger(__name__)


class WatchNews(msgspec.Struct, frozen=True):
    """News of a topic, between two places.

    after, read: None if the topic was deleted. head: the deleted topic's last seq that the watch knew.
    caught_up: the watch was behind and has caught up.
    """

    topic: str
    before: WatchPlace
    after: WatchPlace | None
    read: Read | None
    caught_up: bool = False
    head: int = 0


class Watch:
    """A watch with a connection. `places`: how far each topic was sent, the latest topic last. `moved`: whether places
    have changed since they were saved."""

    def __init__(self, taken: HeldWatch, places: Mapping[str, WatchPlace], *, moved: bool) -> None:
        self.wid, self.holder, self.options = taken.wid, taken.holder, taken.options
        self.places = dict(places)
        self.moved = moved
        self.error: HoldfastError | None = None
        self.ended: Signal[()] = Signal()
        self.mark = 0
        self.seen: dict[int, int] = {}
        self.policies: dict[int, Policy] = {}
        self.asks: dict[int, Ask] = {}  # the next read of each topic
        self.landed: dict[int, Read] = {}  # results that came with the wake-up
        self.pending = deque(self.places)  # topics that may have more records
        self.again: set[str] = set()  # topics with records that can't be read yet
        self.behind = set(self.places)

    def end(self, error: HoldfastError) -> None:
        if self.error is None:
            self.error = error
            self.ended.emit()

    def rewind(self, seqs: Mapping[str, int]) -> None:
        """Go back to the client's places. Places that are ahead of the server's are ignored."""
        for topic, seq in seqs.items():
            place = self.places.get(topic)
            if place is not None and seq < place.seq:
                self.places[topic] = WatchPlace(place.topic_id, seq, chosen=True)

    def read(self, topic_id: int, read: Read) -> tuple[int, int]:
        """Note a read of a topic. Returns the topic's head, and the last scanned seq."""
        head, at = read.diff.extent.head_seq, read.diff.records.next_seq
        self.seen[topic_id] = head
        self.policies[topic_id] = read.policy
        self.asks[topic_id] = _ask(self.options, read.policy, at)
        return head, at

    def advance(self, news: WatchNews) -> None:
        self.moved = True
        del self.places[news.topic]
        if news.after is not None:
            self.places[news.topic] = news.after


class Watches(Core):
    """The watches with a connection to this process."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._reads = SharedReads(engine.core(Diffs), engine.readers, engine.policies)
        self._open: dict[str, Watch] = {}
        self._saving = Loop("save how far watches came", self._save_all, SAVE_SECONDS, first=SAVE_SECONDS)
        self._stopping = False
        self.sent = {event: engine.metrics.counter(catalogue.WATCH_FRAMES, event) for event in EVENTS}
        engine.metrics.levels.append(lambda: [(catalogue.WATCHES, (), self.count())])

    def count(self) -> int:
        return len(self._open)

    async def extents(self, names: Sequence[str]) -> dict[str, tuple[int, Extent]]:
        """Read the ids and extents of the topics that exist."""
        found: dict[str, tuple[int, Extent]] = {}
        policies, db = self._engine.policies, self._engine.pools.hot
        left = list(names)
        for _ in range(2):  # the cached policy may be of a topic that another process has deleted
            got = await asyncio.gather(*(policies.get(name) for name in left), return_exceptions=True)
            known = [policy for policy in got if isinstance(policy, Policy)]
            for error in got:
                if isinstance(error, BaseException) and not isinstance(error, TopicNotFound):
                    raise error
            logs = [(p.topic, p.config.ttl_ms) for p in known if p.config.type is TopicType.LOG]
            queues = [p.topic for p in known if p.config.type is TopicType.QUEUE]
            heads = await core.newest(db, [], queues)
            extents = {s.topic: Extent(s.head_seq, s.earliest_seq) for s in (await core.states(db, logs, 1)).values()}
            for state in (await inspector.states(db, [q for q in queues if q.id in heads], 1)).values():
                head, earliest = state.head_seq, state.earliest_seq
                extents[state.topic] = Extent(head, head + 1 if earliest is None else earliest)
            ids = {policy.topic.name: policy.topic.id for policy in known}
            found |= {name: (ids[name], extent) for name, extent in extents.items()}
            left = [name for name in ids if name not in found]
            if not left:
                break
            for name in left:
                policies.forget(name)
        return found

    async def make(self, owner: str, options: Options, places: Mapping[str, WatchPlace]) -> str:
        """Create a watch and return its wid. Raises Throttled, and asyncpg's errors."""
        return await store.make(self._rows, owner, options, places)

    async def open(self, wid: str, owner: str, rewind: Mapping[str, int]) -> Watch:
        """Take a watch over from any other connection. Raises NotFound, Unauthorized, ShuttingDown."""
        before = self._open.get(wid)
        taken = await store.take(self._rows, wid, owner)
        if self._stopping:
            raise ShuttingDown("The service is stopping. Connect again.")
        old = self._open.get(wid, before)
        if old is None:
            watch = Watch(taken, taken.places, moved=False)
        else:  # it was open in this process, which may know newer places than it has saved
            old.end(_other_holder())
            watch = Watch(taken, old.places, moved=True)
        watch.rewind(rewind)
        self._open[wid] = watch
        self._saving.start()
        return watch

    async def next(self, watch: Watch, seconds: float, takes: Callable[[WatchNews], bool]) -> WatchNews | None:
        """Return the watch's next news, or None after `seconds`. The caller then advances the watch.

        takes: called with news during the wait; returns whether the connection has sent them at once.
        Raises Unavailable; the caller may try again.
        """
        until, readers = time.monotonic() + seconds, self._engine.readers
        while watch.pending or (left := until - time.monotonic()) > 0:
            if watch.pending:
                try:
                    found = await self._look(watch, watch.pending[0])
                except UNREACHABLE as error:
                    raise as_unavailable(error) or Unavailable(
                        "Reading is not possible right now. Try again."
                    ) from error
                watch.pending.popleft()
                if found is not None:
                    return found
                continue
            left = min(left, AGAIN_SECONDS) if watch.again else left
            parked = ParkedReader(watch.seen, watch.asks, partial(self._tell_at_once, watch, takes))
            news = await readers.park(parked, watch.policies, watch.mark, left)
            # Now, or the time of the reads: later changes wake the next wait.
            watch.mark = readers.mark()
            if news.reads:
                watch.mark = min([read.mark for read in news.reads.values()])
                watch.landed.update(news.reads)
            names = {watch.policies[topic_id].topic.name for topic_id in news.changed} | watch.again
            watch.again.clear()
            watch.pending.extend(names)
        return None

    async def leave(self, watch: Watch) -> None:
        """Release a watch at the end of its connection, and save its places for the next one."""
        try:
            if not isinstance(watch.error, WatchTaken):
                await store.leave(self._rows, watch.wid, watch.holder, watch.places)
        except UNREACHABLE as error:
            log.warning("saving the places of a watch failed: %r; it will continue from earlier places", error)
        finally:
            if self._open.get(watch.wid) is watch:
                del self._open[watch.wid]

    def stop(self) -> None:
        self._stopping = True
        for watch in list(self._open.values()):
            watch.end(ShuttingDown("The service is stopping. Connect again."))

    async def drain(self) -> None:
        await self._saving.stop()

    async def save(self) -> None:
        """Save changed places, extend the lives of open watches, and end watches that other processes have taken."""
        watches = list(self._open.values())
        held = [(watch.wid, watch.holder, watch.places if watch.moved else None) for watch in watches]
        for watch in watches:
            watch.moved = False
        try:
            ours = await store.keep(self._rows, held)
        except BaseException:
            for watch in watches:
                watch.moved = True
            raise
        for watch in watches:
            if watch.wid not in ours:
                watch.end(_other_holder())

    async def _look(self, watch: Watch, name: str) -> WatchNews | None:
        place = watch.places[name]
        read = watch.landed.pop(place.topic_id, None)
        if read is None:
            try:
                policy = await self._policy(name, place.topic_id)
                read = await self._reads.read(policy, _ask(watch.options, policy, place.seq))
            except TopicNotFound:
                return WatchNews(name, place, None, None, head=watch.seen.pop(place.topic_id, place.seq))
        head, at = watch.read(place.topic_id, read)
        caught_up = False
        if at == head:
            caught_up = name in watch.behind
            watch.behind.discard(name)
        else:
            watch.behind.add(name)
            if at == place.seq:
                watch.again.add(name)
            else:
                watch.pending.append(name)
        if at == place.seq and not caught_up:
            return None
        return WatchNews(name, place, WatchPlace(place.topic_id, at), read, caught_up)

    def _tell_at_once(self, watch: Watch, takes: Callable[[WatchNews], bool], read: Read) -> bool:
        """Send news to a watch of a single topic without waking its task. With a hundred watches of a log, waking them
        would be a third of a write's cost."""
        if len(watch.places) != 1:
            return False
        [(name, place)] = watch.places.items()
        head, at = read.diff.extent.head_seq, read.diff.records.next_seq
        if at != head or name in watch.behind:
            return False
        if at != place.seq:
            found = WatchNews(name, place, WatchPlace(place.topic_id, at), read)
            if not takes(found):
                return False
            watch.advance(found)
        watch.read(place.topic_id, read)
        return True

    async def _policy(self, name: str, topic_id: int) -> Policy:
        """The policy of the topic with this id. Raises TopicNotFound, also if the topic was created again."""
        policies = self._engine.policies
        policy = await policies.get(name)
        if policy.topic.id != topic_id:
            policies.forget(name)  # only PostgreSQL knows which topic is the newer one
            policy = await policies.get(name)
            if policy.topic.id != topic_id:
                raise TopicNotFound(name)
        return policy

    async def _save_all(self) -> float | None:
        if not self._open:
            return REST
        await self.save()
        return None

    @property
    def _rows(self) -> Pool:
        # Not durable: after a crash, clients create lost watches again.
        return self._engine.pools.verbs(durable=False)


def _ask(options: Options, policy: Policy, after: int) -> Ask:
    return Ask(
        after=after,
        limit=options.limit,
        max_bytes=options.max_bytes,
        without=options.nodes if policy.config.dedupe_node else (),
        tags=options.tags,
        metadata=options.metadata,
        payloads=options.data,
    )


def _other_holder() -> WatchTaken:
    return WatchTaken("Another connection has taken this watch over, or it has expired.")
