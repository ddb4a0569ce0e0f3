"""One cohort's statements: a claim runs as often as another pass may find more for those who lack jobs.

Where jobs that are spent stand in the way they are taken out, where tenants share a topic each pass asks some of them.
docs/semantics.md, sections 4 and 5; docs/adr/0001, 0012 and 0032.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from app.base.metrics import Verb, catalogue
from app.base.outages import TOO_SLOW, UNREACHABLE
from app.kernel.claim import consumer, limits, ordering
from app.kernel.claim.consumer import MAX_BYTES, Claimed, Slots
from app.kernel.model import Connection, Job, Lane
from app.kernel.topics.policy import Policy

if TYPE_CHECKING:
    from app.kernel.claim.cursors import Plan
    from app.kernel.claim.fairness import Fairness, Turn
    from app.kernel.claim.marks import Marks
    from app.kernel.claim.ordering import Overtaking
    from app.kernel.settle.exits import Exits
    from app.kernel.shared import Shared

MAX_CLAIM: Final = 1_000  # jobs that one caller may ask for
MAX_SLOTS: Final = 10_000  # of a cohort that shares evenly
CLEARING_SECONDS: Final = 0.5  # how long one cohort takes out what stands in its way, before it makes room for others
MOST_IDLE: Final = 20  # passes in a row that met what stands in the way, and took out none of it: others did

log = logging.getLogger(__name__)


class Claimer(msgspec.Struct, frozen=True):
    """Who claims from which queue, how many at most (1 to MAX_CLAIM), and for how long (ms, clamped already); of which
    tenants, if not of all."""

    policy: Policy
    node: str
    max: int
    lease_ms: int
    whole: bool = False  # with what only the messages dialect shows
    tenants: frozenset[str] | None = None
    tags: frozenset[str] | None = None  # only jobs with one of these


class _Next(Enum):
    """What a pass leaves to do for those who still lack jobs: DONE nothing, AGAIN there may be more, OTHERS other
    tenants may have some, IDLE there may be more, but what stood in the way was gone before it could be taken out;
    LATER there are more, and this cohort has as many bytes as it may."""

    DONE = "done"
    AGAIN = "again"
    OTHERS = "others"
    IDLE = "idle"
    LATER = "later"


class Passes:
    """Fills cohorts, each as far as there are jobs for it."""

    def __init__(
        self, shared: Shared, exits: Exits, marks: Marks, fairness: Fairness, tags: Sequence[str] | None = None
    ) -> None:
        """`tags`: all claims are for jobs with one of these, and `marks` and `fairness` are theirs alone. Neither
        aging_ms nor retry_order count among them."""
        self._shared = shared
        self._exits = exits
        self._marks = marks
        self._fairness = fairness
        self._tags = tags
        numbers = shared.metrics
        self.numbers = Verb(numbers, "claim")
        # By whether the pass was a sweep, and whether it took all seats.
        self._counts = [
            [numbers.counter(catalogue.PASSES, begin, full) for full in ("no", "yes")] for begin in ("cursor", "mark")
        ]
        self._seconds = [numbers.counter(catalogue.PASS_SECONDS, begin) for begin in ("cursor", "mark")]

    async def fill(
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
            if policy.config.aging_ms and self._tags is None:
                await self._overtake(policy, cohort, shares, lanes, most)
            while step in {_Next.AGAIN, _Next.OTHERS, _Next.IDLE} and idle < MOST_IDLE:
                step = await self._pass(policy, cohort, shares, lanes, most, since=began)
                idle = idle + 1 if step is _Next.IDLE else 0
                # Not between tenants: each that has nothing is asked once, and a cohort that is cut short asks anew.
                if step is not _Next.OTHERS and time.monotonic() >= began + CLEARING_SECONDS:
                    break
        except Exception as error:
            if isinstance(error, UNREACHABLE) and not isinstance(error, TOO_SLOW):
                self._marks.reset()
            # Those who got something get it: an error would strand their leases until the deadline.
            if not any(shares):
                raise
            log.exception("a claim of topic %s was cut short", policy.topic.name)
        if policy.config.aging_ms:
            self._marks.of(policy.topic).ages.earn(itertools.chain.from_iterable(shares))
        elif self._fairness.of(policy.topic.id).know(lanes):  # the jobs came tenant by tenant
            best = 1 if policy.config.priority_order == "lowest_first" else -1
            for share in shares:
                share.sort(key=lambda job: best * job.priority)
        self.numbers.shared([len(share) for share in shares])
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
        """Claim jobs that have waited for so long that they come before those of better lanes of their tenants."""
        cursor = self._marks.of(policy.topic)
        in_turn = self._in_turns(policy, cohort[0].tenants, lanes)
        several = self._fairness.of(policy.topic.id).several() if in_turn else [lanes]
        overtaking = await ordering.look_at_ages(
            self._shared.pools.hot, policy.topic, policy.config, cursor.ages, several, lows_of=cursor.lows_of
        )
        if overtaking:
            await self._pass(policy, cohort, shares, lanes, most, overtaking=overtaking)

    def _in_turns(self, policy: Policy, among: frozenset[str] | None, lanes: Sequence[Lane]) -> bool:
        """Whether tenants take turns there; these are the topic's lanes."""
        several = self._fairness.of(policy.topic.id).know(lanes)
        return several or among is not None or bool(policy.config.tenant_limits)

    async def _pass(
        self,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
        most: int,
        *,
        overtaking: Mapping[str, Overtaking] | None = None,
        since: float = math.inf,
    ) -> _Next:
        """Claim what the cohort still lacks, up to `most` jobs in all, into `shares`; `overtaking`: only jobs that
        overtake, of these. `since`: when the cohort's claim began."""
        slots = seats(cohort, shares, most, even=policy.config.claim_jitter_ms > 0)
        if not slots.callers:
            return _Next.DONE
        room = MAX_BYTES - sum(len(job.payload) for share in shares for job in share)
        if room <= 0:
            return _Next.LATER
        cursor = self._marks.of(policy.topic)
        bitten = len(slots.callers) > cursor.bite
        del slots.callers[cursor.bite :]
        among = cohort[0].tenants
        whole = any(claimer.whole for claimer in cohort)
        in_turn = self._in_turns(policy, among, lanes)
        found: tuple[Plan, Claimed] | None
        if overtaking:
            found = await self._first(policy, slots, room, among, overtaking, whole=whole, charged=in_turn)
        elif in_turn:
            asks = partial(self._fairness.of(policy.topic.id).turn, among=among, since=since, empty=not any(shares))
            found = await self._in_turn(policy, slots, room, asks, lanes, whole=whole)
        else:
            found = await self._claim(self._shared.verbs(policy), policy, cursor.plan(lanes), slots, room, whole=whole)
        if found is None:
            return _Next.DONE
        plan, claimed = found
        for share, jobs in zip(shares, claimed.jobs, strict=True):
            share.extend(jobs)
        step = await self._clear(policy, plan, claimed, len(slots.callers), bitten=bitten)
        # Where tenants take turns, others may have something.
        return _Next.OTHERS if step is _Next.DONE and in_turn else step

    async def _in_turn(
        self,
        policy: Policy,
        slots: Slots,
        room: int,
        whom: Callable[[int], Turn],
        lanes: Sequence[Lane],
        *,
        whole: bool,
    ) -> tuple[Plan, Claimed] | None:
        """Claim from those tenants whose turn it is: `whom` to ask for so many jobs. None: there is nobody to ask."""
        tenants, wanted = self._fairness.of(policy.topic.id), len(slots.callers)
        tenants.know(lanes)
        self._marks.of(policy.topic).lanes = len(lanes)
        weights = policy.config.tenant_weights
        claimed: Claimed | None = None
        while claimed is None:
            turn = whom(wanted)
            if turn.looks and not turn.tenants:
                await self._marks.look(policy.topic)
                continue
            if turn.large and self._marks.can_look_cheaply(policy.topic):
                await self._marks.look_briefly(policy.topic)
                continue
            if turn.looks:
                self._marks.begin_look(policy.topic)
            if not turn.tenants:
                return None
            async with self._limited(policy, turn.names) as (db, left):
                turn = tenants.share(turn, wanted, left, weights)
                if not turn.tenants:
                    continue  # they are at their limits, and rest now, or are counted again
                plan = self._marks.of(policy.topic).plan(turn.lanes, turn.shares)
                plan, claimed = await self._claim(db, policy, plan, slots, room, whole=whole)
        tenants.learn(turn, plan, claimed, weights, full=claimed.met == wanted)
        tenants.due({job.tenant for jobs in claimed.jobs for job in jobs}, min(slots.leases_ms) / 1000)
        return plan, claimed

    async def _first(
        self,
        policy: Policy,
        slots: Slots,
        room: int,
        among: frozenset[str] | None,
        overtaking: Mapping[str, Overtaking],
        *,
        whole: bool,
        charged: bool,
    ) -> tuple[Plan, Claimed] | None:
        """Claim jobs that overtake, of those tenants whose turn it is. None: there are none, for now."""
        tenants, wanted = self._fairness.of(policy.topic.id), len(slots.callers)
        weights = policy.config.tenant_weights
        turn = tenants.turn(wanted, among)
        if not any(overtaking[name].seats(wanted) for name in turn.names if name in overtaking):
            return None
        async with self._limited(policy, turn.names) as (db, left):
            turn = tenants.share(turn, wanted, left, weights)
            due = zip(turn.names, turn.owed, strict=True)
            counts = {name: overtaking[name].seats(owed) for name, owed in due if name in overtaking}
            first = [(overtaking[name].take(count), count) for name, count in counts.items() if count]
            if not first:
                return None
            del slots.callers[sum(count for _, count in first) :]
            took = Counter[str]()
            try:
                plan = self._marks.of(policy.topic).plan_at(first)
                plan, claimed = await self._claim(db, policy, plan, slots, room, whole=whole)
                took += Counter(job.tenant for jobs in claimed.jobs for job in jobs)
            finally:
                for reach, count in first:
                    overtaking[reach.lane.tenant].refund(count - took[reach.lane.tenant])
        if charged:
            tenants.charge(took, weights)
            tenants.due(took, min(slots.leases_ms) / 1000)
        return plan, claimed

    async def _claim(
        self, db: Connection, policy: Policy, plan: Plan, slots: Slots, room: int, *, whole: bool
    ) -> tuple[Plan, Claimed]:
        """One statement; and how it reached into the lanes."""
        cursor, began = self._marks.of(policy.topic), time.monotonic()
        by_time = policy.config.retry_order == "back" and self._tags is None
        if by_time:
            plan = replace(plan, reaches=await ordering.limit_due(db, policy.topic, plan.reaches, len(slots.callers)))
        claimed = await consumer.claim(
            db,
            policy.topic,
            policy.budget,
            plan.reaches,
            slots,
            shares=plan.shares,
            whole=whole,
            by_time=by_time,
            most_bytes=room,
            tags=self._tags,
        )
        took = time.monotonic() - began
        cursor.learn(plan, claimed, len(slots.callers), took)
        self._counts[plan.sweeps][claimed.met == len(slots.callers)].add()
        self._seconds[plan.sweeps].add(took)
        return plan, claimed

    async def _clear(self, policy: Policy, plan: Plan, claimed: Claimed, wanted: int, *, bitten: bool) -> _Next:
        """Count what was claimed, and take out what stood in the way; whether that, or what was not looked at, is a
        reason for another pass. `bitten`: the cohort lacked more than the statement had seats for."""
        topic = policy.topic
        if claimed.count:
            self._count(policy, claimed)
        if claimed.met:
            self._shared.moved(topic, ready=-claimed.count, in_flight=claimed.count)
        if claimed.met == wanted:
            # There may be more, for those who were not woken yet: not for who waits for some tenants.
            self._shared.waiters.wake(topic.id, 1, ())
        moved = 0
        if claimed.exhausted:
            # A batch, however few seats there are, and of all lanes that were asked.
            moved += await self._exits.exhaust(policy, [reach.lane for reach in plan.reaches])
        if claimed.expired:
            moved += await self._exits.expire(policy)
        if claimed.met < wanted and any(reach.due is None or reach.most_due is not None for reach in plan.reaches):
            self._marks.look_at_due(topic.id)
            return _Next.AGAIN
        cursor = self._marks.of(topic)
        if claimed.cut:
            cursor.bite = max(2 * claimed.count, 2)
            return _Next.LATER
        if bitten:
            cursor.bite = min(2 * cursor.bite, MAX_SLOTS)
        if moved or (bitten and claimed.met == wanted):
            return _Next.AGAIN
        return _Next.IDLE if claimed.exhausted or claimed.expired or claimed.taken else _Next.DONE

    def _count(self, policy: Policy, claimed: Claimed) -> None:
        numbers = self._shared.metrics.topic(policy.topic.name)
        numbers.claimed.add(claimed.count)
        numbers.crashes.add(claimed.crashes)
        numbers.suspected.add(claimed.suspects)
        numbers.wait_us.observe_all(claimed.waits_us)
        if any(job.group is not None for jobs in claimed.jobs for job in jobs):
            self._shared.groups.met(policy.topic.id)

    @asynccontextmanager
    async def _limited(
        self, policy: Policy, tenants: Sequence[str]
    ) -> AsyncIterator[tuple[Connection, Mapping[str, int]]]:
        """A connection for a claim, and how many jobs tenants with a limit may be given. Where there are such, it is a
        transaction, and nobody else gives them any before its end."""
        pool, most = self._shared.verbs(policy), policy.config.tenant_limits
        limited = {name: most[name] for name in tenants if name in most}
        if not limited:
            yield pool, {}
            return
        # Those that wait for it in here don't each take a connection to wait with.
        async with self._fairness.of(policy.topic.id).limited, pool.acquire() as db, db.transaction():
            yield db, await limits.tenants_left(db, policy.topic, limited)


def seats(cohort: Sequence[Claimer], shares: Sequence[list[Job]], most: int, *, even: bool) -> Slots:
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
