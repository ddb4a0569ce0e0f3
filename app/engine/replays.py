"""Replays of topics: what was completed is enqueued again, batch by batch, and gone on with after a crash."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from app.db.pool import LOST_RACE
from app.errors import NotReplayable, OutsideWindow, ShuttingDown, TopicNotFound
from app.queue import archive
from app.queue.archive import Most, Replay

if TYPE_CHECKING:
    from app.engine.shared import Shared
    from app.topics.config import Policy

RETRIES: Final = 5  # of a batch that lost a deadlock, rolled back whole


class Replays:
    """One caller's batches follow each other, and so do those of several callers of the same replay."""

    def __init__(self, shared: Shared, most: Most = Most()) -> None:  # noqa: B008  (frozen)
        self._shared = shared
        self._most = most
        self._stopping = False

    async def replay(self, policy: Policy, from_time: datetime | None) -> Replay:
        """Enqueue again what was completed since `from_time`, or within the topic's whole window: how that ended.

        What completes after the beginning is left out, what this enqueues with it. Cancelled or failed in between,
        what was enqueued stays, and the same call goes on there within archive.JOIN_MS.
        Raises NotReplayable, OutsideWindow, ShuttingDown, TopicNotFound, and what the database raises.
        """
        config = policy.config
        if not config.replayable:
            raise NotReplayable(policy.topic.name)
        db = self._shared.verbs(policy)
        begun = await archive.begin(db, policy.topic, from_time, config.replay_window_ms)
        if begun is None:
            raise OutsideWindow(policy.topic.name, config.replay_window_ms)
        run = begun
        while not run.done:
            if self._stopping:
                raise ShuttingDown("The service is stopping. Ask again: the replay goes on where it is.")
            run = await self._next(policy, run)
        return run

    def stop(self) -> None:
        """End those under way after the batch that they are at."""
        self._stopping = True

    async def _next(self, policy: Policy, run: Replay) -> Replay:
        db = self._shared.verbs(policy)
        for attempt in range(RETRIES + 1):
            try:
                moved = await archive.replay(db, policy.topic, run, self._most, policy.config.ttl_ms)
                break
            except asyncpg.InternalServerError:  # what a missing sequence raises
                self._shared.policies.forget(policy.topic.name)
                raise TopicNotFound(policy.topic.name) from None
            except LOST_RACE:
                if attempt == RETRIES:
                    raise
        if moved is None:
            # Another caller of the same replay was first. Where that one is over and forgotten, so is this.
            return await archive.look(db, policy.topic, run) or replace(run, done=True)
        further, count = moved
        if count:
            self._added(policy, count)
            await self._shared.groups.left(policy)
        return further

    def _added(self, policy: Policy, count: int) -> None:
        topic = policy.topic
        self._shared.metrics.topic(topic.name).enqueued.add(count)
        self._shared.lanes.forget(topic.id)
        self._shared.moved(topic, ready=count)
        self._shared.waiters.added(topic.id, count)
