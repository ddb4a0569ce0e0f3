"""Read logs and queues by a cursor, optionally waiting for new records. Concurrent readers share reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from app.base.metrics import catalogue
from app.errors import TopicNotFound
from app.kernel.counts import inspector
from app.kernel.engine import Core
from app.kernel.logs import log
from app.kernel.logs.log import Ask, Diff, Extent, Records
from app.kernel.logs.readers import Read
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.logs.readers import ParkedReader, Readers
    from app.kernel.topics.cache import Policies

PROOF_SECONDS: Final = 1.0  # how long a read of a queue waits for open transactions with jobs
PROOF_STEP_SECONDS: Final = 0.005
READS_AT_ONCE: Final = 3  # concurrent shared reads in the hot pool; claims need the other connections
SHARED_PROOF_SECONDS: Final = 0.1


class Diffs(Core):
    """Reads topics. Remembers up to which seq of each queue no more jobs can appear."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._sizes = engine.metrics.histogram(catalogue.CALL_JOBS, "diff")
        self._proven: dict[int, int] = {}
        self._proving: dict[int, asyncio.Task[None]] = {}
        engine.dropped.subscribe(self._forget)

    async def read(self, policy: Policy, ask: Ask, seconds: float = 0.0) -> Diff:
        """Read records after the cursor. If there are none, wait up to `seconds` for one. Raises TopicNotFound."""
        readers, until, more = self._engine.readers, time.monotonic() + seconds, True
        while more:
            mark = readers.mark()
            diff = await self.once(policy, ask)
            left = until - time.monotonic()
            head, at = diff.extent.head_seq, diff.records.next_seq
            more = not diff.records.seqs and ask.after == at == head and left > 0
            if more:
                topic_id = policy.topic.id
                more = bool(await readers.wait({topic_id: head}, {topic_id: policy}, mark, left))
        return diff

    async def once(self, policy: Policy, ask: Ask, proof_seconds: float = PROOF_SECONDS) -> Diff:
        """Read records after the cursor once. Raises TopicNotFound.

        A read of a queue waits up to `proof_seconds` for open transactions with jobs, and then goes on without these.
        """
        match policy.config.type:
            case TopicType.LOG:
                found = await log.read(self._engine.pools.hot, policy.topic, ask, policy.config.ttl_ms)
                if found is None:
                    raise await self._gone(policy)
                diff = Diff(*found)
            case TopicType.QUEUE:
                diff = await self._jobs(policy, ask, proof_seconds)
        read = len(diff.records.seqs)
        self._sizes.observe(read)
        self._engine.metrics.topic(policy.topic.name).read.add(read)
        return diff

    async def _jobs(self, policy: Policy, ask: Ask, proof_seconds: float) -> Diff:
        """Read a queue. Jobs get their seqs before they commit. So it reads the sequence's value, and the transactions
        that hold a lock on it. After these have ended, no more jobs can appear up to that value."""
        topic, db = policy.topic, self._engine.pools.hot
        drawn = (await inspector.draws(db, [topic])).get(topic.id)
        if drawn is None:
            raise await self._gone(policy)
        head = drawn.drawn
        if ask.after > head:
            ask = replace(ask, after=0)
        if self._proven.get(topic.id, 0) > head:
            self._forget(topic.id)  # a crash has lost unflushed seqs, which are drawn again
        if head > ask.after and self._proven.get(topic.id, 0) < head:
            await self._proof_of(policy, head, proof_seconds)
        upto = min(self._proven.get(topic.id, 0), head)
        expired_to, records = await inspector.read(db, topic, ask, max(upto, ask.after))
        # After the read, so that it includes the losses of all jobs that the read did not find.
        state = (await inspector.states(db, [topic], 1)).get(topic.name)
        if state is None:
            raise await self._gone(policy)
        ttl_lost_to = _last_loss(max(state.ttl_lost_to, expired_to), records)
        cap_lost_to = _last_loss(state.cap_lost_to, records)
        earliest = head + 1 if state.earliest_seq is None else state.earliest_seq
        return Diff(Extent(head, earliest, ttl_lost_to, cap_lost_to), records)

    async def _proof_of(self, policy: Policy, drawn: int, seconds: float) -> None:
        """Wait for a proof. Concurrent readers of a topic share one."""
        until = time.monotonic() + seconds
        while self._proven.get(policy.topic.id, 0) < drawn and (left := until - time.monotonic()) > 0:
            proving = self._proving.get(policy.topic.id)
            if proving is None:
                proving = asyncio.create_task(self._prove(policy, drawn, left))
                self._proving[policy.topic.id] = proving
                proving.add_done_callback(lambda _: self._proving.pop(policy.topic.id, None))
            await asyncio.shield(proving)

    async def _prove(self, policy: Policy, drawn: int, seconds: float) -> None:
        """Wait until no transaction can commit a job up to this seq. After `seconds`, give up and change nothing."""
        db, until = self._engine.pools.hot, time.monotonic() + seconds
        writers = await inspector.drawers(db, policy.topic)
        while writers and time.monotonic() < until:
            await asyncio.sleep(PROOF_STEP_SECONDS)
            writers &= await inspector.drawers(db, policy.topic)
        if not writers:
            self._proven[policy.topic.id] = max(drawn, self._proven.get(policy.topic.id, 0))

    def _forget(self, topic_id: int) -> None:
        self._proven.pop(topic_id, None)

    async def _gone(self, policy: Policy) -> TopicNotFound:
        self._engine.policies.forget(policy.topic.name)
        self._forget(policy.topic.id)
        return TopicNotFound(policy.topic.name)


