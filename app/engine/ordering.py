"""In which order a topic's jobs come, where its settings ask for another than the usual one. docs/semantics.md, section
4; docs/adr/0031 has the arguments. A topic without such settings pays nothing."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from app.queue import inspector, turns
from app.queue.model import Job, Lane, Reach

if TYPE_CHECKING:
    from app.engine.cursors import Cursor, Plan
    from app.queue.inspector import Head
    from app.queue.model import Connection
    from app.topics.settings import Config

OVERTAKE_SHARE: Final = 4  # one in so many jobs handed out may be one that overtakes
LOOK_SECONDS: Final = 0.1  # how often the ages of lanes are looked at
LOOK_SHARE: Final = 0.1  # of the time, that those looks may take
BEFORE_US: Final = 2  # times pass through a float on their way


class Overtaking(msgspec.Struct):
    """The lanes of one tenant that have overtaken others of it, each with where its jobs begin, in turn. `credit` is in
    jobs of the tenant; the first that overtakes is not kept waiting."""

    reaches: deque[Reach] = msgspec.field(default_factory=deque)
    credit: int = OVERTAKE_SHARE - 1

    def seats(self, jobs: int) -> int:
        """For how many jobs it may overtake, where the tenant is given so many."""
        return (self.credit + jobs) // OVERTAKE_SHARE

    def take(self, seats: int) -> Reach:
        """Overtake for so many jobs: where from."""
        self.credit -= seats * OVERTAKE_SHARE
        self.reaches.rotate(-1)
        return self.reaches[-1]

    def spare(self, seats: int) -> None:
        """So many of those were not there."""
        self.credit = min(self.credit + seats * OVERTAKE_SHARE, OVERTAKE_SHARE - 1)

    def given(self, jobs: int) -> None:
        """The tenant was given so many jobs, with those."""
        self.credit = min(max(self.credit + jobs, 0), OVERTAKE_SHARE - 1)


class Ages(msgspec.Struct):
    """What is known of the ages of one topic's jobs. Tenants come before priorities: a job overtakes those of its own
    tenant, and no others."""

    overtaking: dict[str, Overtaking] = msgspec.field(default_factory=dict)  # by tenant
    look_at: float = 0.0
    took: float = 0.0  # seconds, the last look

    def given(self, jobs: Iterable[Job]) -> None:
        """A claim was given these."""
        if self.overtaking:
            for tenant, count in Counter(job.tenant for job in jobs).items():
                if tenant in self.overtaking:
                    self.overtaking[tenant].given(count)


def arranged(lanes: Sequence[Lane], config: Config) -> Sequence[Lane]:
    """Lanes in claim order, given by priority, high first."""
    return lanes if config.priority_order == "highest_first" else sorted(lanes, key=lambda lane: lane.priority)


async def look(
    db: Connection, cursor: Cursor, config: Config, several: Iterable[Sequence[Lane]]
) -> Mapping[str, Overtaking]:
    """Who has lanes that have overtaken others, as they were last seen: by tenant. `several` are the lanes of each
    tenant that may have such, whoever asks.

    A lane overtakes once its first job has waited `aging_ms` for each step of priority that it is below the best lane
    of its tenant that has work.
    """
    ages, now = cursor.ages, time.monotonic()
    if now >= ages.look_at:
        ages.look_at = now + LOOK_SECONDS  # others need not look meanwhile
        tenants = [lanes for lanes in several if len(lanes) > 1]
        reaches = cursor.lows_of(list(chain.from_iterable(tenants)))
        heads = await inspector.heads(db, [(cursor.topic.name, reach) for reach in reaches]) if reaches else []
        took = time.monotonic() - now
        # One that was held up by something else is not what looks cost.
        ages.look_at = now + max(LOOK_SECONDS, min(took, ages.took) / LOOK_SHARE)
        ages.took = took
        rest = iter(zip(reaches, heads, strict=True))
        found = {lanes[0].tenant: overtaking(config, list(islice(rest, len(lanes)))) for lanes in tenants}
        ages.overtaking = {
            tenant: _in_turn(ages.overtaking.get(tenant, Overtaking()), now) for tenant, now in found.items() if now
        }
    return ages.overtaking


def overtaking(config: Config, lanes: Sequence[tuple[Reach, Head]]) -> list[Reach]:
    """Those lanes of one tenant whose first jobs count as much as the best ones, by now: where each begins."""
    sign = 1 if config.priority_order == "highest_first" else -1
    begun = [
        (sign * reach.lane.priority, head.waited_ms // config.aging_ms, _just_before(head, reach))
        for reach, head in lanes
        if head.waited_ms is not None
    ]
    best = max((rank for rank, _, _ in begun), default=0)
    return [reach for rank, steps, reach in begun if rank < best <= rank + steps]


def _just_before(head: Head, reach: Reach) -> Reach:
    after = reach.after if head.ready is None else head.ready - 1
    due = reach.due if head.due is None else head.due - BEFORE_US
    return Reach(reach.lane, after, due)


def _in_turn(one: Overtaking, now: Sequence[Reach]) -> Overtaking:
    """With those of `now`, in the turn that they had before; new ones last."""
    turns = {reach.lane: turn for turn, reach in enumerate(one.reaches)}
    one.reaches = deque(sorted(now, key=lambda reach: turns.get(reach.lane, len(turns))))
    return one


async def by_time(db: Connection, cursor: Cursor, plan: Plan, wanted: int) -> Plan:
    """The plan of a claim for `wanted` jobs that takes jobs whose time has come in turn with fresh ones."""
    if all(reach.due is None for reach in plan.reaches):
        return plan
    return replace(plan, reaches=await turns.in_turn(db, cursor.topic, plan.reaches, wanted))
