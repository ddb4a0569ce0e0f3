"""Fires schedules that are due, each time of each once, whatever the number of processes that do. docs/adr/0024.

A transaction locks schedules that nobody else is at, puts their jobs in as every producer does, and moves them on to
their next times: all of it is there, or none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from app.base import cron
from app.base.metrics import catalogue
from app.base.outages import TOO_SLOW, UNREACHABLE, as_unavailable
from app.errors import HoldfastError, InvalidSchedule, NotAQueue, TopicNotFound
from app.features.schedules import store
from app.features.schedules.store import DueSchedule, FireOutcome, Missed, Schedule
from app.kernel.batching import tried_again
from app.kernel.enqueue.enqueues import NOTHING, Gone
from app.kernel.model import Batch, Seq, merge
from app.kernel.topics.policy import FIFO

if TYPE_CHECKING:
    from app.kernel.enqueue.enqueues import Enqueues, Put
    from app.kernel.state import EngineState
    from app.kernel.topics.policy import Policy

LISTED: Final = 200  # schedules of one look
MOST_JOBS: Final = 200  # of one transaction
MOST_BYTES: Final = 8 * 1024 * 1024  # of their payloads; one job may be as large as it is
MOST_MISSED: Final = 1_000  # times that `all` makes up for
GRACE: Final = timedelta(seconds=60)  # later than that, a time was missed
TRY_AGAIN: Final = timedelta(seconds=30)  # after a refusal
LONGEST_WAIT: Final = 30.0  # within so long, what another process has changed is known here
BUSY_WAIT: Final = 0.5  # while other processes are at all that is due, or something went wrong

log = logging.getLogger(__name__)


class FireRound(msgspec.Struct, frozen=True):
    """How many jobs a round made, and after how many seconds the next round is."""

    fired: int
    wait: float


class _Owed(msgspec.Struct):
    """A schedule of a transaction, and the times that it is due for.

    `jobs` of the transaction's batches belong to it, beginning with the `start`-th. `error`: why it can't be fired.
    `made`: the times for which a job was made.
    """

    schedule: Schedule
    times: list[datetime]
    start: int = 0
    jobs: int = 0
    error: HoldfastError | None = None
    made: list[datetime] = msgspec.field(default_factory=list)


class Fires:
    """Fires due schedules, for one process."""

    def __init__(self, state: EngineState, enqueues: Enqueues) -> None:
        self._state = state
        self._enqueues = enqueues
        numbers = state.metrics
        self._fired, self._refused = (
            numbers.counter(catalogue.SCHEDULE_FIRES, outcome) for outcome in ("fired", "refused")
        )
        self._late = numbers.histogram(catalogue.SCHEDULE_LATE)

    async def run_once(self, at: datetime | None = None) -> FireRound:
        """Fire what is due, up to LISTED schedules. `at`: what time it is, for tests; the database's clock says it
        otherwise. Raises asyncpg's errors of a database that is away."""
        listed = await store.due(self._state.pools.rest, at, LISTED)
        late = [one for one in listed if one.seconds <= 0]
        if not late:
            return FireRound(0, min(LONGEST_WAIT, listed[0].seconds) if listed else LONGEST_WAIT)
        fired = moved = 0
        for topic, names in _together(late):
            made, settled = await self._fire_or_refuse(topic, names, at)
            fired += made
            moved += settled
        return FireRound(fired, 0.0 if moved else BUSY_WAIT)

    async def _fire_or_refuse(self, topic: str, names: Sequence[str], at: datetime | None) -> tuple[int, int]:
        """How many jobs were made, and how many schedules were moved on."""
        try:
            return await tried_again(partial(self._fire_topic, topic, names, at))
        except TOO_SLOW as error:  # somebody has locked this topic's jobs: other topics do not wait for it
            return await self._fire(topic, None, as_unavailable(error), names, at)
        except UNREACHABLE:
            raise
        except Exception:
            if len(names) > 1:  # find out whose fault it is
                return await self._fire_each(topic, names, at)
            log.exception("schedule %s can't be fired", names[0])
            refusal = HoldfastError("Internal error. The service's log has the details.")
            return await self._fire(topic, None, refusal, names, at)

    async def _fire_each(self, topic: str, names: Sequence[str], at: datetime | None) -> tuple[int, int]:
        each = [await self._fire_or_refuse(topic, [name], at) for name in names]
        return sum(made for made, _ in each), sum(settled for _, settled in each)

    async def _fire_topic(self, topic: str, names: Sequence[str], at: datetime | None) -> tuple[int, int]:
        async def fire(policy: Policy) -> tuple[int, int]:
            if policy.bounds is not None and len(names) > 1:  # where it is full, each is tried by itself
                return await self._fire_each(topic, names, at)
            return await self._fire(topic, policy, None, names, at)

        policies = self._state.policies
        try:
            return await policies.again_if(Gone, await policies.queue(topic), fire, policies.queue)
        except (TopicNotFound, NotAQueue) as refusal:
            return await self._fire(topic, None, refusal, names, at)

    async def _fire(
        self, topic: str, policy: Policy | None, error: HoldfastError | None, names: Sequence[str], at: datetime | None
    ) -> tuple[int, int]:
        """Fire these schedules in one transaction. With an `error`, record it with them instead."""
        pool = self._state.pools.rest if policy is None else self._state.verbs(policy)
        async with pool.acquire() as db, db.transaction():
            taken, now = await store.take(db, topic, names, at)
            if now is None:
                return 0, 0
            owed, batches = await self._admit(policy, error, taken, now)
            done = NOTHING
            if batches and policy is not None:
                await self._state.lanes.ensure(self._state.pools.rest, policy.topic, merge(batches))
                done = await self._enqueues.put(db, policy, batches)
            outcomes = [_outcome_of(one, done, now) for one in owed]
            await store.settle(db, outcomes)
        done.announce()
        fired = sum(one.fired for one in outcomes)
        self._fired.add(fired)
        self._refused.add(sum(1 for one in outcomes if one.error is not None))
        for one in owed:
            for time in one.made:
                self._late.observe((now - time) / timedelta(milliseconds=1))
        return fired, len(outcomes)

    async def _admit(
        self, policy: Policy | None, error: HoldfastError | None, taken: Sequence[Schedule], now: datetime
    ) -> tuple[list[_Owed], list[Batch]]:
        """The schedules that fit into this transaction, and their jobs. The others stay due."""
        owed: list[_Owed] = []
        batches: list[Batch] = []
        room = MOST_BYTES
        for schedule in taken:
            one = _Owed(schedule, [], len(batches), error=error)
            owed.append(one)
            try:
                one.times = due_times(schedule, now)
            except ValueError as fault:  # a time zone that this machine does not have
                one.error = InvalidSchedule(f"The schedule makes no sense here: {fault}.")
            if policy is None or one.error is not None or not one.times:
                continue
            size = len(schedule.payload)
            most = min(MOST_JOBS - len(batches), room // max(size, 1))
            if most < 1 and batches:
                owed.pop()
                break
            has_id = schedule.topic.endswith(FIFO)
            jobs = [store.job(schedule, time, has_id=has_id) for time in one.times[: max(most, 1)]]
            try:
                await self._enqueues.admit(policy, jobs[0], size * len(jobs))
            except HoldfastError as refusal:
                one.error = refusal
                continue
            one.jobs = len(jobs)
            batches += jobs
            room -= size * len(jobs)
        return owed, batches


def due_times(schedule: Schedule, now: datetime) -> list[datetime]:
    """The times for which a schedule is due now, oldest first. Raises ValueError for an unknown time zone."""
    first = schedule.next_fire
    if first is None or first > now:
        return []
    match schedule.missed:
        case Missed.ALL:
            most = MOST_MISSED
        case Missed.ONCE | Missed.SKIP:
            most = 1
    times = cron.last_times(schedule.cron, first, now, most, cron.time_zone(schedule.time_zone))
    return [time for time in times if schedule.missed is not Missed.SKIP or time >= now - GRACE]


def _outcome_of(one: _Owed, done: Put, now: datetime) -> FireOutcome:
    """What to write into a schedule's row once its jobs are enqueued. A duplicate counts as done, but not as made."""
    schedule, times, error = one.schedule, one.times, one.error
    last = -1
    seq: Seq | None = None
    for place, time in enumerate(times[: one.jobs]):
        match done.shares[one.start + place]:
            case [found]:
                last = place
                if one.start + place not in done.duplicates:
                    seq = found
                    one.made.append(time)
            case HoldfastError() as refusal:
                error = refusal
            case share:
                raise AssertionError(f"a batch of one job has {share!r}")
    left = times[last + 1 :]
    if isinstance(error, InvalidSchedule):
        following = schedule.next_fire
    elif left:
        following = left[0]
    else:
        error = None
        following = cron.next_due(schedule.cron, now, cron.time_zone(schedule.time_zone))
    return FireOutcome(
        schedule.name,
        next_fire=following,
        due_at=following if error is None else now + TRY_AGAIN,
        fired=len(one.made),
        last_fire=one.made[-1] if one.made else None,
        last_seq=seq,
        error=None if error is None else (error.code, error.message),
    )


def _together(due: Sequence[DueSchedule]) -> list[tuple[str, list[str]]]:
    """Topics, each with the names of the schedules that one transaction fires."""
    parts: list[tuple[str, list[str]]] = []
    for topic, those in groupby(sorted(due, key=lambda one: one.topic), key=lambda one: one.topic):
        room = 0
        for one in those:
            if one.size > room:
                parts.append((topic, []))
                room = MOST_BYTES
            parts[-1][1].append(one.name)
            room -= one.size
    return parts
