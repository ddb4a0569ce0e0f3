"""Fair shares: from which tenants a claim without named tenants takes jobs, and how many. docs/semantics.md, section 5.

Tenants share by virtual time, as in weighted fair queueing. Each job advances its tenant by the mean time of the
tenant's jobs, divided by its weight. The next job comes from the tenant that is furthest behind. A tenant that was idle
starts at the time of the others: it earns nothing by being idle, and owes nothing for jobs that the others left unused.

There may be thousands of tenants, so a claim asks only the busy ones, which had jobs when they were last asked, the
furthest behind first. The others rest. If few tenants rest, claims ask them too. If many rest, one read now and then
finds which of them have jobs (a look, see marks.py). A claim of many jobs starts a look first if that is cheap.
docs/adr/0032.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from app.kernel.claim.consumer import ClaimResult
from app.kernel.claim.cursors import Plan
from app.kernel.model import Batch, Lane, Share

MOST: Final = 256  # tenants that one statement asks
FEW: Final = 32  # tenants asked at least, even for fewer jobs: some may have no jobs left
GUESSES: Final = 64  # most resting tenants among them, if there are busy ones
# How soon a resting tenant is asked again if nothing is heard of it. A claim that has got no jobs so far does not wait
# for that if it can ask all tenants, as on a topic without tenants.
REST_SECONDS: Final = 0.4
LARGE: Final = 100  # jobs: from here on, a claim looks which resting tenants have jobs before it shares out
LEARNING: Final = 0.1  # weight of a new measurement in the mean
LEAST_MS: Final = 1.0  # the least time that a job counts


class _Tenant:
    __slots__ = ("asked", "due", "heard", "lanes", "name", "pace", "time")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: list[Lane] = []
        self.time = 0.0  # virtual
        self.pace: float | None = None  # mean time of its jobs in ms; None: not measured yet
        self.asked = 0.0  # when it was asked and had no jobs; 0: ask it
        self.heard = 0.0  # when it was last reported to have jobs
        self.due = math.inf  # when the next job that this process knows of becomes due


class Turn(msgspec.Struct):
    """The tenants that one statement asks, with the number of jobs for each."""

    at: float
    open: bool  # whether all tenants take part, rather than named ones
    tenants: list[_Tenant]
    most: list[int] = msgspec.field(default_factory=list)  # jobs that each can give
    owed: list[int] = msgspec.field(default_factory=list)  # jobs that each is entitled to, part of `most`
    looks: bool = False  # whether to look now which resting tenants have jobs, as there are too many to ask
    large: bool = False  # whether so many jobs are shared out that a look should come first

    @property
    def names(self) -> list[str]:
        return [tenant.name for tenant in self.tenants]

    @property
    def lanes(self) -> list[Lane]:
        """The tenants' lanes, grouped by tenant, in claim order within each."""
        return [lane for tenant in self.tenants for lane in tenant.lanes]

    @property
    def shares(self) -> list[Share]:
        """How many jobs the lanes of each tenant can give."""
        return [Share(len(tenant.lanes), most) for tenant, most in zip(self.tenants, self.most, strict=True)]


