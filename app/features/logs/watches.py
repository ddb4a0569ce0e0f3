"""Watches: several topics sent on one connection. docs/semantics.md, section 17.

Rows in PostgreSQL say how far each watch has come, so that a client goes on in whichever process it connects to. This
process saves its watches' places every SAVE_SECONDS, in one statement, which also says which were taken over elsewhere.
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
AGAIN_SECONDS: Final = 0.25  # until a queue is read again that somebody has not committed to yet
EVENTS: Final = ("record", "tombstone", "caught-up", "topic-deleted", "error", "heartbeat")

log = logging.getLogger(__name__)


class WatchNews(msgspec.Struct, frozen=True):
    """News of a topic, between two places.

    `after` and `read` are None if the topic was deleted; `head` is the last seq of it that the watch knew of.
    `caught_up`: a reader that was behind has everything now.
    """

    topic: str
    before: WatchPlace
    after: WatchPlace | None
    read: Read | None
    caught_up: bool = False
    head: int = 0


class Watch:
    """A watch on its connection. `places` are how far it was told, the topic that was told last at the end; `moved`:
    since they were saved."""

    def __init__(self, taken: HeldWatch, places: Mapping[str, WatchPlace], *, moved: bool) -> None:
        self.wid, self.holder, self.options = taken.wid, taken.holder, taken.options
        self.places = dict(places)
        self.moved = moved
        self.error: HoldfastError | None = None
        self.ended: Signal[()] = Signal()
        self.mark = 0
        self.seen: dict[int, int] = {}
        self.policies: dict[int, Policy] = {}
        self.asks: dict[int, Ask] = {}  # what comes next of each topic
        self.landed: dict[int, Read] = {}  # reads that it was woken with
        self.pending = deque(self.places)  # may have more
        self.again: set[str] = set()  # have more, that can't be read yet
        self.behind = set(self.places)

    def end(self, error: HoldfastError) -> None:
        """Ask the connection to say this and close."""
        if self.error is None:
            self.error = error
            self.ended.emit()

    def rewind(self, seqs: Mapping[str, int]) -> None:
        """Go back to where the client says that it is; never ahead of where the server says."""
        for topic, seq in seqs.items():
            place = self.places.get(topic)
            if place is not None and seq < place.seq:
                self.places[topic] = WatchPlace(place.topic_id, seq, chosen=True)

    def read(self, topic_id: int, read: Read) -> tuple[int, int]:
        """It has this read, of a topic: its head, and how far was looked."""
        head, at = read.diff.extent.head_seq, read.diff.records.next_seq
        self.seen[topic_id] = head
        self.policies[topic_id] = read.policy
        self.asks[topic_id] = _ask(self.options, read.policy, at)
        return head, at

    def advance(self, told: WatchNews) -> None:
        """The client has been sent these news."""
        self.moved = True
        del self.places[told.topic]
        if told.after is not None:
            self.places[told.topic] = told.after


class Watches(Core):
    """The watches that are connected to this process."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._reads = SharedReads(engine.core(Diffs), engine.readers, engine.policies)
        self._open: dict[str, Watch] = {}
        self._saving = Loop("save how far watches came", self._save_all, SAVE_SECONDS, first=SAVE_SECONDS)
        self._stopping = False
        self.sent = {event: engine.metrics.counter(catalogue.WATCH_FRAMES, event) for event in EVENTS}
        engine.metrics.levels.append(lambda: [(catalogue.WATCHES, (), self.count())])

    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    async def extents(self, names: Sequence[str]) -> dict[str, tuple[int, Extent]]:
        """Of those topics that exist: their ids, and how far they go."""
        found: dict[str, tuple[int, Extent]] = {}
        policies, db = self._engine.policies, self._engine.pools.hot
        left = list(names)
        for _ in range(2):  # what this process knows of a topic can be of one that was deleted elsewhere
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
        """Keep a new watch: its wid. Raises Throttled, and what asyncpg raises."""
        return await store.make(self._rows, owner, options, places)

    async def open(self, wid: str, owner: str, rewind: Mapping[str, int]) -> Watch:
        """Take a watch over, from another connection if need be. Raises NotFound, Unauthorized, ShuttingDown."""
        before = self._open.get(wid)
        taken = await store.take(self._rows, wid, owner)
        if self._stopping:
            raise ShuttingDown("The service is stopping. Connect again.")
        old = self._open.get(wid, before)
        if old is None:
            watch = Watch(taken, taken.places, moved=False)
        else:  # of this process, perhaps leaving at this moment: it knows more than it has saved
            old.end(_other_holder())
            watch = Watch(taken, old.places, moved=True)
        watch.rewind(rewind)
        self._open[wid] = watch
        self._saving.start()
        return watch

    async def next(self, watch: Watch, seconds: float, takes: Callable[[WatchNews], bool]) -> WatchNews | None:
        """The watch's next news, None if there was nothing for so long. The caller advances the watch by them.

        `takes` is called with news that come during the wait, and says whether the connection took them at once.
        Raises Unavailable, after which it may be called again.
        """
        until, readers = time.monotonic() + seconds, self._engine.readers
        while watch.pending or (left := until - time.monotonic()) > 0:
            if watch.pending:
                try:
                    told = await self._look(watch, watch.pending[0])
                except UNREACHABLE as error:
                    raise as_unavailable(error) or Unavailable("Not at the moment. Try again.") from error
                watch.pending.popleft()
                if told is not None:
                    return told
                continue
            left = min(left, AGAIN_SECONDS) if watch.again else left
            parked = ParkedReader(watch.seen, watch.asks, partial(self._tell_at_once, watch, takes))
            news = await readers.park(parked, watch.policies, watch.mark, left)
            # At once, or from when the reads are: what changes from then on wakes the next wait.
            watch.mark = readers.mark()
            if news.reads:
                watch.mark = min([read.mark for read in news.reads.values()])
                watch.landed.update(news.reads)
            names = {watch.policies[topic_id].topic.name for topic_id in news.changed} | watch.again
            watch.again.clear()
            watch.pending.extend(names)
        return None

    async def leave(self, watch: Watch) -> None:
        """The connection has ended: save the watch's places for the next one."""
        try:
            if not isinstance(watch.error, WatchTaken):
                await store.leave(self._rows, watch.wid, watch.holder, watch.places)
        except UNREACHABLE as error:
            log.warning("can't save how far a watch came: %r; it goes on from the place before", error)
        finally:
            if self._open.get(watch.wid) is watch:
                del self._open[watch.wid]

    def stop(self) -> None:
        """Close every stream: the service is stopping."""
        self._stopping = True
        for watch in list(self._open.values()):
            watch.end(ShuttingDown("The service is stopping. Connect again."))

    async def drain(self) -> None:
        """Stop saving."""
        await self._saving.stop()

    async def save(self) -> None:
        """Save places that have moved, keep open watches alive, and end those that another process has taken over."""
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
        """Read on in a topic; None if there is no news."""
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
        """Send news to a watch of one topic without waking its task. With a hundred watches of one log, waking them is
        a third of what a write costs."""
        if len(watch.places) != 1:
            return False
        [(name, place)] = watch.places.items()
        head, at = read.diff.extent.head_seq, read.diff.records.next_seq
        if at != head or name in watch.behind:
            return False
        if at != place.seq:
            told = WatchNews(name, place, WatchPlace(place.topic_id, at), read)
            if not takes(told):
                return False
            watch.advance(told)
        watch.read(place.topic_id, read)
        return True

    async def _policy(self, name: str, topic_id: int) -> Policy:
        """The policy of the topic with this id. Raises TopicNotFound, also where it was made anew."""
        policies = self._engine.policies
        policy = await policies.get(name)
        if policy.topic.id != topic_id:
            policies.forget(name)  # which of the two is the older one only PostgreSQL knows
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
        # Not flushed: what a crash takes is a watch that its client makes anew.
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
    return WatchTaken("This watch is told on another connection now, or has expired.")
