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
from app.features.stats import rows as stats
from app.kernel.counts import triage
from app.kernel.counts.levels import Levels
from app.kernel.counts.triage import RECENT, Holds, Lately, Trouble
from app.kernel.engine import Core

if TYPE_CHECKING:
    from app.features.stats.rows import Flow
    from app.kernel.counts.levels import Looked
    from app.kernel.engine import Engine
    from app.kernel.model import Topic
    from app.kernel.topics.policy import Policy

MINUTES: Final = 60
FRESH_SECONDS: Final = 5.0
SHARE: Final = 20  # what takes s seconds is repeated no sooner than SHARE * s later
PATIENCE_SECONDS: Final = 2.0
MOST_UNTOLD: Final = 10  # minutes; where more are not told, what became of jobs lately is not known

log = logging.getLogger(__name__)


class Minutes(msgspec.Struct, frozen=True):
    """What became of a topic's jobs, minute by minute: MINUTES numbers each, the last of the minute that runs. Minutes
    are told 20 to 60 s after their end (docs/stats.md): the last one or two are 0 until then."""

    enqueued: list[int]
    claimed: list[int]
    completed: list[int]
    failed: list[int]
    dead_lettered: list[int]


class Seen(msgspec.Struct, frozen=True):
    """A topic as it was seen. `minutes` is None where what became of its jobs is not known, or it is a log."""

    policy: Policy
    looked: Looked
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


def page(seen: Sequence[Seen], sort: Sort, after: str, limit: int) -> tuple[list[Seen], bool]:
    """Up to `limit` topics behind the one named `after`, "" for the first ones, and whether there are more. If it has
    moved meanwhile, that is from where it is now; if it is gone, where it was by name."""
    ordered = sorted(seen, key=lambda one: _key(one, sort))
    names = [one.name for one in ordered]
    begin = names.index(after) + 1 if after in names else sum(name <= after for name in names) if after else 0
    return ordered[begin : begin + limit], len(ordered) > begin + limit


def _key(one: Seen, sort: Sort) -> tuple[float | str, ...]:
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


class View(msgspec.Struct, frozen=True):
    """Topics as they were seen, by name, of `total` that there are. `looked`: when, on the monotonic clock; None for
    never. `told`: what became of jobs lately is known of all queues that were seen."""

    topics: list[Seen]
    total: int
    looked: float | None
    told: bool

    @property
    def age(self) -> float | None:
        """How many seconds ago was looked; None: never yet."""
        return None if self.looked is None else time.monotonic() - self.looked

    @property
    def unseen(self) -> int:
        """How many topics were not looked at."""
        return max(self.total - len(self.topics), 0)


class _Flows(msgspec.Struct, frozen=True):
    """What became of jobs in the last hour, and how many of its last minutes are not told yet."""

    untold: int
    by_topic: dict[int, Flow]


class Overview(Core):
    """All topics that a scrape shows one by one, looked at no more often than a scrape does, for all who ask."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pools = engine.pools
        self._levels = engine.core(Levels)
        self._view = View([], 0, None, told=False)
        self._views: Fresh[int, None] = Fresh(FRESH_SECONDS, share=SHARE, most=2)  # by the look that they are of
        self._flows: Fresh[None, _Flows | None] = Fresh(FRESH_SECONDS, share=SHARE)

    async def read(self) -> View:
        """How they are. Raises nothing: what can't be had in time is not known."""
        await self._levels.refresh()
        # Reading has a limit, unless the network has none.
        await self._views.within(self._levels.looks, self._make, 2 * PATIENCE_SECONDS)
        return self._view

    async def drain(self) -> None:
        """Stop looking."""
        await self._views.stop()
        await self._flows.stop()

    async def _make(self) -> None:
        try:
            found, total, looked = self._levels.looked()
            queues = [policy.topic for policy, held in found if held.is_queue]
            flows = await self._flows.get(None, partial(self._read_flows, queues))
            # Not on the event loop: thousands of topics take their time.
            seen = await asyncio.to_thread(lambda: [_seen(policy, held, flows) for policy, held in found])
            told = not queues or (flows is not None and flows.untold <= MOST_UNTOLD)
            self._view = View(seen, total, looked, told)
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
                return _Flows(await stats.untold(db), await stats.flows(db, queues, MINUTES))
        except (*UNREACHABLE, *TOO_SLOW) as error:
            log.warning("can't tell what became of jobs lately: %r", error)
            return None


def _seen(policy: Policy, looked: Looked, flows: _Flows | None) -> Seen:
    if not looked.is_queue:
        return Seen(policy, looked, None, [])
    minutes = None if flows is None else _minutes(flows.by_topic.get(policy.topic.id))
    control = policy.control
    holds = Holds(
        looked.ready,
        looked.in_flight,
        looked.scheduled,
        looked.blocked,
        looked.oldest_ms,
        policy.config.wait_goal_ms,
        control.paused,
        control.draining,
        policy.config.throughput_limit,
        looked.takes_dead,
        looked.stuck,
        looked.long,
        policy.config.lease_ms,
    )
    lately = None
    if minutes is not None and flows is not None and flows.untold <= MOST_UNTOLD:
        told = slice(MINUTES - flows.untold - RECENT, MINUTES - flows.untold)
        counts = (minutes.claimed, minutes.completed, minutes.failed, minutes.dead_lettered)
        lately = Lately(*(sum(one[told]) for one in counts))
    return Seen(policy, looked, minutes, triage.troubles(holds, lately))


def _minutes(flow: Flow | None) -> Minutes:
    made = Minutes(*([0] * MINUTES for _ in Minutes.__struct_fields__))
    if flow is not None:
        for n, ago in enumerate(flow.ago):
            if 0 <= ago < MINUTES:
                for name in Minutes.__struct_fields__:
                    getattr(made, name)[MINUTES - 1 - ago] = getattr(flow, name)[n]
    return made