def _last_loss(lost_to: int, records: Records) -> int:
    """Return the last seq up to `lost_to` that a reader of these jobs may have missed.

    Lost jobs lie between existing ones, and are reported page by page. A job that the reader has got is not lost.
    """
    seq = min(lost_to, records.next_seq)
    for given in reversed(records.seqs):
        if given < seq:
            break
        if given == seq:
            seq -= 1
    return seq


class _Flight(msgspec.Struct):
    """A read in flight. `mark` is the readers' mark when its statement was sent, None before."""

    task: asyncio.Task[Read] | None = None
    mark: int | None = None


class SharedReads:
    """Shares reads between readers that are woken by one append. One read is in flight per topic, cursor and options.
    Results are not cached."""

    def __init__(self, diffs: Diffs, readers: Readers, policies: Policies) -> None:
        self._diffs = diffs
        self._readers = readers
        self._policies = policies
        self._flights: dict[tuple[int, Ask], _Flight] = {}
        self._gate = asyncio.Semaphore(READS_AT_ONCE)
        # The readers that get a read when it is done.
        self._parked: dict[tuple[int, Ask], set[ParkedReader]] = {}
        self._handing: set[asyncio.Task[None]] = set()
        readers.wanted.subscribe(self._hand_out)

    async def read(self, policy: Policy, ask: Ask) -> Read:
        """Read records after the cursor, as of this call or later. `ask.without` must be a tuple.

        Raises TopicNotFound, and asyncpg's errors.
        """
        topic_id = policy.topic.id
        key = (topic_id, ask)
        flight = self._flights.get(key)
        # A read that began before the topic changed may lack the change that woke this caller.
        if flight is None or (flight.mark is not None and self._readers.has_news(topic_id, flight.mark)):
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.create_task(self._fly(flight, policy, ask))
            flight.task.add_done_callback(lambda _: self._land(key, flight))
        assert flight.task is not None
        return await asyncio.shield(flight.task)

    def _hand_out(self, policy: Policy, wanted: Mapping[Ask, Sequence[ParkedReader]]) -> None:
        """Read a changed topic for its parked readers, and wake each of them once with the result.

        If such a read is in flight, the readers get its result. It has a mark, so a reader that misses a later change
        finds out when it parks again.
        """
        for ask, parked in wanted.items():
            key = (policy.topic.id, ask)
            if key in self._parked:
                self._parked[key].update(parked)
                continue
            self._parked[key] = set(parked)
            task = asyncio.create_task(self._hand(policy, ask))
            self._handing.add(task)
            task.add_done_callback(self._handing.discard)

    async def _hand(self, policy: Policy, ask: Ask) -> None:
        read = None
        try:
            now = await self._policies.get(policy.topic.name)
            if now.topic.id == policy.topic.id and now.version == policy.version:
                read = await self.read(policy, ask)
        except Exception:  # noqa: S110  a reader that is woken without a read reads by itself, and gets the error
            pass
        finally:
            topic_id = policy.topic.id
            newest = read is not None and not self._readers.has_news(topic_id, read.mark)
            for parked in self._parked.pop((topic_id, ask)):
                parked.hand(topic_id, read, newest=newest)

    async def _fly(self, flight: _Flight, policy: Policy, ask: Ask) -> Read:
        async with self._gate:
            flight.mark = self._readers.mark()
            return Read(await self._diffs.once(policy, ask, SHARED_PROOF_SECONDS), policy, flight.mark)

    def _land(self, key: tuple[int, Ask], flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        assert flight.task is not None
        if not flight.task.cancelled():
            flight.task.exception()  # marks it as retrieved, if all callers have left
