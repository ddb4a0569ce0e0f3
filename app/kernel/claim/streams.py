"""Work streams: jobs are pushed to a connection, up to its limit of jobs in flight. docs/semantics.md, section 16."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from asyncpg.pgproto.pgproto import UUID
from msgspec.structs import replace

from app.base.metrics import catalogue
from app.base.outages import UNREACHABLE
from app.errors import HoldfastError, NotAQueue, ShuttingDown, TopicNotFound
from app.kernel.claim import consumer
from app.kernel.claim.claims import Claims
from app.kernel.claim.walk import Claimer
from app.kernel.model import Job
from app.kernel.settle.settlements import Settlements
from app.kernel.state import EngineState

CHECK_SECONDS: Final = 1.0  # how soon a full stream learns that a lease ended in another process
RENEW_SECONDS: Final = 5.0  # how soon an idle stream learns of a change of its topic

log = logging.getLogger(__name__)


class Stream:
    """The deliveries of one connection. `leased` holds the jobs that were sent and not settled yet, by seq."""

    def __init__(self, claimer: Claimer) -> None:
        self.claimer = claimer
        self.leased: dict[int, Job] = {}
        self.room = asyncio.Event()
        self._ended: asyncio.Future[HoldfastError] = asyncio.get_running_loop().create_future()

    def end(self, error: HoldfastError) -> None:
        """Make the connection send this error and close."""
        if not self._ended.done():
            self._ended.set_result(error)

    @property
    def ending(self) -> asyncio.Future[HoldfastError]:
        """A future that gets the reason once the stream must close."""
        return self._ended


class Streams:
    def __init__(self, state: EngineState, claims: Claims, settlements: Settlements) -> None:
        self._state = state
        self._claims = claims
        self._settlements = settlements
        self._open: set[Stream] = set()
        self._holders: dict[tuple[int, int], Stream] = {}
        self._stopping = False
        settlements.settled.subscribe(self._let_go)
        self.sent = {
            event: state.metrics.counter(catalogue.STREAM_FRAMES, event) for event in ("job", "error", "heartbeat")
        }

    def open(self, claimer: Claimer) -> Stream:
        """Open a stream that keeps up to `claimer.max` jobs leased. Raises ShuttingDown."""
        if self._stopping:
            raise ShuttingDown("The service is stopping. Connect again.")
        stream = Stream(claimer)
        self._open.add(stream)
        return stream

    def count(self) -> int:
        return len(self._open)

    def stop(self) -> None:
        """Close all streams, because the service is stopping."""
        self._stopping = True
        for stream in self._open:
            stream.end(ShuttingDown("The service is stopping. Connect again."))

    def lost(self, topic: str) -> None:
        """Close a topic's streams, because it was deleted."""
        for stream in self._open:
            if stream.claimer.policy.topic.name == topic:
                stream.end(_gone(topic))

    async def next(self, stream: Stream) -> list[Job]:
        """The stream's next jobs, at least one. Waits for jobs, and until the stream has room.

        If it is cancelled, jobs that are being claimed go back. Ends the stream if its topic was deleted. Raises
        Unavailable; it may be called again after that.
        """
        opened = stream.claimer
        topic = opened.policy.topic
        jobs: list[Job] = []
        while not jobs:
            stream.room.clear()
            free = opened.max - len(stream.leased)
            if free <= 0:
                await self._room(stream)
                continue
            try:
                policy = await self._state.policies.queue(topic.name)
            except (TopicNotFound, NotAQueue):
                policy = None
            if policy is None or policy.topic.id != topic.id:
                stream.end(_gone(topic.name))
                await asyncio.Event().wait()  # until the connection reacts
                raise AssertionError("unreachable")
            jobs = await self._claims.claim(replace(opened, policy=policy, max=free), RENEW_SECONDS)
            for job in jobs:
                self._let_go(topic.id, [job.seq])  # an earlier holder has lost its lease
                # Drop the large fields: a worker may hold the job for hours.
                stream.leased[job.seq] = replace(job, payload=b"", metadata=None, more=None)
                self._holders[topic.id, job.seq] = stream
        return jobs

    async def close(self, stream: Stream) -> None:
        """The connection is closed: return its jobs that are not settled."""
        self._open.discard(stream)
        policy, node = stream.claimer.policy, stream.claimer.node
        jobs = list(stream.leased.values())
        stream.leased.clear()
        for job in jobs:
            self._holders.pop((policy.topic.id, job.seq), None)
        if jobs:
            # If the worker disconnected, the delivery counts. If the service is stopping, it does not.
            await self._settlements.give_back(policy, node, jobs, refund=self._stopping)

    async def _room(self, stream: Stream) -> None:
        """Wait until a delivery is settled. Checks now and then whether one was settled in another process."""
        try:
            await asyncio.wait_for(stream.room.wait(), CHECK_SECONDS)
        except TimeoutError:
            topic = stream.claimer.policy.topic
            jobs = list(stream.leased.values())
            try:
                held = await consumer.still_held(
                    self._state.pools.hot, topic, [(job.seq, UUID(job.lease)) for job in jobs]
                )
            except UNREACHABLE as error:
                log.warning("can't check the leases of a stream: %r", error)
                return
            self._let_go(topic.id, [job.seq for i, job in enumerate(jobs) if i not in held])

    def _let_go(self, topic_id: int, seqs: Sequence[int]) -> None:
        if not self._holders:
            return
        for seq in seqs:
            stream = self._holders.pop((topic_id, seq), None)
            if stream is not None:
                stream.leased.pop(seq, None)
                stream.room.set()


def _gone(topic: str) -> HoldfastError:
    error = NotAQueue(topic)
    error.message = f"Topic {topic!r} was deleted, or deleted and created again."
    return error
