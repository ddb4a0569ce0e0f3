"""The claim of one cohort. A statement leases jobs, and further ones follow as long as they may find jobs for callers
that still lack some.

Each pass also removes the spent jobs that it meets. If tenants share a topic, each pass asks some of them.
docs/semantics.md, sections 4 and 5; docs/adr/0001, 0012 and 0032.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from app.base.metrics import Verb, catalogue
from app.base.outages import TOO_SLOW, UNREACHABLE
from app.kernel.claim import consumer, limits, ordering
from app.kernel.claim.consumer import MAX_BYTES, ClaimResult, Slots
from app.kernel.claim.cursors import Plan
from app.kernel.claim.fairness import Fairness
from app.kernel.claim.marks import Marks
from app.kernel.claim.ordering import Overtaking
from app.kernel.model import Connection, Job, Lane
from app.kernel.settle.exits import Exits
from app.kernel.state import EngineState
from app.kernel.topics.policy import Policy

MAX_CLAIM: Final = 1_000  # jobs that one caller can ask for
MAX_SLOTS: Final = 10_000  # jobs of a cohort that shares evenly
CLEARING_SECONDS: Final = 0.5  # how long one cohort removes spent jobs before others get their turn
MOST_IDLE: Final = 20  # consecutive passes that met spent jobs and removed none, because others did

log = logging.getLogger(__name__)


class Claimer(msgspec.Struct, frozen=True):
    """A caller that claims up to `max` jobs (1 to MAX_CLAIM) from one queue, for `lease_ms` (already clamped)."""

    policy: Policy
    node: str
    max: int
    lease_ms: int
    whole: bool = False  # with the extra fields of the messages dialect
    tenants: frozenset[str] | None = None  # only jobs of these
    tags: frozenset[str] | None = None  # only jobs with at least one of these


class WalkOutcome(Enum):
    """What a pass or a whole walk leaves to do for callers that still lack jobs."""

    DONE = "done"  # nothing: there are no more jobs
    AGAIN = "again"  # there may be more jobs
    TENANTS = "tenants"  # other tenants may have jobs
    OUTRUN = "outrun"  # there may be more jobs: others removed the spent jobs first
    FULL = "full"  # there are more jobs, but this cohort has reached its limit on bytes


_ONWARD: Final = {WalkOutcome.AGAIN, WalkOutcome.TENANTS, WalkOutcome.OUTRUN}


class Walks:
    """What all walks of a process share, or with `tags` all walks for jobs with one of these tags. `marks` and
    `fairness` belong to these walks alone. Claims by tag ignore aging_ms and retry_order."""

    def __init__(
        self, state: EngineState, exits: Exits, marks: Marks, fairness: Fairness, tags: Sequence[str] | None = None
    ) -> None:
        self.state = state
        self.exits = exits
        self.marks = marks
        self.fairness = fairness
        self.tags = tags
        self.numbers = Verb(state.metrics, "claim")
        # By whether the pass was a sweep, and whether it filled all slots.
        self.passes = [
            [state.metrics.counter(catalogue.PASSES, begin, full) for full in ("no", "yes")]
            for begin in ("cursor", "mark")
        ]
        self.seconds = [state.metrics.counter(catalogue.PASS_SECONDS, begin) for begin in ("cursor", "mark")]


class Walk:
    """Claims up to `most` jobs from `lanes` for a cohort. Adds them to `shares`, one list per caller."""

    def __init__(
        self,
        walks: Walks,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
        *,
        most: int,
    ) -> None:
        self._walks = walks
        self._state = walks.state
        self._policy = policy
        self._topic = policy.topic
        self._cohort = cohort
        self._shares = shares
        self._lanes = lanes
        self._most = most
        self._among = cohort[0].tenants
        self._whole = any(claimer.whole for claimer in cohort)
        self._cursor = walks.marks.of(policy.topic)
        self._tenants = walks.fairness.of(policy.topic.id)
        self._began = time.monotonic()
        self._room = MAX_BYTES  # bytes that the next pass can lease
        self._lacks_slots = False  # whether the cohort lacks more jobs than the next pass has slots

    async def run(self) -> WalkOutcome:
        """Run passes as long as another may find jobs. DONE: callers without jobs need not claim again. Raises only if
        no caller got a job."""
        idle, outcome = 0, WalkOutcome.AGAIN
        try:
            if self._policy.config.aging_ms and self._walks.tags is None:
                await self._let_overtake()
            while outcome in _ONWARD and idle < MOST_IDLE:
                outcome = await self._pass()
                idle = idle + 1 if outcome is WalkOutcome.OUTRUN else 0
                # Never between tenants: each is asked once, and a cohort that is cut short would ask them all again.
                if outcome is not WalkOutcome.TENANTS and time.monotonic() >= self._began + CLEARING_SECONDS:
                    break
        except Exception as error:
            if isinstance(error, UNREACHABLE) and not isinstance(error, TOO_SLOW):
                self._walks.marks.reset()
            # Callers that got jobs get them now; after an error they would stay leased until their deadline.
            if not any(self._shares):
                raise
            log.exception("a claim of topic %s was cut short", self._topic.name)
        self._finish()
        return WalkOutcome.DONE if idle >= MOST_IDLE else outcome

    def _finish(self) -> None:
        """Put each share into claim order, and count the jobs."""
        config = self._policy.config
        if config.aging_ms:
            self._cursor.ages.earn(itertools.chain.from_iterable(self._shares))
        elif self._tenants.know(self._lanes):  # the jobs are grouped by tenant
            best = 1 if config.priority_order == "lowest_first" else -1
            for share in self._shares:
                share.sort(key=lambda job: best * job.priority)
        self._walks.numbers.count_statement([len(share) for share in self._shares])
        if any(self._shares):
            soonest = min(claimer.lease_ms for claimer in self._cohort)
            self._state.waiters.due_in(self._topic.id, soonest / 1000)

    async def _let_overtake(self) -> None:
        """Claim jobs that have waited long enough to come before jobs of better lanes of their tenants."""
        several = self._tenants.several() if self._by_tenant() else [self._lanes]
        overtaking = await ordering.look_at_ages(
            self._state.pools.hot,
            self._topic,
            self._policy.config,
            self._cursor.ages,
            several,
            lows_of=self._cursor.lows_of,
        )
        if overtaking:
            await self._pass(overtaking)

    def _by_tenant(self) -> bool:
        several = self._tenants.know(self._lanes)
        return several or self._among is not None or bool(self._policy.config.tenant_limits)

    async def _pass(self, overtaking: Mapping[str, Overtaking] | None = None) -> WalkOutcome:
        """Claim the jobs that the cohort still lacks. With `overtaking`, claim only from these lanes."""
        slots = seats(self._cohort, self._shares, self._most, even=self._policy.config.claim_jitter_ms > 0)
        if not slots.callers:
            return WalkOutcome.DONE
        self._room = MAX_BYTES - sum(len(job.payload) for share in self._shares for job in share)
        if self._room <= 0:
            return WalkOutcome.FULL
        self._lacks_slots = len(slots.callers) > self._cursor.lock_limit
        del slots.callers[self._cursor.lock_limit :]
        by_tenant = self._by_tenant()
        if overtaking:
            return await self._claim_overtaking(slots, overtaking, charged=by_tenant)
        if by_tenant:
            return await self._claim_by_tenant(slots)
        plan = self._cursor.plan(self._lanes)
        return await self._take(slots, *await self._run_statement(self._state.verbs(self._policy), plan, slots))

    async def _claim_by_tenant(self, slots: Slots) -> WalkOutcome:
        tenants, marks, wanted = self._tenants, self._walks.marks, len(slots.callers)
        self._cursor.lanes = len(self._lanes)
        weights = self._policy.config.tenant_weights
        claimed: ClaimResult | None = None
        while claimed is None:
            turn = tenants.turn(wanted, self._among, since=self._began, empty=not any(self._shares))
            if turn.looks and not turn.tenants:
                await marks.look(self._topic)
                continue
            if turn.large and marks.can_look_cheaply(self._topic):
                await marks.look_briefly(self._topic)
                continue
            if turn.looks:
                marks.begin_look(self._topic)
            if not turn.tenants:
                return WalkOutcome.DONE
            async with self._within_limits(turn.names) as (db, left):
                turn = tenants.share(turn, wanted, left, weights)
                if not turn.tenants:
                    continue  # they have reached their limits, and rest now or are counted again
                plan = self._cursor.plan(turn.lanes, turn.shares)
                plan, claimed = await self._run_statement(db, plan, slots)
        tenants.learn(turn, plan, claimed, weights, full=claimed.met == wanted)
        tenants.due({job.tenant for jobs in claimed.jobs for job in jobs}, min(slots.leases_ms) / 1000)
        outcome = await self._take(slots, plan, claimed)
        return WalkOutcome.TENANTS if outcome is WalkOutcome.DONE else outcome

    async def _claim_overtaking(
        self, slots: Slots, overtaking: Mapping[str, Overtaking], *, charged: bool
    ) -> WalkOutcome:
        """Claim jobs that overtake, of the tenants that come next. `charged`: their tenants are charged for them."""
        tenants, wanted = self._tenants, len(slots.callers)
        weights = self._policy.config.tenant_weights
        turn = tenants.turn(wanted, self._among)
        if not any(overtaking[name].seats(wanted) for name in turn.names if name in overtaking):
            return WalkOutcome.DONE
        async with self._within_limits(turn.names) as (db, left):
            turn = tenants.share(turn, wanted, left, weights)
            owed = zip(turn.names, turn.owed, strict=True)
            counts = {name: overtaking[name].seats(jobs) for name, jobs in owed if name in overtaking}
            first = [(overtaking[name].take(count), count) for name, count in counts.items() if count]
            if not first:
                return WalkOutcome.DONE
            del slots.callers[sum(count for _, count in first) :]
            took = Counter[str]()
            try:
                plan, claimed = await self._run_statement(db, self._cursor.plan_at(first), slots)
                took += Counter(job.tenant for jobs in claimed.jobs for job in jobs)
            finally:
                for reach, count in first:
                    overtaking[reach.lane.tenant].refund(count - took[reach.lane.tenant])
        if charged:
            tenants.charge(took, weights)
            tenants.due(took, min(slots.leases_ms) / 1000)
        return await self._take(slots, plan, claimed)

    async def _run_statement(self, db: Connection, plan: Plan, slots: Slots) -> tuple[Plan, ClaimResult]:
        """Run one statement and learn from its answer. Returns the plan as it was carried out."""
        policy, began = self._policy, time.monotonic()
        by_time = policy.config.retry_order == "back" and self._walks.tags is None
        if by_time:
            plan = replace(plan, reaches=await ordering.limit_due(db, policy.topic, plan.reaches, len(slots.callers)))
        claimed = await consumer.claim(
            db,
            policy.topic,
            policy.budget,
            plan.reaches,
            slots,
            shares=plan.shares,
            whole=self._whole,
            by_time=by_time,
            most_bytes=self._room,
            tags=self._walks.tags,
        )
        took = time.monotonic() - began
        self._cursor.learn(plan, claimed, len(slots.callers), took)
        self._walks.passes[plan.sweeps][claimed.met == len(slots.callers)].add()
        self._walks.seconds[plan.sweeps].add(took)
        return plan, claimed

    async def _take(self, slots: Slots, plan: Plan, claimed: ClaimResult) -> WalkOutcome:
        """Hand out the claimed jobs, and remove spent jobs. The outcome says whether a further pass may find jobs."""
        for share, jobs in zip(self._shares, claimed.jobs, strict=True):
            share.extend(jobs)
        policy, topic, wanted = self._policy, self._topic, len(slots.callers)
        if claimed.count:
            self._count(claimed)
        if claimed.met:
            self._state.note_move(topic, ready=-claimed.count, in_flight=claimed.count)
        if claimed.met == wanted:
            # There may be more, for callers without named tenants that were not woken yet.
            self._state.waiters.wake(topic.id, 1, ())
        gone = 0
        if claimed.exhausted:
            # A whole batch, whatever the number of slots, from all lanes that were asked.
            gone += await self._walks.exits.remove_exhausted(policy, [reach.lane for reach in plan.reaches])
        if claimed.expired:
            gone += await self._walks.exits.expire(policy)
        if claimed.met < wanted and any(reach.due is None or reach.most_due is not None for reach in plan.reaches):
            self._walks.marks.look_at_due(topic.id)
            return WalkOutcome.AGAIN
        if claimed.cut:
            self._cursor.lock_limit = max(2 * claimed.count, 2)
            return WalkOutcome.FULL
        if self._lacks_slots:
            self._cursor.lock_limit = min(2 * self._cursor.lock_limit, MAX_SLOTS)
        if gone or (self._lacks_slots and claimed.met == wanted):
            return WalkOutcome.AGAIN
        return WalkOutcome.OUTRUN if claimed.exhausted or claimed.expired or claimed.taken else WalkOutcome.DONE

    def _count(self, claimed: ClaimResult) -> None:
        numbers = self._state.metrics.topic(self._topic.name)
        numbers.claimed.add(claimed.count)
        numbers.crashes.add(claimed.crashes)
        numbers.suspected.add(claimed.suspects)
        numbers.wait_us.observe_all(claimed.waits_us)
        if any(job.group is not None for jobs in claimed.jobs for job in jobs):
            self._state.groups.note(self._topic.id)

    @asynccontextmanager
    async def _within_limits(self, tenants: Sequence[str]) -> AsyncIterator[tuple[Connection, Mapping[str, int]]]:
        """A connection for a claim, and how many jobs each tenant with a limit can get. If there are such tenants, it
        is in a transaction, and no other claim gives them jobs before its end."""
        pool, most = self._state.verbs(self._policy), self._policy.config.tenant_limits
        limited = {name: most[name] for name in tenants if name in most}
        if not limited:
            yield pool, {}
            return
        # Callers wait for this lock first, so that they don't hold a connection while they wait.
        async with self._tenants.limited, pool.acquire() as db, db.transaction():
            yield db, await limits.tenants_left(db, self._topic, limited)


def seats(cohort: Sequence[Claimer], shares: Sequence[list[Job]], most: int, *, even: bool) -> Slots:
    """Slots for the jobs that are still wanted, up to `most` jobs in all. Filled caller by caller, or with `even` one
    for each caller in turn."""
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
