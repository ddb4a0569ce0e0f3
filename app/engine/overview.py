"""How all topics are, in one look: what a scrape knows of them, and what became of their jobs in the last hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from app.db.pool import TOO_SLOW, UNREACHABLE
from app.engine import triage
from app.engine.triage import RECENT, Holds, Lately, Trouble
from app.queue import stats

if TYPE_CHECKING:
    from app.db.pool import Pools
    from app.engine.levels import Levels, Looked
    from app.queue.stats import Flow
    from app.topics.config import Policy

MINUTES: Final = 60
FRESH_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


class Minutes(msgspec.Struct, frozen=True):
    """What became of a topic's jobs, minute by minute: MINUTES numbers each, the last of the minute that runs. Minutes
    are told 20 to 60 s after their end (docs/stats.md): the last one or two are 0 until then."""

    enqueued: list[int]
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
    def rank(self) -> tuple[int, int, int]:
        """By what hurts, the worst first."""
        return triage.rank(self.troubles, self.looked.oldest_ms)


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


def _key(one: Seen, sort: Sort) -> tuple[int | str, ...]:
    match sort:
        case Sort.NAME:
            return (one.name,)
        case Sort.WORST:
            return (*one.rank, one.name)
        case Sort.OLDEST:
            return (-(-1 if one.looked.oldest_ms is None else one.looked.oldest_ms), one.name)
        case Sort.READY:
            return (-one.looked.ready, one.name)
        case Sort.DEAD:
            return (-one.looked.dead, one.name)
        case _:
            assert_never(sort)


class Overview:
    """All topics that a scrape shows one by one, looked at no more often than a scrape does."""

    def __init__(self, pools: Pools, levels: Levels) -> None:
        self._pools = pools
        self._levels = levels
        self._flows: dict[int, Flow] | None = None
        self._next = 0.0

    async def read(self) -> tuple[list[Seen], int, float | None]:
        """Topics by name, how many there are in all, and how many seconds ago was looked; None: never yet."""
        await self._levels.refresh()
        found, total, age = self._levels.looked()
        flows = await self._flows_of([policy for policy, looked in found if looked.is_queue])
        return [_seen(policy, looked, flows) for policy, looked in found], total, age

    async def _flows_of(self, queues: list[Policy]) -> dict[int, Flow] | None:
        """None where they can't be had in time."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + FRESH_SECONDS
            try:
                async with self._pools.rest.acquire() as db, db.transaction(readonly=True):
                    await db.execute(f"SET LOCAL statement_timeout = '{PATIENCE_SECONDS}s'")
                    self._flows = await stats.flows(db, [queue.topic for queue in queues], MINUTES)
            except (*UNREACHABLE, *TOO_SLOW) as error:
                log.warning("can't tell what became of jobs lately: %r", error)
                self._flows = None
        return self._flows


def _seen(policy: Policy, looked: Looked, flows: dict[int, Flow] | None) -> Seen:
    if not looked.is_queue:
        return Seen(policy, looked, None, [])
    minutes = None if flows is None else _minutes(flows.get(policy.topic.id))
    control = policy.control
    holds = Holds(
        looked.ready,
        looked.in_flight,
        looked.scheduled,
        looked.blocked,
        looked.oldest_ms,
        control.paused,
        control.draining,
        policy.config.throughput_limit,
    )
    lately = None
    if minutes is not None:
        lately = Lately(*(sum(one[-RECENT:]) for one in (minutes.completed, minutes.failed, minutes.dead_lettered)))
    return Seen(policy, looked, minutes, triage.troubles(holds, lately))


def _minutes(flow: Flow | None) -> Minutes:
    made = Minutes(*([0] * MINUTES for _ in range(4)))
    if flow is not None:
        for n, ago in enumerate(flow.ago):
            if 0 <= ago < MINUTES:
                for name in Minutes.__struct_fields__:
                    getattr(made, name)[MINUTES - 1 - ago] = getattr(flow, name)[n]
    return made
