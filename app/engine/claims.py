"""Claims: callers that arrive together are one cohort and share one statement. docs/semantics.md, sections 4 and 16."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from app.engine.group import GroupCommit
from app.engine.passes import MAX_SLOTS, Passes
from app.errors import TopicNotFound
from app.queue.model import Job, Lane
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.exits import Exits
    from app.engine.settlements import Settlements
    from app.engine.shared import Shared

MAX_CLAIM: Final = 1_000

# None: there may be jobs, behind spent ones that are being taken out, or behind the bytes of others. Ask again.
Answer: TypeAlias = "list[Job] | None"


class Claimer(msgspec.Struct, frozen=True):
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
        self._settlements = settlements
        self._passes = Passes(shared, exits)
        self._stopping = False
        self._returns: set[asyncio.Task[None]] = set()
        # Without a window the first come takes what it asked for, and a statement has as many slots as one caller
        # may ask for; with one, the whole cohort shares, however much it asks for.
        self._greedy = self._group(window=0)
        self._even = self._group(window=1)

    def _group(self, *, window: int) -> GroupCommit[Claimer, Answer]:
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
            mark = self._shared.waiters.mark(topic.id, claimer.tenants)
            jobs: list[Job] = []
            if wait_seconds == 0 or not self._shared.waiters.is_quiet(topic.id):
                share = await self._submit(group, claimer)
                if share is None and not self._stopping:
                    continue
                jobs = share or []
                # Where it was tokens that lacked, there may be jobs; nor do some tenants' jobs tell of all.
                if not jobs and claimer.tenants is None and not self._shared.throttle.sends_away(topic.id):
                    self._shared.waiters.found_nothing(topic.id, mark)
            if jobs:
                return jobs
            left = until - time.monotonic()
            if left <= 0 or self._stopping:
                return jobs
            woken = await self._shared.waiters.park(
                topic, claimer.max, mark, left, even=even, tenants=claimer.tenants, node=claimer.node
            )
            if not woken or self._stopping:
                return jobs

    async def _submit(self, group: GroupCommit[Claimer, Answer], claimer: Claimer) -> Answer:
        future = group.submit((claimer.policy.topic.id, claimer.tenants), claimer)
        try:
            return await future
        except asyncio.CancelledError:
            # Too late to be taken out of the statement, and too early to have seen its answer.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(claimer, future.result())
            raise

    def _give_back(self, claimer: Claimer, jobs: Answer) -> None:
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

    async def _commit(self, cohort: Sequence[Claimer]) -> list[Answer | BaseException]:
        policy = await self._latest(cohort[-1].policy)
        shares: list[list[Job]] = [[] for _ in cohort]
        lanes: Sequence[Lane] = await self._shared.lanes.of(self._shared.verbs(policy), policy.topic)
        lanes = self._shared.lanes.asked(policy, lanes)
        if not lanes:
            self._passes.numbers.shared([0] * len(cohort))
            return list(shares)
        if policy.config.throughput_limit:
            through = await self._spend(policy, cohort, shares, lanes)
        else:
            through = await self._passes.fill(policy, cohort, shares, lanes, MAX_SLOTS)
        return [share if share or through else None for share in shares]

    async def _latest(self, policy: Policy) -> Policy:
        """The topic's policy as it is known now: whoever waits came with an older one, and it may be paused by now."""
        try:
            latest = await self._shared.policies.get(policy.topic.name)
        except TopicNotFound:
            return policy
        return latest if latest.topic.id == policy.topic.id and latest.version >= policy.version else policy

    async def _spend(
        self, policy: Policy, cohort: Sequence[Claimer], shares: Sequence[list[Job]], lanes: Sequence[Lane]
    ) -> bool:
        """Claim for the cohort as far as there are tokens; as `Passes.fill`."""
        wanted = min(sum(claimer.max for claimer in cohort), MAX_SLOTS)
        tokens = await self._shared.throttle.take(policy, wanted)
        through = True
        try:
            if tokens:
                through = await self._passes.fill(policy, cohort, shares, lanes, tokens)
            else:
                self._passes.numbers.shared([0] * len(cohort))
        finally:
            claimed = sum(map(len, shares))
            await self._shared.throttle.put_back(policy, tokens - claimed)
        if claimed == tokens < wanted:
            short = sum(len(share) < claimer.max for claimer, share in zip(cohort, shares, strict=True))
            self._shared.metrics.topic(policy.topic.name).throttled.add(short)
        return through
