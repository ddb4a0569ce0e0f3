"""Claims. Concurrent claims of a topic form a cohort and share one statement. docs/semantics.md, sections 4 and 16."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from app.errors import TopicNotFound
from app.kernel.batching import GroupCommit
from app.kernel.claim.consumer import MAX_BYTES
from app.kernel.claim.fairness import Fairness
from app.kernel.claim.marks import Marks
from app.kernel.claim.walk import MAX_CLAIM, MAX_SLOTS, Claimer, Walk, WalkOutcome, Walks
from app.kernel.model import Job, Lane
from app.kernel.settle.exits import Exits
from app.kernel.settle.settlements import Settlements
from app.kernel.state import EngineState
from app.kernel.topics.policy import Policy

MOST_SETS: Final = 100  # sets of tags that are remembered; beyond it, the least recently used one is forgotten

log = logging.getLogger(__name__)

# None: ask again. There may be more jobs behind spent jobs that are being removed, or beyond the limit on bytes.
Answer: TypeAlias = "list[Job] | None"


class Claims:
    """Claims jobs: one statement at a time for each combination of topic, named tenants and tags."""

    def __init__(self, state: EngineState, exits: Exits, settlements: Settlements) -> None:
        self._state = state
        self._settlements = settlements
        self._walks = Walks(state, exits, state.marks, state.fairness)
        self._by_tags = TagWalks(state, exits)
        self._stopping = False
        # Without a window the first caller gets all jobs it asked for, and a statement has as many slots as one caller
        # can ask for. With a window the cohort shares the jobs evenly.
        self._greedy = self._group(window=0)
        self._even = self._group(window=1)

    def _group(self, *, window: int) -> GroupCommit[Claimer, Answer]:
        return GroupCommit(
            self._commit,
            max_waiting=self._state.max_waiting,
            most=MAX_SLOTS if window else MAX_CLAIM,
            weight=lambda claimer: 1 if window else claimer.max,
            on_abandoned=self._give_back,
            window=(lambda claimer: claimer.policy.config.claim_jitter_ms / 1000) if window else None,
        )

    async def claim(self, claimer: Claimer, wait_seconds: float = 0) -> list[Job]:
        """Lease up to `claimer.max` jobs, in claim order; wait up to `wait_seconds` for the first.

        Returns no jobs only if nothing was claimable: all spent jobs in front of a claimable job are removed first,
        however long that takes. If the call is cancelled, its jobs go back at once and no delivery is counted.
        Raises Unavailable and the database's errors.
        """
        until = time.monotonic() + wait_seconds
        mark, jobs = await self._ask(claimer, waits=wait_seconds > 0)
        while not jobs and not self._stopping and (left := until - time.monotonic()) > 0:
            if not await self._park(claimer, mark, left) or self._stopping:
                break
            claimer = await self._renew(claimer)
            mark, jobs = await self._ask(claimer, waits=True)
        return jobs

    async def claim_in_order(self, claimers: Sequence[Claimer], wait_seconds: float = 0) -> list[list[Job]]:
        """Lease up to `claimers[0].max` jobs in all from several topics in order; wait up to `wait_seconds` for the
        first.
        Returns the jobs of each claimer, in the order of `claimers`.

        If the call is cancelled, all jobs go back. Raises the errors of `claim`, but only if no job was claimed.
        """
        until = time.monotonic() + wait_seconds
        marks, found = await self._ask_in_order(claimers, waits=wait_seconds > 0)
        while not any(found) and not self._stopping and (left := until - time.monotonic()) > 0:
            woken = await self._park_at_all(claimers, marks, left)
            if not woken or self._stopping:
                break
            claimers = [await self._renew(claimer) for claimer in claimers]
            marks, found = await self._ask_in_order(claimers, waits=True)
            # A topic that was woken but not asked has work for other callers.
            self._pass_on(claimers[place] for place in woken if place >= len(marks))
        return found

    async def _ask(self, claimer: Claimer, *, waits: bool) -> tuple[int, list[Job]]:
        """Claim once. Returns the mark for `Waiters.park`, and the jobs. With `waits`, nothing is claimed if the topic
        was found empty and nothing has come since."""
        waiters, topic = self._state.waiters, claimer.policy.topic
        group = self._even if claimer.policy.config.claim_jitter_ms > 0 else self._greedy
        share: list[Job] | None = None
        while share is None:
            mark = waiters.mark(topic.id, claimer.tenants, claimer.tags)
            if waits and waiters.is_quiet(topic.id):
                return mark, []
            share = await self._submit(group, claimer)
            if self._stopping:
                share = share or []
            if share is None:
                claimer = await self._renew(claimer)
        # After a claim that lacked tokens, or asked for some tenants or tags only, the topic may still have jobs.
        of_all = claimer.tenants is None and claimer.tags is None
        if not share and of_all and not self._state.throttle.sends_away(topic.id):
            waiters.found_nothing(topic.id, mark)
        return mark, share

    async def _ask_in_order(self, claimers: Sequence[Claimer], *, waits: bool) -> tuple[Sequence[int], list[list[Job]]]:
        """Claim once from each topic until there are enough jobs or bytes. Returns the marks of the topics that were
        asked, and the jobs of all claimers."""
        marks: list[int] = []
        found: list[list[Job]] = [[] for _ in claimers]
        left, size = claimers[0].max, 0
        try:
            for claimer, jobs in zip(claimers, found, strict=True):
                mark, some = await self._ask(replace(claimer, max=left), waits=waits)
                jobs.extend(some)
                marks.append(mark)
                left -= len(some)
                size += sum(len(job.payload) for job in some)
                if not left or size >= MAX_BYTES:
                    break
        except BaseException as error:
            if not any(found):
                raise
            if not isinstance(error, Exception):
                for claimer, jobs in zip(claimers, found, strict=True):
                    self._give_back(claimer, jobs)
                raise
            # The caller gets the jobs that were claimed; after an error they would stay leased until their deadline.
            log.warning("a claim of topic %s failed, after others had jobs: %r", claimer.policy.topic.name, error)
        return marks, found

    async def _renew(self, claimer: Claimer) -> Claimer:
        """The claimer with the topic's current policy: while it waited, the topic may have been paused."""
        policy = claimer.policy
        try:
            latest = await self._state.policies.get(policy.topic.name)
        except TopicNotFound:
            return claimer
        if latest is policy or latest.topic.id != policy.topic.id or latest.version < policy.version:
            return claimer
        return replace(claimer, policy=latest)

    async def _park(self, claimer: Claimer, mark: int, seconds: float) -> bool:
        return await self._state.waiters.park(
            claimer.policy.topic,
            claimer.max,
            mark,
            seconds,
            even=claimer.policy.config.claim_jitter_ms > 0,
            tenants=claimer.tenants,
            tags=claimer.tags,
            node=claimer.node,
        )

    def _pass_on(self, claimers: Iterable[Claimer]) -> None:
        for claimer in claimers:
            self._state.waiters.wake(claimer.policy.topic.id, claimer.max)

    async def _park_at_all(self, claimers: Sequence[Claimer], marks: Sequence[int], seconds: float) -> list[int]:
        """Wait until some of the topics may have work. Returns their places; none if the time is over."""
        parked = [
            asyncio.create_task(self._park(claimer, mark, seconds))
            for claimer, mark in zip(claimers, marks, strict=True)
        ]
        try:
            await asyncio.wait(parked, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._pass_on(claimers[place] for place in _woken_places(parked))
            raise
        finally:
            woken = _woken_places(parked)
            for task in parked:
                task.cancel()  # a task that is being woken right now wakes the next caller in line
        return woken

    async def _submit(self, group: GroupCommit[Claimer, Answer], claimer: Claimer) -> Answer:
        future = group.submit((claimer.policy.topic.id, claimer.tenants, claimer.tags), claimer)
        try:
            return await future
        except asyncio.CancelledError:
            # Cancelled after the statement had run, and before the caller saw its answer.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(claimer, future.result())
            raise

    def _give_back(self, claimer: Claimer, jobs: Answer) -> None:
        if jobs:
            self._settlements.give_back(claimer.policy, claimer.node, jobs)

    def groups(self) -> dict[str, list[GroupCommit[Any, Any]]]:
        return {"claim": [self._greedy, self._even]}

    def stop(self) -> None:
        """Answer all waiting callers with no jobs. Later callers don't wait."""
        self._stopping = True
        self._state.waiters.wake_all()

    async def drain(self) -> None:
        """Wait for claims under way. Settlements.drain waits for jobs that are given back."""
        await self._greedy.drain()
        await self._even.drain()
        await self._by_tags.drain()

    async def _commit(self, cohort: Sequence[Claimer]) -> list[Answer | BaseException]:
        last, tags = cohort[-1], cohort[-1].tags
        # A cohort with a window has waited: its policy may be out of date.
        policy = (await self._renew(last) if last.policy.config.claim_jitter_ms else last).policy
        walks = self._walks if tags is None else self._by_tags.walks(tags)
        shares: list[list[Job]] = [[] for _ in cohort]
        lanes: Sequence[Lane] = await self._state.lanes.of(self._state.verbs(policy), policy.topic)
        lanes = self._state.lanes.running(policy, lanes)
        if not lanes:
            walks.numbers.count_statement([0] * len(cohort))
            return list(shares)
        if policy.config.throughput_limit:
            outcome = await self._spend(walks, policy, cohort, shares, lanes)
        else:
            outcome = await Walk(walks, policy, cohort, shares, lanes, most=MAX_SLOTS).run()
        return [share if share or outcome is WalkOutcome.DONE else None for share in shares]

    async def _spend(
        self,
        walks: Walks,
        policy: Policy,
        cohort: Sequence[Claimer],
        shares: Sequence[list[Job]],
        lanes: Sequence[Lane],
    ) -> WalkOutcome:
        """Claim for the cohort as many jobs as there are tokens. Returns the walk's outcome."""
        wanted = min(sum(claimer.max for claimer in cohort), MAX_SLOTS)
        tokens = await self._state.throttle.take(policy, wanted)
        outcome = WalkOutcome.DONE
        try:
            if tokens:
                outcome = await Walk(walks, policy, cohort, shares, lanes, most=tokens).run()
            else:
                walks.numbers.count_statement([0] * len(cohort))
        finally:
            claimed = sum(map(len, shares))
            await self._state.throttle.put_back(policy, tokens - claimed)
        if claimed == tokens < wanted:
            short = sum(len(share) < claimer.max for claimer, share in zip(cohort, shares, strict=True))
            self._state.metrics.topic(policy.topic.name).throttled.add(short)
        return outcome


class TagWalks:
    """The walks for each set of tags. docs/semantics.md, section 4.

    A claim for some tags leaves all other jobs where they are. It proves nothing about the places that claims of all
    jobs can skip, nor about fairness there. So each set of tags has marks and fair shares of its own while it is in
    use.
    """

    def __init__(self, state: EngineState, exits: Exits) -> None:
        self._state = state
        self._exits = exits
        self._sets: OrderedDict[frozenset[str], tuple[Walks, Marks]] = OrderedDict()

    def walks(self, tags: frozenset[str]) -> Walks:
        """The walks for jobs with at least one of these tags."""
        known = self._sets.get(tags)
        if known is None:
            known = self._sets[tags] = self._make(tags)
            while len(self._sets) > MOST_SETS:
                self._forget(next(iter(self._sets)))
        self._sets.move_to_end(tags)
        return known[0]

    async def drain(self) -> None:
        """Wait for the reads that are under way."""
        for _, marks in self._sets.values():
            await marks.drain()

    def _make(self, tags: frozenset[str]) -> tuple[Walks, Marks]:
        fairness = self._state.fairness.followers[tags] = Fairness()
        marks = self._state.marks.followers[tags] = Marks(self._state.pools, fairness)
        return Walks(self._state, self._exits, marks, fairness, sorted(tags)), marks

    def _forget(self, tags: frozenset[str]) -> None:
        del self._sets[tags], self._state.marks.followers[tags], self._state.fairness.followers[tags]


def _woken_places(parked: Sequence[asyncio.Task[bool]]) -> list[int]:
    return [place for place, task in enumerate(parked) if task.done() and task.result()]