class Tenants:
    """The tenants of one topic."""

    def __init__(self) -> None:
        self.limited = asyncio.Lock()  # held by a claim of tenants that have limits
        self._all: dict[str, _Tenant] = {}
        self._busy: dict[str, _Tenant] = {}  # had jobs when they were last asked, or are new
        self._resting: dict[str, _Tenant] = {}  # had no jobs; the one asked longest ago comes first
        self._lanes: Sequence[Lane] = ()
        self._now = 0.0  # virtual
        self._pace = LEAST_MS
        self._heard = 0.0
        self._looked = 0.0  # when the last look at all tenants began
        self._dues: list[tuple[float, str]] = []
        self._full: set[str] = set()  # tenants that rest because they reached their limits
        self._freed = 0.0  # when a tenant with a limit last had a job less in flight

    def know(self, lanes: Sequence[Lane]) -> bool:
        """Learn the topic's lanes, given in claim order. Returns whether there is more than one tenant."""
        if lanes is not self._lanes:
            self._lanes = lanes
            for tenant in self._all.values():
                tenant.lanes = []
            new: list[_Tenant] = []
            for lane in lanes:
                known = self._all.get(lane.tenant)
                if known is None:
                    known = self._all[lane.tenant] = _Tenant(lane.tenant)
                    new.append(known)
                known.lanes.append(lane)
            if len(new) <= MOST:
                for tenant in new:
                    self._wake(tenant)
            else:
                self._resting = {tenant.name: tenant for tenant in new} | self._resting
                self._heard = time.monotonic()
        return len(self._all) > 1

    def note_claimable(self, names: Collection[str] | None) -> None:
        """Jobs of these tenants have become claimable; None: of unknown tenants."""
        now = time.monotonic()
        if names is None:
            self._heard = now
            return
        for name in names:
            tenant = self._all.get(name)
            if tenant is not None:
                tenant.heard = now
                self._wake(tenant)

    def measure(self, names: Iterable[str], ages_ms: Iterable[float]) -> None:
        """Learn how long jobs of these tenants took from claim to ack."""
        for name, age in zip(names, ages_ms, strict=True):
            took = max(age, LEAST_MS)
            self._pace += LEARNING * (took - self._pace)
            tenant = self._all.get(name)
            if tenant is not None:
                tenant.pace = took if tenant.pace is None else tenant.pace + LEARNING * (took - tenant.pace)

    def due(self, names: Iterable[str], seconds: float) -> None:
        """A job of each of these tenants becomes due in so many seconds."""
        at = time.monotonic() + seconds
        for name in names:
            tenant = self._all.get(name)
            if tenant is not None and at < tenant.due:
                tenant.due = at
                heapq.heappush(self._dues, (at, name))

    def note_freed(self) -> set[str]:
        """A tenant with a limit has a job less in flight. Returns the tenants that had reached their limits."""
        self._freed = time.monotonic()
        return set(self._full)

    def turn(
        self, wanted: int, among: Collection[str] | None = None, *, since: float = math.inf, empty: bool = True
    ) -> Turn:
        """The tenants to ask next for `wanted` jobs, out of all tenants or of `among`. No tenants: there are no jobs.

        since: when the call began, by the monotonic clock. A tenant that was asked since then and had no jobs is not
            asked again, so the call ends.
        empty: whether the call has got no jobs yet.
        """
        at = time.monotonic()
        self._wake_due(at)
        busy, resting = list(self._busy.values()), iter(self._resting.values())
        few = among is not None or len(self._resting) <= MOST
        if among is not None:
            named = [self._all[name] for name in dict.fromkeys(among) if name in self._all]
            busy = [tenant for tenant in named if tenant.name in self._busy]
            resting = iter(sorted((one for one in named if one.name in self._resting), key=lambda one: one.asked))
        busy = heapq.nsmallest(min(max(wanted, FEW), MOST), busy, key=lambda tenant: tenant.time)
        large = wanted >= LARGE and among is None and bool(busy and self._resting) and self._looked < since
        rested = max(at - REST_SECONDS, self._heard)
        if not few:
            # While there are busy tenants, jobs of unknown tenants do not make looks more frequent.
            looks = self._looked <= (at - REST_SECONDS if busy else rested) and self._looked < since
            return Turn(at, open=True, tenants=busy, looks=looks, large=large)
        before = at if empty and not busy else rested
        rest = itertools.takewhile(lambda tenant: tenant.asked <= before and tenant.asked < since, resting)
        guesses = (tenant for tenant in rest if tenant.lanes)
        asked = [*itertools.islice(guesses, GUESSES if busy else MOST), *busy]
        return Turn(at, among is None, asked, large=large)

    def learn_look(self, at: float, working: Iterable[tuple[Lane, float]]) -> list[Lane]:
        """Learn the answer of a look that began `at`: these lanes have jobs, or will have in so many seconds; no others
        do. Returns the lanes whose tenants rested until now, without paused tenants and without tenants that reached
        their limits a moment ago."""
        self._looked, woken = at, list[Lane]()
        for lane, seconds in working:
            tenant = self._all.get(lane.tenant)
            if tenant is None or not tenant.lanes:
                continue
            if seconds > 0:
                self.due([tenant.name], seconds)
            elif tenant.name in self._resting and (tenant.name not in self._full or tenant.asked <= at - REST_SECONDS):
                woken.append(lane)
        for lane in woken:
            self._wake(self._all[lane.tenant])
        return woken

    def several(self) -> Iterator[Sequence[Lane]]:
        """The lanes of each busy tenant that has more than one lane."""
        return (tenant.lanes for tenant in self._busy.values() if len(tenant.lanes) > 1)

    def share(self, turn: Turn, wanted: int, left: Mapping[str, int], weights: Mapping[str, int]) -> Turn:
        """Share out `wanted` jobs among the turn's tenants. `left` is how many jobs a tenant with a limit can get.
        Paused tenants and tenants with no jobs left to get begin to rest."""
        may: list[_Tenant] = []
        for tenant in turn.tenants:
            if not tenant.lanes:
                self._rest(tenant, turn.at)
            elif left.get(tenant.name, 1) > 0:
                may.append(tenant)
            elif self._freed < turn.at:  # otherwise the count may be older than the job that ended
                self._rest(tenant, turn.at)
                self._full.add(tenant.name)
        for tenant in may:
            if tenant.name in self._resting:
                tenant.time = max(tenant.time, self._now)
        most = [0] * len(may)
        queue = [(tenant.time, i) for i, tenant in enumerate(may) if tenant.name in self._busy]
        heapq.heapify(queue)
        spare = wanted
        while queue and spare:
            when, i = queue[0]
            most[i] += 1
            spare -= 1
            if most[i] >= left.get(may[i].name, wanted):
                heapq.heappop(queue)
            else:
                heapq.heapreplace(queue, (when + self._cost(may[i], weights), i))
        owed = list(most)
        # A resting tenant takes nothing from the others unless it has jobs; each of them gets its chance.
        for i, tenant in enumerate(may):
            if tenant.name in self._resting:
                owed[i] = min(max(wanted // len(may), 1), left.get(tenant.name, wanted))
            most[i] = max(owed[i], 1)
        return Turn(turn.at, turn.open, may, most, owed)

    def charge(self, given: Mapping[str, int], weights: Mapping[str, int]) -> None:
        for name, jobs in given.items():
            if tenant := self._all.get(name):
                tenant.time += jobs * self._cost(tenant, weights)

    def learn(self, turn: Turn, plan: Plan, claimed: ClaimResult, weights: Mapping[str, int], *, full: bool) -> None:
        """Charge the tenants for the jobs they were given. Tenants that had no more begin to rest.

        plan: the plan that was made of the turn.
        full: whether the statement met as many jobs as it had slots for, and stopped there.
        """
        last = max(claimed.seen, default=-1)
        self.charge(Counter(job.tenant for jobs in claimed.jobs for job in jobs), weights)
        end = 0
        for tenant, share in zip(turn.tenants, plan.shares, strict=True):
            begin, end = end, end + share.lanes
            if full and begin > last:
                break  # the statement did not reach this tenant
            seen = [claimed.seen[i] for i in range(begin, end) if i in claimed.seen]
            lost = any(one.ready_lost is not None or one.due_lost is not None for one in seen)
            unseen = any(plan.reaches[i].due is None for i in range(begin, end))
            if sum(one.met for one in seen) >= share.most or lost or (full and last < end):
                self._wake(tenant)
            elif not unseen:
                self._rest(tenant, turn.at)
        if turn.open:
            times = [one.time for one in turn.tenants]
            behind = [one.time for one in turn.tenants if one.name in self._busy]
            if behind or not self._busy:
                self._now = max(self._now, min(behind) if behind else max(times))

    def _cost(self, tenant: _Tenant, weights: Mapping[str, int]) -> float:
        return (self._pace if tenant.pace is None else tenant.pace) / weights.get(tenant.name, 1)

    def _wake_due(self, now: float) -> None:
        while self._dues and self._dues[0][0] <= now:
            tenant = self._all[heapq.heappop(self._dues)[1]]
            if tenant.due <= now:
                tenant.due = math.inf
            tenant.heard = now
            self._wake(tenant)

    def _wake(self, tenant: _Tenant) -> None:
        self._full.discard(tenant.name)
        if tenant.name not in self._busy:
            self._resting.pop(tenant.name, None)
            tenant.time = max(tenant.time, self._now)
            self._busy[tenant.name] = tenant

    def _rest(self, tenant: _Tenant, at: float) -> None:
        if max(tenant.heard, self._heard) >= at:
            return  # a job came meanwhile
        self._busy.pop(tenant.name, None)
        self._resting.pop(tenant.name, None)
        self._resting[tenant.name] = tenant
        tenant.asked = at


class Fairness:
    """The tenants by topic id. `followers` are those of claims with tags, by tags: they hear of the same events."""

    def __init__(self) -> None:
        self._topics: dict[int, Tenants] = {}
        self.followers: dict[Hashable, Fairness] = {}

    def of(self, topic_id: int) -> Tenants:
        """The topic's tenants, new if there were none."""
        tenants = self._topics.get(topic_id)
        if tenants is None:
            tenants = self._topics[topic_id] = Tenants()
        return tenants

    def note_claimable(self, topic_id: int, names: Collection[str] | None = None) -> None:
        for tenants in self._each(topic_id):
            tenants.note_claimable(names)

    def note_delays(self, topic_id: int, batch: Batch) -> None:
        """Learn the delays of a batch that was enqueued."""
        for tenants in self._each(topic_id):
            for delay, owner in itertools.zip_longest(batch.delays_ms, batch.tenants):
                if delay:
                    tenants.due([owner or ""], delay / 1000)

    def note_freed(self, topic_id: int) -> set[str]:
        tenants = self._topics.get(topic_id)
        return set() if tenants is None else tenants.note_freed()

    def measure(self, topic_id: int, names: Sequence[str], ages_ms: Sequence[float]) -> None:
        tenants = self._topics.get(topic_id)
        if tenants is not None:
            tenants.measure(names, ages_ms)

    def drop(self, topic_id: int) -> None:
        """Forget a deleted topic."""
        self._topics.pop(topic_id, None)
        for follower in self.followers.values():
            follower.drop(topic_id)

    def _each(self, topic_id: int) -> Iterator[Tenants]:
        for fairness in (self, *self.followers.values()):
            tenants = fairness._topics.get(topic_id)
            if tenants is not None:
                yield tenants
