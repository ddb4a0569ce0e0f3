"""The overview of all topics: counts from the metrics' look, and what happened to jobs in the last hour."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from app.base.fresh import Fresh
from app.base.outages import TOO_SLOW, UNREACHABLE
from app.features.stats import rows
from app.kernel.counts import triage
from app.kernel.counts.levels import Levels
from app.kernel.counts.triage import RECENT, RecentOutcomes, Trouble
from app.kernel.engine import Core

if TYPE_CHECKING:
    from app.features.stats.rows import Flow
    from app.kernel.counts.triage import TopicLevels
    from app.kernel.engine import Engine
    from app.kernel.model import Topic
    from app.kernel.topics.policy import Policy

MINUTES: Final = 60
FRESH_SECONDS: Final = 5.0
SHARE: Final = 20  # a look that took s seconds is repeated SHARE * s later at the earliest
PATIENCE_SECONDS: Final = 2.0
MOST_UNCOUNTED: Final = 10  # if more minutes than this are not counted yet, recent statistics are unknown

log = logging.getLogger(__name__)


class Minutes(msgspec.Struct, frozen=True):
    """Numbers of jobs per minute, 60 each; the last is the current minute. A minute is 0 until it is counted, 20 to
    60 s after its end."""

    enqueued: list[int]
    claimed: list[int]
    completed: list[int]
    failed: list[int]
    dead_lettered: list[int]


class TopicOverview(msgspec.Struct, frozen=True):
    """A topic in a snapshot. `minutes` is None for a log, and if the statistics could not be read."""

    policy: Policy
    looked: TopicLevels
    minutes: Minutes | None
    troubles: list[Trouble]

    @property
    def name(self) -> str:
        return self.policy.topic.name

    @property
    def rank(self) -> tuple[int, int, float, int]:
        return triage.rank(self.troubles, self.looked.waited_ms, self.policy.config.wait_goal_ms)


class Sort(StrEnum):
    """The order of a list of topics. All but NAME list the highest value first."""

    NAME = "name"
    WORST = "worst"
    OLDEST = "oldest"
    READY = "ready"
    DEAD = "dead"


def page(seen: Sequence[TopicOverview], sort: Sort, after: str, limit: int) -> tuple[list[TopicOverview], bool]:
    """Return up to `limit` topics after the one named `after` ("" for the first page), and whether there are more.

    The position of `after` is its current one. For a deleted topic it is where its name would be.
    """
    ordered = sorted(seen, key=lambda one: _key(one, sort))
    names = [one.name for one in ordered]
    begin = names.index(after) + 1 if after in names else sum(name <= after for name in names) if after else 0
    return ordered[begin : begin + limit], len(ordered) > begin + limit


def _key(one: TopicOverview, sort: Sort) -> tuple[float | str, ...]:
    match sort:
        case Sort.NAME:
            return (one.name,)
        case Sort.WORST:
            return (*one.rank, one.name)
        case Sort.OLDEST:
            return (-(-1 if one.looked.waited_ms is None else one.looked.waited_ms), one.name)
        case Sort.READY:
            return (-one.looked.ready, one.name)
        case Sort.DEAD:
            return (-one.looked.dead, one.name)
        case _:
            assert_never(sort)


class Snapshot(msgspec.Struct, frozen=True):
    """All topics of one look, by name.

    total: the number of topics that exist. looked: the time of the look on the monotonic clock; None for never.
    flows_known: whether the recent statistics of all these queues are known.
    """

    topics: list[TopicOverview]
    total: int
    looked: float | None
    flows_known: bool

    @property
    def age(self) -> float | None:
        """Seconds since the look; None for never."""
        return None if self.looked is None else time.monotonic() - self.looked

    @property
    def unseen(self) -> int:
        """The number of topics that the look left out."""
        return max(self.total - len(self.topics), 0)


class _Flows(msgspec.Struct, frozen=True):
    uncounted: int
    by_topic: dict[int, Flow]


class Overview(Core):
    """Reads all topics that the metrics list one by one. All callers share one snapshot."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pools = engine.pools
        self._levels = engine.core(Levels)
        self._view = Snapshot([], 0, None, flows_known=False)
        self._views: Fresh[int, None] = Fresh(FRESH_SECONDS, share=SHARE, most=2)  # by the number of the look
        self._flows: Fresh[None, _Flows | None] = Fresh(FRESH_SECONDS, share=SHARE)

    async def read(self) -> Snapshot:
        """Return a fresh snapshot. Raises nothing: data that can't be read in time is left out."""
        await self._levels.refresh()
        # The statement has its own timeout; this one is for a network that does not answer.
        await self._views.within(self._levels.looks, self._make, 2 * PATIENCE_SECONDS)
        return self._view

    async def drain(self) -> None:
        await self._views.stop()
        await self._flows.stop()

    async def _make(self) -> None:
        try:
            found, total, looked = self._levels.latest()
            queues = [policy.topic for policy, held in found if held.is_queue]
            flows = await self._flows.get(None, partial(self._read_flows, queues))
            # In a thread, as it is slow for thousands of topics.
            seen = await asyncio.to_thread(lambda: [_overview_of(policy, held, flows) for policy, held in found])
            known = not queues or (flows is not None and flows.uncounted <= MOST_UNCOUNTED)
            self._view = Snapshot(seen, total, looked, known)
        except Exception:
            log.exception("building the overview of topics failed")

    async def _read_flows(self, queues: list[Topic]) -> _Flows | None:
        try:
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                self._pools.rest.acquire() as db,
                db.transaction(readonly=True),
            ):
                await db.execute(f"SET LOCAL statement_timeout = '{PATIENCE_SECONDS}s'")
                return _Flows(await rows.count_uncounted(db), await rows.read_flows(db, queues, MINUTES))
        except (*UNREACHABLE, *TOO_SLOW) as error:
            log.warning("reading recent job statistics failed: %r", error)
            return None


def _overview_of(policy: Policy, looked: TopicLevels, flows: _Flows | None) -> TopicOverview:
    if not looked.is_queue:
        return TopicOverview(policy, looked, None, [])
    minutes = None if flows is None else _minutes(flows.by_topic.get(policy.topic.id))
    lately = None
    if minutes is not None and flows is not None and flows.uncounted <= MOST_UNCOUNTED:
        counted = slice(MINUTES - flows.uncounted - RECENT, MINUTES - flows.uncounted)
        counts = (minutes.claimed, minutes.completed, minutes.failed, minutes.dead_lettered)
        lately = RecentOutcomes(*(sum(one[counted]) for one in counts))
    return TopicOverview(policy, looked, minutes, triage.troubles(looked, policy, lately))


def _minutes(flow: Flow | None) -> Minutes:
    made = Minutes(*([0] * MINUTES for _ in Minutes.__struct_fields__))
    if flow is not None:
        for n, ago in enumerate(flow.ago):
            if 0 <= ago < MINUTES:
                for name in Minutes.__struct_fields__:
                    getattr(made, name)[MINUTES - 1 - ago] = getattr(flow, name)[n]
    return made
