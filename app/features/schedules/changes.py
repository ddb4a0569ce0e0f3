"""Change schedules: create, replace, pause, resume, run now, delete. fires.py fires them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from app.base import cron
from app.base.loops import Loop
from app.errors import AlreadyExists, NotFound, Throttled
from app.features.schedules import store
from app.features.schedules.fires import Fires
from app.features.schedules.store import FireOutcome, Schedule, ScheduleSpec
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.batching import retry_lost_race
from app.kernel.engine import Core
from app.kernel.enqueue.enqueues import Gone
from app.kernel.model import Connection, Seq, Topic
from app.kernel.topics.policy import FIFO

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.topics.policy import Policy

MOST: Final = 10_000
RETRY_SECONDS: Final = 2.0  # after a failed query

Covers = Callable[[str], bool]  # whether the caller may change schedules of this topic


def everything(_topic: str) -> bool:
    """A `covers` for callers that may change schedules of every topic."""
    return True


class Run(msgspec.Struct, frozen=True):
    """The job of a run by hand. `time` is in its metadata, as $fire_at."""

    topic: Topic
    seq: Seq
    time: datetime


class Schedules(Core):
    """Changes schedules, and records each change in the audit trail.

    For a caller that may not change a topic, its schedules don't exist. `loop` fires due schedules in every process.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._enqueues = engine.enqueues
        self.fires = Fires(engine, engine.enqueues)
        self.loop = Loop("fire schedules", self._fire, RETRY_SECONDS)

    async def put(
        self,
        name: str,
        wanted: ScheduleSpec,
        by: Actor = trail.SERVICE,
        covers: Covers = everything,
        check: Callable[[Schedule | None], None] | None = None,
    ) -> tuple[Schedule, bool]:
        """Create or replace a schedule. Returns the schedule, and whether it was created.

        Its times count from now on. If the cron expression and the time zone stay the same, due times are kept.
        `check` gets the schedule that is replaced, which is locked until the end; its errors are raised.

        Raises TopicNotFound, NotAQueue, AlreadyExists if the caller may not change it, Throttled above MOST.
        """
        await self._engine.policies.queue(wanted.topic)
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            before = await store.lock(db, name)
            if before is None:
                held = await store.count(db)
                before = await store.lock(db, name)  # it may have been created since
                if before is None and held >= MOST:
                    raise Throttled(f"The limit is {MOST} schedules.", {"limit": "schedules", "max": MOST})
            if before is not None and not covers(before.topic):
                raise AlreadyExists("A schedule with this name exists, and you may not change it.")
            if check is not None:
                check(before)
            schedule = await _write(db, name, before, wanted)
            if before is None:
                await trail.record(db, by, Action.CRON_CREATED, name, _detail(schedule))
            else:
                await _record(db, before, schedule, by)
        self.loop.wake()
        return schedule, before is None

    async def get(self, name: str, covers: Covers = everything) -> Schedule:
        """Read a schedule. Raises NotFound."""
        return _must_be(name, await store.read(self._engine.pools.rest, name), covers)

    async def page(self, prefix: str, after: str, limit: int, allowed: Sequence[str] = ()) -> list[Schedule]:
        return await store.page(self._engine.pools.rest, prefix, after, limit, allowed)

    async def pause(
        self, name: str, by: Actor = trail.SERVICE, covers: Covers = everything, *, paused: bool
    ) -> Schedule:
        """Pause a schedule, or resume it from now on. Returns the changed schedule. Times during a pause don't count as
        missed. Raises NotFound."""
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            before = _must_be(name, await store.lock(db, name), covers)
            if before.paused == paused:
                return before
            schedule = await _write(db, name, before, replace(_spec_of(before), paused=paused))
            await _record(db, before, schedule, by)
        self.loop.wake()
        return schedule

    async def delete(self, name: str, by: Actor = trail.SERVICE, covers: Covers = everything) -> None:
        """Delete a schedule. Jobs that it has enqueued stay. Raises NotFound."""
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            before = _must_be(name, await store.lock(db, name), covers)
            await store.delete(db, name)
            await trail.record(db, by, Action.CRON_DELETED, name, _detail(before))

    async def run(self, name: str, by: Actor = trail.SERVICE, covers: Covers = everything) -> Run:
        """Enqueue a schedule's job now, even if it is paused. Its times don't change.

        Raises NotFound, and the errors of an enqueue; nothing has changed then.
        """
        policies = self._engine.policies
        made = None
        while made is None:
            policy = await policies.queue((await self.get(name, covers)).topic)
            made = await policies.run_again_if(
                Gone, policy, lambda now: retry_lost_race(partial(self._run, now, name, by, covers)), policies.queue
            )
        return made

    async def _fire(self) -> float:
        return (await self.fires.run_once()).wait

    async def _run(self, policy: Policy, name: str, by: Actor, covers: Covers) -> Run | None:
        """Returns None if the schedule belongs to another topic now."""
        async with self._engine.verbs(policy).acquire() as db, db.transaction():
            one = _must_be(name, await store.lock(db, name), covers)
            if one.topic != policy.topic.name:
                return None
            time = await store.clock(db)
            batch = store.job(one, time, has_id=one.topic.endswith(FIFO))
            await self._enqueues.admit(policy, batch, len(one.payload))
            await self._engine.lanes.ensure(self._engine.pools.rest, policy.topic, batch)
            done = await self._enqueues.put(db, policy, [batch])
            [share] = done.shares
            if isinstance(share, BaseException):
                raise share
            made = Run(policy.topic, share[0], time)
            settled = FireOutcome(name, one.next_fire, one.next_fire)
            if not done.duplicates:
                settled = replace(settled, fired=1, last_fire=time, last_seq=made.seq)
            await store.settle(db, [settled])
            await trail.record(db, by, Action.CRON_RUN, name, {"topic": one.topic, "seq": made.seq})
        done.announce()
        return made


