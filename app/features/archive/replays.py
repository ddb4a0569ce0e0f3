"""Replays of topics: what was completed is enqueued again, batch by batch, and gone on with after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import asyncpg
from msgspec.structs import replace

from app.base.outages import LOST_RACE
from app.errors import Draining, NotReplayable, OutsideWindow, ShuttingDown, TopicNotFound
from app.features.archive import archive
from app.features.archive.archive import Most, Replay
from app.kernel.engine import Core

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.topics.policy import Policy

RETRIES: Final = 5  # of a batch that lost a deadlock, rolled back whole


async def _nobody(_begun: Replay) -> None: ...


class Replays(Core):
    """One caller's batches follow each other, and so do those of several callers of the same replay."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.most = Most()
        self._stopping = False

    async def replay(
        self, policy: Policy, from_time: datetime | None, on_begun: Callable[[Replay], Awaitable[None]] = _nobody
    ) -> Replay:
        """Enqueue again what was completed since `from_time`, or within the topic's whole window: how that ended.

        What completes after the beginning is left out, what this enqueues with it. Cancelled or failed in between,
        what was enqueued stays, and the same call goes on there within archive.JOIN_MS.
        `on_begun` is awaited ahead of the first batch, unless one under way was joined.
        Raises Draining, NotReplayable, OutsideWindow, ShuttingDown, TopicNotFound, Throttled where all topics together
        hold as many bytes as they may, and what the database raises.
        """
        config = policy.config
        if policy.control.draining:
            raise Draining(policy.topic.name)
        if not config.replayable:
            raise NotReplayable(policy.topic.name)
        db = self._engine.verbs(policy)
        begun = await archive.begin(db, policy.topic, from_time, config.replay_window_ms)
        if begun is None:
            raise OutsideWindow(policy.topic.name, config.replay_window_ms)
        run = begun
        if not run.joined:
            await on_begun(run)
        while not run.done:
            if self._stopping:
                raise ShuttingDown("The service is stopping. Ask again: the replay goes on where it is.")
            if (await self._engine.policies.queue(policy.topic.name)).control.draining:
                raise Draining(policy.topic.name)
            run = await self._next(policy, run)
        return run

    def stop(self) -> None:
        """End those under way after the batch that they are at."""
        self._stopping = True

    async def _next(self, policy: Policy, run: Replay) -> Replay:
        db = self._engine.verbs(policy)
        for attempt in range(RETRIES + 1):
            try:
                moved = await self._batch(policy, run)
                break
            except asyncpg.InternalServerError:  # what a missing sequence raises
                self._engine.policies.forget(policy.topic.name)
                raise TopicNotFound(policy.topic.name) from None
            except LOST_RACE:
                if attempt == RETRIES:
                    raise
        if moved is None:
            # Another caller of the same replay was first. Where that one is over and forgotten, so is this.
            return await archive.look(db, policy.topic, run) or replace(run, done=True)
        if moved.jobs:
            self._added(policy, moved.jobs)
            await self._engine.groups.let_next_through(policy)
        return moved.run

    async def _batch(self, policy: Policy, run: Replay) -> archive.Batch | None:
        """The next batch, as far as all topics together have room for it: what it weighs is known once it is there."""
        pool, room = self._engine.verbs(policy), self._engine.room
        if not room.most:
            return await archive.replay(pool, policy.topic, run, self.most, policy.config.ttl_ms)
        async with pool.acquire() as db, db.transaction():
            moved = await archive.replay(db, policy.topic, run, self.most, policy.config.ttl_ms)
            if moved is not None:
                await room.take(moved.payload_bytes)
            return moved

    def _added(self, policy: Policy, count: int) -> None:
        topic = policy.topic
        self._engine.metrics.topic(topic.name).enqueued.add(count)
        self._engine.lanes.forget(topic.id)
        self._engine.writes.note(topic.id)
        self._engine.note_move(topic, ready=count)
        self._engine.waiters.announce(topic.id, count)
