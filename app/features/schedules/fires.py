"""Fire due schedules: each time of a schedule once, over all processes. docs/adr/0024.

One transaction locks due schedules, enqueues their jobs, and sets their next times.
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
from app.features.schedules.store import DueSchedule, FireOutcome, MissedRule, Schedule
from app.kernel.batching import retry_lost_race
from app.kernel.enqueue.enqueues import NOTHING, Gone
from app.kernel.model import Batch, Seq, merge
from app.kernel.topics.policy import FIFO

if TYPE_CHECKING:
    from app.kernel.enqueue.enqueues import Enqueues, Put
    from app.kernel.state import EngineState
    from app.kernel.topics.policy import Policy

LISTED: Final = 200  # schedules per round
MOST_JOBS: Final = 200  # jobs per transaction
MOST_BYTES: Final = 8 * 1024 * 1024  # payloads per transaction; a single job may be larger
MOST_MISSED: Final = 1_000  # missed times that `all` enqueues jobs for
GRACE: Final = timedelta(seconds=60)  # a time counts as missed after this
TRY_AGAIN: Final = timedelta(seconds=30)  # pause after a refusal
LONGEST_WAIT: Final = 30.0  # changes by other processes are noticed within this time
BUSY_WAIT: Final = 0.5  # pause while other processes fire all due schedules, or after an error

log = logging.getLogger(__name__)


class FireRound(msgspec.Struct, frozen=True):
    """The number of jobs that a round enqueued, and the seconds until the next round."""

    fired: int
    wait: float


class _Firing(msgspec.Struct):
    """A schedule in a transaction.

    times: the times it is due for. start, jobs: its part of the transaction's batches. error: why it can't be fired.
    made: the times with a new job.
    """

    schedule: Schedule
    times: list[datetime]
    start: int = 0
    jobs: int = 0
    error: HoldfastError | None = None
    made: list[datetime] = msgspec.field(default_factory=list)


class Fires:
    def __init__(self, state: EngineState, enqueues: Enqueues) -> None:
        self._state = state
        self._enqueues = enqueues
        numbers = state.metrics
        self._fired, self._refused = (
            numbers.counter(catalogue.SCHEDULE_FIRES, outcome) for outcome in ("fired", "refused")
        )
        self._late = numbers.histogram(catalogue.SCHEDULE_LATE)

    async def run_once(self, at: datetime | None = None) -> FireRound:
        """Fire up to LISTED due schedules. `at` replaces the database's clock in tests. Raises asyncpg's errors of an
        unreachable database."""
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
        """Returns how many jobs were enqueued, and how many schedules were moved on."""
        try:
            return await retry_lost_race(partial(self._fire_topic, topic, names, at))
        except TOO_SLOW as error:  # the topic's jobs are locked; other topics must not wait for it
            return await self._fire(topic, None, as_unavailable(error), names, at)
        except UNREACHABLE:
            raise
        except Exception:
            if len(names) > 1:  # find out which schedule fails
                return await self._fire_each(topic, names, at)
            log.exception("firing schedule %s failed", names[0])
            refusal = HoldfastError("Internal error. The service's log has the details.")
            return await self._fire(topic, None, refusal, names, at)

    async def _fire_each(self, topic: str, names: Sequence[str], at: datetime | None) -> tuple[int, int]:
        each = [await self._fire_or_refuse(topic, [name], at) for name in names]
        return sum(made for made, _ in each), sum(settled for _, settled in each)

    async def _fire_topic(self, topic: str, names: Sequence[str], at: datetime | None) -> tuple[int, int]:
        async def fire(policy: Policy) -> tuple[int, int]:
            if policy.bounds is not None and len(names) > 1:  # the queue may be full: try each schedule by itself
                return await self._fire_each(topic, names, at)
            return await self._fire(topic, policy, None, names, at)

        policies = self._state.policies
        try:
            return await policies.run_again_if(Gone, await policies.queue(topic), fire, policies.queue)
        except (TopicNotFound, NotAQueue) as refusal:
            return await self._fire(topic, None, refusal, names, at)

    async def _fire(
        self, topic: str, policy: Policy | None, error: HoldfastError | None, names: Sequence[str], at: datetime | None
    ) -> tuple[int, int]:
        """Fire schedules in one transaction, or record `error` with them."""
        pool = self._state.pools.rest if policy is None else self._state.verbs(policy)
        async with pool.acquire() as db, db.transaction():
            taken, now = await store.take(db, topic, names, at)
            if now is None:
                return 0, 0
            firings, batches = await self._admit(policy, error, taken, now)
            done = NOTHING
            if batches and policy is not None:
                await self._state.lanes.ensure(self._state.pools.rest, policy.topic, merge(batches))
                done = await self._enqueues.put(db, policy, batches)
            outcomes = [_outcome_of(one, done, now) for one in firings]
            await store.settle(db, outcomes)
        done.announce()
        fired = sum(one.fired for one in outcomes)
        self._fired.add(fired)
        self._refused.add(sum(1 for one in outcomes if one.error is not None))
        for one in firings:
            for time in one.made:
                self._late.observe((now - time) / timedelta(milliseconds=1))
        return fired, len(outcomes)

    async def _admit(
        self, policy: Policy | None, error: HoldfastError | None, taken: Sequence[Schedule], now: datetime
    ) -> tuple[list[_Firing], list[Batch]]:
        """Returns the schedules that fit into the transaction, and their jobs. Other schedules stay due."""
        firings: list[_Firing] = []
        batches: list[Batch] = []
        room = MOST_BYTES
        for schedule in taken:
            one = _Firing(schedule, [], len(batches), error=error)
            firings.append(one)
            try:
                one.times = due_times(schedule, now)
            except ValueError as fault:  # this machine lacks the time zone
                one.error = InvalidSchedule(f"The schedule can't be evaluated on this machine: {fault}.")
            if policy is None or one.error is not None or not one.times:
                continue
            size = len(schedule.payload)
            most = min(MOST_JOBS - len(batches), room // max(size, 1))
            if most < 1 and batches:
                firings.pop()
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
        return firings, batches


def due_times(schedule: Schedule, now: datetime) -> list[datetime]:
    """Return the times for which a schedule is due, oldest first. Raises ValueError for an unknown time zone."""
    first = schedule.next_fire
    if first is None or first > now:
        return []
    match schedule.missed:
        case MissedRule.ALL:
            most = MOST_MISSED
        case MissedRule.ONCE | MissedRule.SKIP:
            most = 1
    times = cron.last_times(schedule.cron, first, now, most, cron.time_zone(schedule.time_zone))
    return [time for time in times if schedule.missed is not MissedRule.SKIP or time >= now - GRACE]


def _outcome_of(one: _Firing, done: Put, now: datetime) -> FireOutcome:
    """The values to write to a schedule's row. The time of a duplicate is done, but not counted as a new job."""
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
    """Group due schedules by topic into transactions."""
    parts: list[tuple[str, list[str]]] = []
    for topic, schedules in groupby(sorted(due, key=lambda one: one.topic), key=lambda one: one.topic):
        room = 0
        for one in schedules:
            if one.size > room:
                parts.append((topic, []))
                room = MOST_BYTES
            parts[-1][1].append(one.name)
            room -= one.size
    return parts
