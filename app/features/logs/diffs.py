"""Reading topics behind a cursor, logs and queues alike, with a wait for what comes next."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from app.base.metrics import catalogue
from app.errors import TopicNotFound
from app.kernel.counts import inspector
from app.kernel.engine import Core
from app.kernel.logs import log
from app.kernel.logs.log import Ask, Extent, Records
from app.kernel.logs.reads import Diff
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.kernel.engine import Engine

PROOF_SECONDS: Final = 1.0  # a read of a queue waits so long for writers that may still commit
PROOF_STEP_SECONDS: Final = 0.005


class Diffs(Core):
    """Reads topics. Keeps of queues how far it was proven that no job can turn up any more."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._sizes = engine.metrics.histogram(catalogue.CALL_JOBS, "diff")
        self._proven: dict[int, int] = {}
        self._proving: dict[int, asyncio.Task[None]] = {}
        engine.dropped.subscribe(self._dropped)

    async def read(self, policy: Policy, ask: Ask, seconds: float = 0.0) -> Diff:
        """What comes after the cursor; if there is nothing, wait up to so long for it. Raises TopicNotFound."""
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
        """What comes after the cursor at this moment. Raises TopicNotFound.

        Of a queue, waits up to so long for jobs that others may still commit; then without them.
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
        """Seqs of jobs are drawn before they commit. So: how far is the sequence? Then, who holds a lock on it? When
        those have ended, no job up to there can turn up any more, and a look sees every one."""
        topic, db = policy.topic, self._engine.pools.hot
        drawn = (await inspector.draws(db, [topic])).get(topic.id)
        if drawn is None:
            raise await self._gone(policy)
        head = drawn.drawn
        if ask.after > head:
            ask = replace(ask, after=0)
        if self._proven.get(topic.id, 0) > head:
            self._dropped(topic.id)  # a crash has lost what was not flushed: these seqs are drawn once more
        if head > ask.after and self._proven.get(topic.id, 0) < head:
            await self._proof_of(policy, head, proof_seconds)
        upto = min(self._proven.get(topic.id, 0), head)
        expired_to, records = await inspector.read(db, topic, ask, max(upto, ask.after))
        # After the read: what it did not find because it was lost is known by now.
        state = (await inspector.states(db, [topic], 1)).get(topic.name)
        if state is None:
            raise await self._gone(policy)
        ttl_lost_to = _missed(max(state.ttl_lost_to, expired_to), records)
        cap_lost_to = _missed(state.cap_lost_to, records)
        earliest = head + 1 if state.earliest_seq is None else state.earliest_seq
        return Diff(Extent(head, earliest, ttl_lost_to, cap_lost_to), records)

    async def _proof_of(self, policy: Policy, drawn: int, seconds: float) -> None:
        """One proof of a topic is under way at a time, however many read it."""
        until = time.monotonic() + seconds
        while self._proven.get(policy.topic.id, 0) < drawn and (left := until - time.monotonic()) > 0:
            proving = self._proving.get(policy.topic.id)
            if proving is None:
                proving = asyncio.create_task(self._prove(policy, drawn, left))
                self._proving[policy.topic.id] = proving
                proving.add_done_callback(lambda _: self._proving.pop(policy.topic.id, None))
            await asyncio.shield(proving)

    async def _prove(self, policy: Policy, drawn: int, seconds: float) -> None:
        """Wait until nobody can commit a job up to this seq, or give up: then what was proven before holds."""
        db, until = self._engine.pools.hot, time.monotonic() + seconds
        writers = await inspector.drawers(db, policy.topic)
        while writers and time.monotonic() < until:
            await asyncio.sleep(PROOF_STEP_SECONDS)
            writers &= await inspector.drawers(db, policy.topic)
        if not writers:
            self._proven[policy.topic.id] = max(drawn, self._proven.get(policy.topic.id, 0))

    def _dropped(self, topic_id: int) -> None:
        self._proven.pop(topic_id, None)

    async def _gone(self, policy: Policy) -> TopicNotFound:
        self._engine.policies.forget(policy.topic.name)
        self._dropped(policy.topic.id)
        return TopicNotFound(policy.topic.name)


def _missed(lost_to: int, records: Records) -> int:
    """The last seq that a reader of these jobs may have missed. Jobs are lost here and there among those that stay, and
    told page by page: what lies ahead is told when the reader gets there, and what it was given it has not missed."""
    seq = min(lost_to, records.next_seq)
    for given in reversed(records.seqs):
        if given < seq:
            break
        if given == seq:
            seq -= 1
    return seq
