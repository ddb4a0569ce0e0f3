"""Claims: callers that arrive together are one cohort and share one statement. docs/semantics.md, sections 4 and 16."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from app.db.pool import TOO_SLOW, UNREACHABLE
from app.engine import ordering
from app.engine.group import GroupCommit
from app.errors import TopicNotFound
from app.metrics import catalogue
from app.metrics.numbers import Verb
from app.queue import consumer
from app.queue.consumer import MAX_BYTES, Slots
from app.queue.model import Job, Lane
from app.topics.config import FREE, Control, Policy

if TYPE_CHECKING:
    from app.engine.cursors import Plan
    from app.engine.exits import Exits
    from app.engine.settlements import Settlements
    from app.engine.shared import Shared

MAX_CLAIM: Final = 1_000
MAX_SLOTS: Final = 10_000  # of a cohort that shares evenly
CLEARING_SECONDS: Final = 0.5  # how long one cohort takes out what stands in its way, before it makes room for others
MOST_IDLE: Final = 20  # passes in a row that met what stands in the way, and took out none of it: others did

log = logging.getLogger(__name__)


class _Next(Enum):
    """What a pass leaves to do for those who still lack jobs: DONE nothing, AGAIN there may be more, IDLE as well, but
    what stood in the way was gone before it could be taken out; LATER there are more, and this cohort has as many bytes
    as it may."""

    DONE = "done"
    AGAIN = "again"
    IDLE = "idle"
    LATER = "later"


# None: there may be jobs, behind spent ones that are being taken out, or behind the bytes of others. Ask again.
Share: TypeAlias = "list[Job] | None"


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who claims from which queue, how many at most (1 to MAX_CLAIM), and for how long (ms, clamped already)."""

    policy: Policy
    node: str
    max: int
    lease_ms: int
    whole: bool = False  # with what only the messages dialect shows