async def _write(db: Connection, name: str, before: Schedule | None, wanted: ScheduleSpec) -> Schedule:
    """Write a schedule with its next time. That is always later than the last job's, even if the clock went back."""
    paused = wanted.paused if wanted.paused is not None else before is not None and before.paused
    if paused:
        following = None
    elif before is not None and not before.paused and _times(before) == (wanted.cron, wanted.time_zone):
        following = before.next_fire
    else:
        now = await store.clock(db)
        after = now if before is None or before.last_fire is None else max(now, before.last_fire)
        following = cron.next_due(wanted.cron, after, cron.time_zone(wanted.time_zone))
    await store.write(db, name, wanted, paused=paused, next_fire=following)
    schedule = await store.read(db, name)
    assert schedule is not None, "it was written in this transaction"
    return schedule


def _must_be(name: str, found: Schedule | None, covers: Covers) -> Schedule:
    if found is None or not covers(found.topic):
        raise NotFound(f"Schedule {name!r} does not exist.", {"schedule": name})
    return found


def _times(one: Schedule) -> tuple[str, str]:
    return one.cron, one.time_zone


def _spec_of(one: Schedule) -> ScheduleSpec:
    return ScheduleSpec(one.topic, one.cron, one.time_zone, one.missed, one.payload, one.fields, one.paused)


def _detail(one: Schedule) -> dict[str, object]:
    """The schedule for the audit trail, without the job, which may be large."""
    return {
        "topic": one.topic,
        "cron": one.cron,
        "time_zone": one.time_zone,
        "missed": one.missed.value,
        "paused": one.paused,
    }


async def _record(db: Connection, before: Schedule, now: Schedule, by: Actor) -> None:
    changes = trail.changes(_detail(before), _detail(now))
    if (before.payload, before.fields) != (now.payload, now.fields):
        changes["record"] = "changed"
    if changes:
        await trail.record(db, by, Action.CRON_CHANGED, now.name, changes)
