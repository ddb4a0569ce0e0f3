"""In which order a topic's jobs come, where its settings ask for another than the usual one. docs/semantics.md, section
4; docs/adr/0031 has the arguments. A topic without such settings pays nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from app.kernel.claim import turns
from app.kernel.claim.ages import Overtaking
from app.kernel.counts import inspector
from app.kernel.model import Lane, Reach

if TYPE_CHECKING:
    from app.kernel.claim.cursors import Cursor, Plan
    from app.kernel.counts.inspector import Head
    from app.kernel.model import Connection
    from app.kernel.topics.settings import Config

LOOK_SECONDS: Final = 0.1  # how often the ages of lanes are looked at
LOOK_SHARE: Final = 0.1  # of the time, that those looks may take
BEFORE_US: Final = 2  # times pass through a float on their way


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
