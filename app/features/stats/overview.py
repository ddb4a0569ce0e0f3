"""How all topics are, in one look: what a scrape knows of them, and what became of their jobs in the last hour."""

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
from app.kernel.counts.triage import RECENT, Lately, Trouble
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
MOST_UNTOLD: Final = 10  # minutes; if more are not counted yet, it is not known what became of jobs lately

log = logging.getLogger(__name__)


class Minutes(msgspec.Struct, frozen=True):
    """What became of jobs, minute by minute: 60 numbers each, the last of the minute that runs. A minute is 0 until it
    is told, 20 to 60 s after its end."""

    enqueued: list[int]
    claimed: list[int]
    completed: list[int]
    failed: list[int]
    dead_lettered: list[int]


class TopicOverview(msgspec.Struct, frozen=True):
    """A topic in a snapshot. `minutes` is None for a log, and where it is not known what became of the jobs."""

    policy: Policy
    looked: TopicLevels
    minutes: Minutes | None
    troubles: list[Trouble]

    @property
    def name(self) -> str:
        """The topic's."""
        return self.policy.topic.name

    @property
    def rank(self) -> tuple[int, int, float, int]:
        """By what hurts, the worst first."""
        return triage.rank(self.troubles, self.looked.waited_ms, self.policy.config.wait_goal_ms)


class Sort(StrEnum):
    """In which order topics are listed: by name, or the most of something first."""

    NAME = "name"
    WORST = "worst"
    OLDEST = "oldest"
    READY = "ready"
    DEAD = "dead"


def page(seen: Sequence[TopicOverview], sort: Sort, after: str, limit: int) -> tuple[list[TopicOverview], bool]:
    """Up to `limit` topics behind the one named `after` ("": from the first), and whether there are more. A topic that
    has moved meanwhile counts where it is now; one that is gone, where its name would be."""
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
    """The topics that were looked at, by name.

    total: how many there are. looked: when, on the monotonic clock; None for never.
    told: whether it is known of all these queues what became of their jobs lately.
    """

    topics: list[TopicOverview]
    total: int
    looked: float | None
    told: bool

    @property
    def age(self) -> float | None:
        """How many seconds ago the topics were looked at; None for never."""
        return None if self.looked is None else time.monotonic() - self.looked

    @property
    def unseen(self) -> int:
        """How many topics were not looked at."""
        return max(self.total - len(self.topics), 0)


class _Flows(msgspec.Struct, frozen=True):
    """What became of jobs in the last hour, and how many of its last minutes are not counted yet."""

    untold: int
    by_topic: dict[int, Flow]


class Overview(Core):
    """All topics that a scrape shows one by one. All callers share one snapshot, which is renewed as often as a scrape
    is."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pools = engine.pools
        self._levels = engine.core(Levels)
        self._view = Snapshot([], 0, None, told=False)
        self._views: Fresh[int, None] = Fresh(FRESH_SECONDS, share=SHARE, most=2)  # by the look that they are of
        self._flows: Fresh[None, _Flows | None] = Fresh(FRESH_SECONDS, share=SHARE)

    async def read(self) -> Snapshot:
        """The snapshot as of now. Raises nothing: what can't be read in time is left unknown."""
        await self._levels.refresh()
        # The statement has a time limit of its own; this one is for a network that does not answer.
        await self._views.within(self._levels.looks, self._make, 2 * PATIENCE_SECONDS)
        return self._view

    async def drain(self) -> None:
        """Stop looking."""
        await self._views.stop()
        await self._flows.stop()

    async def _make(self) -> None:
        try:
            found, total, looked = self._levels.latest()
            queues = [policy.topic for policy, held in found if held.is_queue]
            flows = await self._flows.get(None, partial(self._read_flows, queues))
            # Not on the event loop: thousands of topics take their time.
            seen = await asyncio.to_thread(lambda: [_overview_of(policy, held, flows) for policy, held in found])
            told = not queues or (flows is not None and flows.untold <= MOST_UNTOLD)
            self._view = Snapshot(seen, total, looked, told)
        except Exception:
            log.exception("can't tell how topics are")

    async def _read_flows(self, queues: list[Topic]) -> _Flows | None:
        try:
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                self._pools.rest.acquire() as db,
                db.transaction(readonly=True),
            ):
                await db.execute(f"SET LOCAL statement_timeout = '{PATIENCE_SECONDS}s'")
                return _Flows(await rows.count_untold(db), await rows.read_flows(db, queues, MINUTES))
        except (*UNREACHABLE, *TOO_SLOW) as error:
            log.warning("can't tell what became of jobs lately: %r", error)
            return None


def _overview_of(policy: Policy, looked: TopicLevels, flows: _Flows | None) -> TopicOverview:
    if not looked.is_queue:
        return TopicOverview(policy, looked, None, [])
    minutes = None if flows is None else _minutes(flows.by_topic.get(policy.topic.id))
    lately = None
    if minutes is not None and flows is not None and flows.untold <= MOST_UNTOLD:
        told = slice(MINUTES - flows.untold - RECENT, MINUTES - flows.untold)
        counts = (minutes.claimed, minutes.completed, minutes.failed, minutes.dead_lettered)
        lately = Lately(*(sum(one[told]) for one in counts))
    return TopicOverview(policy, looked, minutes, triage.troubles(looked, policy, lately))


def _minutes(flow: Flow | None) -> Minutes:
    made = Minutes(*([0] * MINUTES for _ in Minutes.__struct_fields__))
    if flow is not None:
        for n, ago in enumerate(flow.ago):
            if 0 <= ago < MINUTES:
                for name in Minutes.__struct_fields__:
                    getattr(made, name)[MINUTES - 1 - ago] = getattr(flow, name)[n]
    return made
