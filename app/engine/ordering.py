"""In which order a topic's jobs come, where its settings ask for another than the usual one. docs/semantics.md, section
4; docs/adr/0031 has the arguments. A topic without such settings pays nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from app.queue import inspector, turns
from app.queue.model import Lane, Reach

if TYPE_CHECKING:
    from app.engine.cursors import Cursor, Plan
    from app.queue.inspector import Head
    from app.queue.model import Connection
    from app.topics.config import Config

OVERTAKE_SHARE: Final = 4  # one in so many jobs handed out may be one that overtakes
LOOK_SECONDS: Final = 0.1  # how often the ages of lanes are looked at
LOOK_SHARE: Final = 0.1  # of the time, that those looks may take
BEFORE_US: Final = 2  # times pass through a float on their way


@dataclass(slots=True)
class Ages:
    """What is known of the ages of one topic's jobs: the lanes that have overtaken others, each with where its jobs
    begin, in turn."""

    overtaking: deque[Reach] = field(default_factory=deque)
    credit: int = OVERTAKE_SHARE - 1  # in jobs handed out; the first that overtakes is not kept waiting
    look_at: float = 0.0
    took: float = 0.0  # seconds, the last look


def arranged(lanes: Sequence[Lane], config: Config) -> Sequence[Lane]:
    """Lanes in claim order, given by priority, high first."""
    return lanes if config.priority_order == "highest_first" else sorted(lanes, key=lambda lane: lane.priority)


async def overtaking(
    db: Connection, cursor: Cursor, config: Config, lanes: Sequence[Lane], wanted: int
) -> tuple[Reach, int] | None:
    """Which lane a claim for `wanted` jobs turns to first, and for how many of them, as its first job has waited long
    enough; None for no such lane, or as enough was given to such ones for now.

    A lane overtakes once its first job has waited `aging_ms` for each step of priority that it is below the best lane
    that has work. Several take turns.
    """
    ages, now = cursor.ages, time.monotonic()
    if now >= ages.look_at:
        reaches = cursor.lows_of(lanes)
        heads = await inspector.heads(db, [(cursor.topic.name, reach) for reach in reaches])
        took = time.monotonic() - now
        # One that was held up by something else is not what looks cost.
        ages.look_at = now + max(LOOK_SECONDS, min(took, ages.took) / LOOK_SHARE)
        ages.took = took
        ages.overtaking = _in_turn(ages.overtaking, _overtaking(config, reaches, heads))
    if not ages.overtaking:
        ages.credit = OVERTAKE_SHARE - 1
        return None
    seats, ages.credit = divmod(ages.credit + wanted, OVERTAKE_SHARE)
    if seats == 0:
        return None
    ages.overtaking.rotate(-1)
    return ages.overtaking[-1], seats


def _overtaking(config: Config, reaches: Sequence[Reach], heads: Sequence[Head]) -> list[Reach]:
    """Those lanes whose first jobs count as much as the best ones, by now: where each begins."""
    sign = 1 if config.priority_order == "highest_first" else -1
    begun = [
        (sign * reach.lane.priority, head.waited_ms // config.aging_ms, _just_before(head, reach))
        for reach, head in zip(reaches, heads, strict=True)
        if head.waited_ms is not None
    ]
    best = max((rank for rank, _, _ in begun), default=0)
    return [reach for rank, steps, reach in begun if rank < best <= rank + steps]


def _just_before(head: Head, reach: Reach) -> Reach:
    after = reach.after if head.ready is None else head.ready - 1
    due = reach.due if head.due is None else head.due - BEFORE_US
    return Reach(reach.lane, after, due)


def _in_turn(before: Sequence[Reach], now: Sequence[Reach]) -> deque[Reach]:
    """Those of `now`, in the turn that they had before; new ones last."""
    turns = {reach.lane: turn for turn, reach in enumerate(before)}
    return deque(sorted(now, key=lambda reach: turns.get(reach.lane, len(turns))))


async def by_time(db: Connection, cursor: Cursor, plan: Plan, wanted: int) -> Plan:
    """The plan of a claim for `wanted` jobs that takes jobs whose time has come in turn with fresh ones."""
    if all(reach.due is None for reach in plan.reaches):
        return plan
    return replace(plan, reaches=await turns.in_turn(db, cursor.topic, plan.reaches, wanted))
