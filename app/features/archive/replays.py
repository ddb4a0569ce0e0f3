"""Replays: enqueue a topic's completed jobs again, batch by batch. A replay can continue after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec
from msgspec.structs import replace

from app.base.db import sql
from app.errors import Draining, NotReplayable, OutsideWindow, ShuttingDown, TopicNotFound
from app.features.archive.archive import JOIN_MS, ArchivePlace
from app.kernel.batching import retry_lost_race
from app.kernel.engine import Core

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.model import Connection, Topic
    from app.kernel.topics.policy import Policy

_SQL: Final = sql.load_all(__package__)
_BEGIN = _SQL["begin_replay"]
_FIND = _SQL["find_replay"]
_REPLAY = _SQL["replay"]


class Replay(msgspec.Struct, frozen=True):
    """A replay and its progress.

    `asked_from`: the caller's time, None for the whole window. `from_time`, `until_time`: its bounds.
    `at`: the place that it has reached. `enqueued`, `skipped`: its jobs so far.
    `joined`: whether the caller continues a replay that had begun before.
    """

    asked_from: datetime | None
    from_time: datetime
    until_time: datetime
    at: ArchivePlace
    enqueued: int
    skipped: int
    done: bool = False
    joined: bool = False


class ReplayBatch(msgspec.Struct, frozen=True):
    """The replay after a batch, and the jobs and payload bytes of the batch."""

    run: Replay
    jobs: int
    payload_bytes: int


class BatchLimits(msgspec.Struct, frozen=True):
    """The limits of a replay's batch. A single payload may be larger."""

    jobs: int = 1_000
    payload_bytes: int = 8 * 1024 * 1024


async def begin(db: Connection, topic: Topic, asked_from: datetime | None, window_ms: int) -> Replay | None:
    """Begin a replay, or join one from the same time that has not ended.

    `window_ms` 0: no limit. Returns None if `asked_from` is before the window or in the future.
    """
    row = await db.fetchrow(_BEGIN, topic.name, topic.id, asked_from, window_ms, JOIN_MS)
    if row is None:
        return None
    place = ArchivePlace(row["after_time"], row["after_seq"])
    return Replay(
        asked_from, row["from_time"], row["until_time"], place, row["enqueued"], row["skipped"], joined=row["joined"]
    )


async def replay(db: Connection, topic: Topic, run: Replay, most: BatchLimits, ttl_ms: int) -> ReplayBatch | None:
    """Enqueue the next batch. An empty batch ends the replay. None if another process has taken this batch.

    Raises asyncpg's errors; InternalServerError if the topic was deleted meanwhile.
    """
    row = await db.fetchrow(
        _REPLAY,
        *(topic.name, topic.id, topic.sequence, run.asked_from, run.until_time, run.at.time, run.at.seq),
        *(most.jobs, most.payload_bytes, ttl_ms),
    )
    return None if row is None else ReplayBatch(_advance(run, row), row["count"], row["bytes"])


async def look(db: Connection, topic: Topic, run: Replay) -> Replay | None:
    """A replay as it is now, None if it has ended and another from the same time has begun."""
    row = await db.fetchrow(_FIND, topic.name, topic.id, run.asked_from, run.until_time)
    return None if row is None else _advance(run, row)


def _advance(run: Replay, row: asyncpg.Record) -> Replay:
    place = ArchivePlace(row["after_time"], row["after_seq"])
    return replace(run, at=place, enqueued=row["enqueued"], skipped=row["skipped"], done=row["done"])


async def _ignore(_begun: Replay) -> None: ...


class Replays(Core):
    """Runs replays batch by batch. Several callers of the same replay take turns."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.limits = BatchLimits()
        self._stopping = False

    async def replay(
        self, policy: Policy, from_time: datetime | None, on_begun: Callable[[Replay], Awaitable[None]] = _ignore
    ) -> Replay:
        """Enqueue again the jobs that were completed since `from_time`, or within the topic's whole window.

        Leaves out jobs that are completed after it began, including its own. After an interruption, the jobs that it
        has enqueued stay, and the same call within JOIN_MS continues it.
        `on_begun`: awaited before the first batch, unless the call joins a replay.
        Raises Draining, NotReplayable, OutsideWindow, ShuttingDown, TopicNotFound, Throttled if the storage limit of
        all topics is reached, and the database's errors.
        """
        config = policy.config
        if policy.control.draining:
            raise Draining(policy.topic.name)
        if not config.replayable:
            raise NotReplayable(policy.topic.name)
        run = await begin(self._engine.verbs(policy), policy.topic, from_time, config.replay_window_ms)
        if run is None:
            raise OutsideWindow(policy.topic.name, config.replay_window_ms)
        if not run.joined:
            await on_begun(run)
        while not run.done:
            if self._stopping:
                raise ShuttingDown("The service is stopping. Repeat the call to continue the replay.")
            if (await self._engine.policies.queue(policy.topic.name)).control.draining:
                raise Draining(policy.topic.name)
            run = await self._next(policy, run)
        return run

    def stop(self) -> None:
        """Interrupt all replays after their current batch."""
        self._stopping = True

    async def _next(self, policy: Policy, run: Replay) -> Replay:
        try:
            moved = await retry_lost_race(partial(self._enqueue_batch, policy, run))
        except asyncpg.InternalServerError:  # the topic's sequence is missing
            self._engine.policies.forget(policy.topic.name)
            raise TopicNotFound(policy.topic.name) from None
        if moved is None:
            # Another caller of the same replay took the batch. If that replay is gone, it has ended.
            return await look(self._engine.verbs(policy), policy.topic, run) or replace(run, done=True)
        if moved.jobs:
            self._note_added(policy, moved.jobs)
            await self._engine.groups.let_next_through(policy)
        return moved.run

    async def _enqueue_batch(self, policy: Policy, run: Replay) -> ReplayBatch | None:
        """Enqueue the next batch. Rolls it back if the storage limit of all topics is reached."""
        pool, room = self._engine.verbs(policy), self._engine.room
        if not room.most:
            return await replay(pool, policy.topic, run, self.limits, policy.config.ttl_ms)
        async with pool.acquire() as db, db.transaction():
            moved = await replay(db, policy.topic, run, self.limits, policy.config.ttl_ms)
            if moved is not None:
                await room.take(moved.payload_bytes)
            return moved

    def _note_added(self, policy: Policy, count: int) -> None:
        topic = policy.topic
        self._engine.metrics.topic(topic.name).enqueued.add(count)
        self._engine.lanes.forget(topic.id)
        self._engine.writes.note(topic.id)
        self._engine.note_move(topic, ready=count)
        self._engine.waiters.announce(topic.id, count)
