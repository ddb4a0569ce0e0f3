"""Finds out from the tables and this process why a job is not running; reasons.py words it. docs/explain.md."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from app.base.outages import TOO_SLOW
from app.base.times import rfc3339
from app.features.explain import reasons, store
from app.features.explain.reasons import Ahead, ClaimPace, Facts, Reason, ReasonCode, TenantRoom, Verdict, Waiting
from app.features.explain.store import COUNTED, GroupHead, JobNow
from app.kernel import jobs, ledger
from app.kernel.claim import limits, ordering
from app.kernel.claim.ordering import OVERTAKE_SHARE
from app.kernel.counts import holders, inspector
from app.kernel.counts.holders import StuckGroups
from app.kernel.counts.inspector import Lows
from app.kernel.engine import Core
from app.kernel.ledger import Event, Recent
from app.kernel.model import Lane, Reach, Topic
from app.kernel.settle import results
from app.kernel.settle.results import Result
from app.kernel.topics.policy import Policy

# The claim rate is measured over the first of these windows (seconds) that has ENOUGH claims.
WINDOWS: Final = (10.0, 60.0, 600.0)
ENOUGH: Final = 20
PATIENCE_SECONDS: Final = 1.0  # for all windows; reading one costs more the busier other topics are
NEARLY: Final = 0.9  # the share of its throughput limit from which a topic counts as limited
_NOTHING: Final = Recent(0, 0, 0, None, None)


class Explanation(msgspec.Struct, frozen=True):
    """Why a job is not running. `row` is None if the job is gone and only the ledger knows it."""

    row: JobNow | None
    verdict: Verdict


class Explain(Core):
    """Explains jobs and topics. Reads only."""

    async def job(
        self, policy: Policy, seq: int, *, covers: Callable[[str], bool], last: Sequence[Event] | None = None
    ) -> Explanation | None:
        """Why a job is not running. None if there are no records of the job.

        `covers`: whether the caller may see a topic; a dead letter's place is named only then.
        `last`: the job's last events, newest first, if already read. One is enough.
        """
        db = self._engine.pools.rest
        row = await store.job(db, policy.topic, policy.budget, seq)
        if row is None:
            return await self._gone(policy, seq, covers, last)
        facts = Facts(policy.control)
        if row.state == "blocked":
            facts.head = await store.head(db, policy.topic, row.tenant, row.grp, seq)
        elif row.state in {"ready", "scheduled"} and not row.spent:
            facts.ahead, facts.pace = await self._ahead(policy, row), await self._pace(policy)
            facts.room = await self._room(policy, row.tenant)
        return Explanation(row, reasons.explain_job(row, facts))

    async def topic(self, policy: Policy) -> tuple[Waiting, Verdict]:
        db, topic = self._engine.pools.rest, policy.topic
        lows = self._engine.marks.lows(topic.id)
        counts = await inspector.count(db, topic, policy.budget, COUNTED, lows)
        waiting = Waiting(counts.ready, counts.looked >= COUNTED, counts.scheduled, counts.blocked, counts.in_flight)
        stuck = StuckGroups()
        if counts.blocked:
            stuck = (await holders.stuck_groups(db, [(topic, policy.config.wait_goal_ms)], {}))[topic.name]
        return waiting, reasons.explain_topic(waiting, policy.control, await self._pace(policy), stuck)

    async def group(
        self, policy: Policy, tenant: str, group: str, *, covers: Callable[[str], bool]
    ) -> tuple[GroupHead, Verdict]:
        """A group's first job, how many jobs wait behind it, and why the first one is not running."""
        head = await store.head(self._engine.pools.rest, policy.topic, tenant, group)
        first = None if head.seq is None else await self.job(policy, head.seq, covers=covers)
        return head, reasons.explain_group(head, None if first is None else first.verdict)

    async def _gone(
        self, policy: Policy, seq: int, covers: Callable[[str], bool], events: Sequence[Event] | None
    ) -> Explanation | None:
        db, topic = self._engine.pools.rest, policy.topic
        for place in (await jobs.find_letters(db, [(topic.id, seq)])).values():
            for letter in await jobs.show(db, [place]):
                where = (letter.topic, letter.seq) if covers(letter.topic) else None
                deliveries = letter.original_deliveries or 0
                dead = reasons.explain_dead_letter(where, deliveries, letter.last_error, letter.dlq_moved_ms)
                return Explanation(None, Verdict([dead], None))
        if events is None:
            events = await ledger.last(db, topic, seq, 1)
        if not events:
            return None
        last = events[0]
        if last.event == "dead_lettered":  # into a log, or the dead letter is gone as well
            dead = reasons.explain_dead_letter(None, last.deliveries, last.detail, last.at_ms)
            return Explanation(None, Verdict([dead], None))
        result = await results.find(db, topic, seq) if last.event == "acked" else None
        return Explanation(None, Verdict([_end_reason(topic, seq, last, result)], None))

    async def _ahead(self, policy: Policy, row: JobNow) -> Ahead:
        """How many jobs are handed out before `row`: those of its tenant that come first, and those of other tenants.

        Every other tenant that is not paused gets its fair share of the turns in that time.
        """
        config, lows = policy.config, self._engine.marks.lows(policy.topic.id)
        back = config.retry_order == "back"
        lanes = await store.claimable(self._engine.pools.rest, policy.topic, lows, row, by_time=back)
        sign = 1 if config.priority_order == "highest_first" else -1
        own, others, at_least = 0, dict[str, int](), False
        for lane, n in lanes.items():
            if lane.tenant != row.tenant:
                if lane.tenant not in policy.control.paused_tenants:
                    others[lane.tenant] = others.get(lane.tenant, 0) + n
            elif lane == row.lane or sign * lane.priority > sign * row.priority:
                own += n
                at_least = at_least or n >= COUNTED
        if config.aging_ms:
            most = await self._most_by_age(policy, row, lanes, lows)
            own = own if most is None else min(own, most)
        weights = config.tenant_weights
        share = (own + 1) / weights.get(row.tenant, 1)
        turns = sum(min(n, math.ceil(share * weights.get(tenant, 1))) for tenant, n in others.items())
        return Ahead(own + turns, at_least)

    async def _most_by_age(self, policy: Policy, row: JobNow, lanes: Mapping[Lane, int], lows: Lows) -> int | None:
        """At most how many of its tenant's jobs come before `row` if its lane overtakes by age; None if it doesn't.

        One of OVERTAKE_SHARE jobs is from a lane that overtakes.
        """
        known = {reach.lane: reach for reach in lows.lanes}
        own = [known.get(lane, Reach(lane)) for lane in {**lanes, row.lane: 0} if lane.tenant == row.tenant]
        heads = await inspector.heads(self._engine.pools.rest, [(policy.topic.name, reach) for reach in own])
        overtaking = {
            reach.lane for reach in ordering.overtaking_lanes(policy.config, list(zip(own, heads, strict=True)))
        }
        if row.lane not in overtaking:
            return None
        return (lanes.get(row.lane, 0) + 1) * len(overtaking) * OVERTAKE_SHARE - 1

    async def _room(self, policy: Policy, tenant: str) -> TenantRoom | None:
        limit = policy.config.tenant_limits.get(tenant)
        if limit is None:
            return None
        in_flight = await limits.in_flight(self._engine.pools.rest, policy.topic, {tenant: limit})
        return TenantRoom(tenant, limit, in_flight[tenant])

    async def _pace(self, policy: Policy) -> ClaimPace:
        topic, limit = policy.topic, policy.config.throughput_limit
        # The tokens come first: reading the ledger may take so long that a new token has come.
        refill_ms = round(await self._engine.throttle.refill(policy) * 1000) if limit else 0
        recent, seconds = await self._recent(topic)
        waiting = self._engine.waiters.count(topic.name)
        if not limit:
            return ClaimPace(recent, seconds, waiting)
        # Under a steady load there may be a token just now although the limit holds jobs back.
        near_limit = 0 < limit * seconds * NEARLY <= recent.claimed
        return ClaimPace(recent, seconds, waiting, limit, near_limit or refill_ms > 0, refill_ms)

    async def _recent(self, topic: Topic) -> tuple[Recent, float]:
        recent, seconds, end = _NOTHING, 0.0, time.monotonic() + PATIENCE_SECONDS
        with contextlib.suppress(*TOO_SLOW):
            async with self._engine.pools.rest.acquire() as db, db.transaction(readonly=True):
                for window in WINDOWS:
                    left_ms = (end - time.monotonic()) * 1000
                    if left_ms < 1:
                        break
                    await db.execute(f"SET LOCAL statement_timeout = {left_ms:.0f}")
                    recent, seconds = await ledger.recent(db, topic, window), window
                    if recent.claimed >= ENOUGH:
                        break
        return recent, seconds


def _end_reason(topic: Topic, seq: int, last: Event, result: Result | None) -> Reason:
    text = f"It is gone: {last.event} at {rfc3339(last.at_ms)}."
    numbers: dict[str, object] = {"event": last.event, "at": last.at_ms}
    if result is not None and result.kept:
        until = result.expires_ms
        text += " Its result never expires." if until is None else f" Its result is kept until {rfc3339(until)}."
        numbers |= {"result": f"/v0/topics/{topic.name}/jobs/{seq}/result", "result_expires_at": until}
    return Reason(ReasonCode.ENDED, text, numbers)
