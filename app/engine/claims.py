"""Claims: callers that arrive together are one cohort and share one statement. docs/semantics.md, sections 4 and 16."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from app.db.pool import TOO_SLOW, UNREACHABLE
from app.engine.fairness import Turn
from app.engine.group import GroupCommit
from app.metrics import catalogue
from app.metrics.numbers import Verb
from app.queue import consumer
from app.queue.consumer import Claimed, Slots
from app.queue.model import Connection, Job, Lane
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.cursors import Plan
    from app.engine.exits import Exits
    from app.engine.settlements import Settlements
    from app.engine.shared import Shared

MAX_CLAIM: Final = 1_000
MAX_SLOTS: Final = 10_000  # of a cohort that shares evenly
MAX_PASSES: Final = 20  # of one cohort over jobs that have to be taken out first

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who claims from which queue, how many at most (1 to MAX_CLAIM), and for how long (ms, clamped already); of which
    tenants, if not of all."""

    policy: Policy
    node: str
    max: int
    lease_ms: int
    whole: bool = False  # with what only the messages dialect shows
    tenants: frozenset[str] | None = None


class Claims:
    """One cohort in flight for each topic, and for each set of tenants that is named."""

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

    def _group(self, *, window: int) -> GroupCommit[Claimer, list[Job]]:
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

        Cancelling it is leaving: what was claimed for this caller goes back at once and counts as no delivery.
        Raises Unavailable, and what the database refuses.
        """
        until = time.monotonic() + wait_seconds
        topic = claimer.policy.topic
        even = claimer.policy.config.claim_jitter_ms > 0
        group = self._even if even else self._greedy
        while True:
            mark = self._shared.waiters.mark(topic.id, claimer.tenants)
            jobs: list[Job] = []
            if wait_seconds == 0 or not self._shared.waiters.is_quiet(topic.id):
                jobs = await self._submit(group, claimer)
                # Where it was tokens that lacked, there may be jobs.
                # Nor do some tenants' jobs tell of all.
                if not jobs and claimer.tenants is None and not self._shared.throttle.sends_away(topic.id):
                    self._shared.waiters.found_nothing(topic.id, mark)
            if jobs:
                return jobs
            left = until - time.monotonic()
            if left <= 0 or self._stopping:
                return jobs
            woken = await self._shared.waiters.park(topic, claimer.max, mark, left, even=even, tenants=claimer.tenants)
            if not woken or self._stopping:
                return jobs

    async def _submit(self, group: GroupCommit[Claimer, list[Job]], claimer: Claimer) -> list[Job]:
        future = group.submit((claimer.policy.topic.id, claimer.tenants), claimer)
        try:
            return await future
        except asyncio.CancelledError:
            # Too late to be taken out of the statement, and too early to have seen its answer.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(claimer, future.result())
            raise

    def _give_back(self, claimer: Claimer, jobs: list[Job]) -> None:
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

    async def _commit(self, cohort: Sequence[Claimer]) -> list[list[Job] | BaseException]:
        policy = cohort[-1].policy
        shares: list[list[Job]] = [[] for _ in cohort]
        lanes = await self._shared.lanes.of(self._shared.verbs(policy), policy.topic)
        if not lanes:
            self._numbers.shared([0] * len(cohort))
            return list(shares)
        if policy.config.throughput_limit:
            await self._spend(policy, cohort, shares, lanes)
        else:
            await self._fill(policy, cohort, shares, lanes, MAX_SLOTS)
        return list(shares)

    async def _spend(
        self, policy: Policy, cohort: Sequence[Claimer], shares: Sequence[list[Job]], lanes: Sequence[Lane]
    ) -> None:
        """Claim for the cohort as far as there are tokens."""
        wanted = min(sum(claimer.max for claimer in cohort), MAX_SLOTS)
        tokens = await self._shared.throttle.take(policy, wanted)
        try:
            if tokens:
                await self._fill(policy, cohort, shares, lanes, tokens)
            else:
                self._numbers.shared([0] * len(cohort))
        finally:
            claimed = sum(map(len, shares))
            await self._shared.throttle.put_back(policy, tokens - claimed)
        if claimed == tokens < wanted:
            short = sum(len(share) < claimer.max for claimer, share in zip(cohort, shares, strict=True))
            self._shared.metrics.topic(policy.topic.name).throttled.add(short)

    async def _fill(
        self,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
        most: int,
    ) -> None:
        """Claim up to `most` jobs for the cohort, into `shares`. Raises only where there are none."""
        try:
            for _ in range(MAX_PASSES):
                if not await self._pass(policy, cohort, shares, lanes, most):
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

    async def _pass(
        self,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
        most: int,
    ) -> bool:
        """Claim what the cohort still lacks, up to `most` jobs in all, into `shares`; whether another pass may find
        more: something stood in the way and was taken out, the due parts were not looked at, or other tenants."""
        slots = _seats(cohort, shares, most, even=policy.config.claim_jitter_ms > 0)
        if not slots.callers:
            return False
        tenants, among = self._shared.fairness.of(policy.topic.id), cohort[0].tenants
        whole = any(claimer.whole for claimer in cohort)
        if not tenants.know(lanes) and among is None and not policy.config.tenant_limits:
            plan = self._shared.cursors.of(policy.topic).plan(lanes)
            claimed = await self._claim(self._shared.verbs(policy), policy, plan, slots, whole=whole)
            again = False
        else:
            turn = tenants.turn(len(slots.callers), among)
            if not turn.tenants:
                return False
            async with self._limited(policy, turn) as (db, left):
                turn = tenants.share(turn, len(slots.callers), left, policy.config.tenant_weights)
                if not turn.tenants:
                    return True
                plan = self._shared.cursors.of(policy.topic).plan(turn.lanes, turn.shares)
                claimed = await self._claim(db, policy, plan, slots, whole=whole)
            tenants.learn(turn, plan, claimed, policy.config.tenant_weights, full=claimed.met == len(slots.callers))
            again = True
        for share, jobs in zip(shares, claimed.jobs, strict=True):
            share.extend(jobs)
        return await self._clear(policy, lanes, plan, claimed, len(slots.callers)) or again

    async def _claim(self, db: Connection, policy: Policy, plan: Plan, slots: Slots, *, whole: bool) -> Claimed:
        cursor, began = self._shared.cursors.of(policy.topic), time.monotonic()
        claimed = await consumer.claim(
            db, policy.topic, policy.budget, plan.reaches, slots, shares=plan.shares, whole=whole
        )
        took = time.monotonic() - began
        cursor.learn(plan, claimed, len(slots.callers), took)
        self._passes[plan.sweeps][claimed.met == len(slots.callers)].add()
        self._seconds[plan.sweeps].add(took)
        return claimed

    async def _clear(self, policy: Policy, lanes: Sequence[Lane], plan: Plan, claimed: Claimed, wanted: int) -> bool:
        """Count what was claimed, and take out what stood in the way; whether that, or what was not looked at, is a
        reason for another pass."""
        if claimed.count:
            topic = self._shared.metrics.topic(policy.topic.name)
            topic.claimed.add(claimed.count)
            topic.wait_us.observe_all(claimed.waits_us)
        if claimed.met:
            self._shared.moved(policy.topic, ready=-claimed.count, in_flight=claimed.count)
        if claimed.met == wanted:
            # There may be more, for those who were not woken yet: not for who waits for some tenants.
            self._shared.waiters.wake(policy.topic.id, 1, ())
        moved = 0
        if claimed.exhausted:
            moved += await self._exits.exhaust(policy, lanes)  # a batch, however few seats there are
        if claimed.expired:
            moved += await self._exits.expire(policy)
        if claimed.met < wanted and any(reach.due is None for reach in plan.reaches):
            self._shared.cursors.returned(policy.topic.id)
            return True
        return moved > 0

    @asynccontextmanager
    async def _limited(self, policy: Policy, turn: Turn) -> AsyncIterator[tuple[Connection, Mapping[str, int]]]:
        """A connection for a claim, and how many jobs tenants with a limit may be given. Where there are such, it is a
        transaction, and nobody else gives them any before its end."""
        pool, limits = self._shared.verbs(policy), policy.config.tenant_limits
        limited = [one.name for one in turn.tenants if one.name in limits]
        if not limited:
            yield pool, {}
            return
        async with pool.acquire() as db, db.transaction():
            yield db, await consumer.room_of(db, policy.topic, {name: limits[name] for name in limited})


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