class Claims:
    """One cohort in flight for each topic."""

    def __init__(self, shared: Shared, exits: Exits, settlements: Settlements) -> None:
        self._shared = shared
        self._exits = exits
        self._settlements = settlements
        numbers = shared.metrics
        self._numbers = Verb(numbers, "claim")
        # By whether the pass was a sweep, and whether it took all seats.
        self._passes = [
            [numbers.counter(catalogue.PASSES, begin, full) for full in ("no", "yes")] for begin in ("cursor", "mark")
        ]
        self._seconds = [numbers.counter(catalogue.PASS_SECONDS, begin) for begin in ("cursor", "mark")]
        self._stopping = False
        self._returns: set[asyncio.Task[None]] = set()
        # Without a window the first come takes what it asked for, and a statement has as many slots as one caller
        # may ask for; with one, the whole cohort shares, however much it asks for.
        self._greedy = self._group(window=0)
        self._even = self._group(window=1)

    def _group(self, *, window: int) -> GroupCommit[Claimer, Share]:
        return GroupCommit(
            self._commit,
            max_waiting=self._shared.max_waiting,
            most=MAX_SLOTS if window else MAX_CLAIM,
            weight=lambda claimer: 1 if window else claimer.max,
            left=self._give_back,
            window=(lambda claimer: claimer.policy.config.claim_jitter_ms / 1000) if window else None,
        )

    async def claim(self, claimer: Claimer, wait_seconds: float = 0) -> list[Job]:
        """Lease up to `claimer.max` jobs, in claim order; wait up to `wait_seconds` for the first.

        Nothing is the answer only where nothing was claimable: jobs that are spent are taken out, however many stand
        in front of one that is not, and however long that takes.
        Cancelling it is leaving: what was claimed for this caller goes back at once and counts as no delivery.
        Raises Unavailable, and what the database refuses.
        """
        until = time.monotonic() + wait_seconds
        topic = claimer.policy.topic
        even = claimer.policy.config.claim_jitter_ms > 0
        group = self._even if even else self._greedy
        while True:
            mark = self._shared.waiters.mark(topic.id)
            jobs: list[Job] = []
            if wait_seconds == 0 or not self._shared.waiters.is_quiet(topic.id):
                share = await self._submit(group, claimer)
                if share is None and not self._stopping:
                    continue
                jobs = share or []
                # Where it was tokens that lacked, there may be jobs.
                if not jobs and not self._shared.throttle.sends_away(topic.id):
                    self._shared.waiters.found_nothing(topic.id, mark)
            if jobs:
                return jobs
            left = until - time.monotonic()
            if left <= 0 or self._stopping:
                return jobs
            woken = await self._shared.waiters.park(topic, claimer.max, mark, left, even=even)
            if not woken or self._stopping:
                return jobs

    async def _submit(self, group: GroupCommit[Claimer, Share], claimer: Claimer) -> Share:
        future = group.submit(claimer.policy.topic.id, claimer)
        try:
            return await future
        except asyncio.CancelledError:
            # Too late to be taken out of the statement, and too early to have seen its answer.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(claimer, future.result())
            raise

    def _give_back(self, claimer: Claimer, jobs: Share) -> None:
        if jobs:
            task = asyncio.create_task(self._settlements.give_back(claimer.policy, claimer.node, jobs))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    def groups(self) -> dict[str, list[GroupCommit[Any, Any]]]:
        """Its group commits, by verb."""
        return {"claim": [self._greedy, self._even]}

    def stop(self) -> None:
        """Send those who wait away empty-handed, and let nobody wait any more."""
        self._stopping = True
        self._shared.waiters.wake_all()

    async def drain(self) -> None:
        """Wait for claims under way, and for what callers who left give back."""
        await self._greedy.drain()
        await self._even.drain()
        if self._returns:
            await asyncio.wait(self._returns)

    async def _commit(self, cohort: Sequence[Claimer]) -> list[Share | BaseException]:
        policy = await self._latest(cohort[-1].policy)
        shares: list[list[Job]] = [[] for _ in cohort]
        lanes: Sequence[Lane] = await self._shared.lanes.of(self._shared.verbs(policy), policy.topic)
        if policy.control != FREE:
            lanes = _open(lanes, policy.control)
        if not lanes:
            self._numbers.shared([0] * len(cohort))
            return list(shares)
        lanes = ordering.arranged(lanes, policy.config)
        if policy.config.throughput_limit:
            through = await self._spend(policy, cohort, shares, lanes)
        else:
            through = await self._fill(policy, cohort, shares, lanes, MAX_SLOTS)
        return [share if share or through else None for share in shares]

    async def _latest(self, policy: Policy) -> Policy:
        """The topic's policy as it is known now: whoever waits came with an older one, and it may be paused by now."""
        try:
            latest = await self._shared.policies.get(policy.topic.name)
        except TopicNotFound:
            return policy
        return latest if latest.topic.id == policy.topic.id else policy

    async def _spend(
        self, policy: Policy, cohort: Sequence[Claimer], shares: Sequence[list[Job]], lanes: Sequence[Lane]
    ) -> bool:
        """Claim for the cohort as far as there are tokens; as `_fill`."""
        wanted = min(sum(claimer.max for claimer in cohort), MAX_SLOTS)
        tokens = await self._shared.throttle.take(policy, wanted)
        through = True
        try:
            if tokens:
                through = await self._fill(policy, cohort, shares, lanes, tokens)
            else:
                self._numbers.shared([0] * len(cohort))
        finally:
            claimed = sum(map(len, shares))
            await self._shared.throttle.put_back(policy, tokens - claimed)
        if claimed == tokens < wanted:
            short = sum(len(share) < claimer.max for claimer, share in zip(cohort, shares, strict=True))
            self._shared.metrics.topic(policy.topic.name).throttled.add(short)
        return through

    async def _fill(
        self,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
        most: int,
    ) -> bool:
        """Claim up to `most` jobs for the cohort, into `shares`: whether those without any need not ask again. Raises
        only where nobody got one."""
        began, idle, step = time.monotonic(), 0, _Next.AGAIN
        try:
            if policy.config.aging_ms:
                await self._overtake(policy, cohort, shares, lanes, most)
            while step in {_Next.AGAIN, _Next.IDLE} and idle < MOST_IDLE:
                step = await self._pass(policy, cohort, shares, lanes, most)
                idle = idle + 1 if step is _Next.IDLE else 0
                if time.monotonic() >= began + CLEARING_SECONDS:
                    break
        except Exception as error:
            if isinstance(error, UNREACHABLE) and not isinstance(error, TOO_SLOW):
                self._shared.cursors.reset()
            # Those who got something get it: an error would strand their leases until the deadline.
            if not any(shares):
                raise
            log.exception("a claim of topic %s was cut short", policy.topic.name)
        self._numbers.shared([len(share) for share in shares])
        if any(shares):
            soonest = min(claimer.lease_ms for claimer in cohort)
            self._shared.waiters.due_in(policy.topic.id, soonest / 1000)
        return step is _Next.DONE or idle >= MOST_IDLE

    async def _overtake(
        self,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
        most: int,
    ) -> None:
        """Claim jobs that have waited for so long that they come before those of better lanes."""
        cursor = self._shared.cursors.of(policy.topic)
        wanted = min(sum(claimer.max for claimer in cohort), most)
        first = await ordering.overtaking(self._shared.pools.hot, cursor, policy.config, lanes, wanted)
        if first is not None:
            reach, seats = first
            await self._pass(policy, cohort, shares, [reach.lane], seats, plan=cursor.plan_at(reach))

    async def _pass(
        self,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
        most: int,
        *,
        plan: Plan | None = None,
    ) -> _Next:
        """Claim what the cohort still lacks, up to `most` jobs in all, into `shares`. Another pass may find more where
        something stood in the way, or the due parts were not looked at. `plan`: how, if not as the cursor has it."""
        cursor = self._shared.cursors.of(policy.topic)
        slots = _seats(cohort, shares, most, even=policy.config.claim_jitter_ms > 0)
        if not slots.callers:
            return _Next.DONE
        room = MAX_BYTES - sum(len(job.payload) for share in shares for job in share)
        if room <= 0:
            return _Next.LATER
        bitten = len(slots.callers) > cursor.bite
        del slots.callers[cursor.bite :]
        plan, began = plan or cursor.plan(lanes), time.monotonic()
        back = policy.config.retry_order == "back"
        if back:
            plan = await ordering.by_time(self._shared.pools.hot, cursor, plan, len(slots.callers))
        whole = any(claimer.whole for claimer in cohort)
        claimed = await consumer.claim(
            self._shared.verbs(policy),
            policy.topic,
            policy.budget,
            plan.reaches,
            slots,
            whole=whole,
            by_time=back,
            most_bytes=room,
        )
        took = time.monotonic() - began
        cursor.learn(plan, claimed, len(slots.callers), took)
        self._passes[plan.sweeps][claimed.met == len(slots.callers)].add()
        self._seconds[plan.sweeps].add(took)
        if claimed.count:
            topic = self._shared.metrics.topic(policy.topic.name)
            topic.claimed.add(claimed.count)
            topic.crashes.add(claimed.crashes)
            topic.suspected.add(claimed.suspects)
            topic.wait_us.observe_all(claimed.waits_us)
            if any(job.group is not None for jobs in claimed.jobs for job in jobs):
                self._shared.groups.met(policy.topic.id)
        for share, jobs in zip(shares, claimed.jobs, strict=True):
            share.extend(jobs)
        if claimed.met:
            self._shared.moved(policy.topic, ready=-claimed.count, in_flight=claimed.count)
        if claimed.met == len(slots.callers):
            self._shared.waiters.wake(policy.topic.id, 1)  # there may be more, for those who were not woken yet
        moved = 0
        if claimed.exhausted:
            moved += await self._exits.exhaust(policy, lanes)  # a batch, however few seats there are
        if claimed.expired:
            moved += await self._exits.expire(policy)
        if claimed.met < len(slots.callers) and any(
            reach.due is None or reach.most_due is not None for reach in plan.reaches
        ):
            cursor.returned()
            return _Next.AGAIN
        if claimed.cut:
            cursor.bite = max(2 * claimed.count, 2)
            return _Next.LATER
        if bitten:
            cursor.bite = min(2 * cursor.bite, MAX_SLOTS)
        if moved or (bitten and claimed.met == len(slots.callers)):
            return _Next.AGAIN
        return _Next.IDLE if claimed.exhausted or claimed.expired else _Next.DONE


def _open(lanes: Sequence[Lane], control: Control) -> Sequence[Lane]:
    """Those that are not paused."""
    return [] if control.paused else [lane for lane in lanes if lane.tenant not in control.paused_tenants]


def _seats(cohort: Sequence[Claimer], shares: Sequence[list[Job]], most: int, *, even: bool) -> Slots:
    """One seat for each job that is still wanted, as far as `most` jobs in all allow: caller by caller, or, evenly, one
    each in turn."""
    lacking = [claimer.max - len(share) for claimer, share in zip(cohort, shares, strict=True)]
    callers: list[int] = []
    if even:
        open_callers = [i for i, n in enumerate(lacking) if n > 0]
        while open_callers and len(callers) < MAX_SLOTS:
            callers.extend(open_callers)
            for i in open_callers:
                lacking[i] -= 1
            open_callers = [i for i in open_callers if lacking[i] > 0]
    else:
        for i, n in enumerate(lacking):
            callers.extend([i] * n)
    del callers[max(most - sum(map(len, shares)), 0) :]
    return Slots(callers, [claimer.node for claimer in cohort], [claimer.lease_ms for claimer in cohort])
