"""Whose turn it is: jobs of one lane by time, and tenants that may have so many in flight. docs/semantics.md, sections
4 and 5. A topic that asks for neither comes here never."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from app.base.db import sql
from app.kernel.model import Connection, Reach, Seq, Topic

_SQL: Final = sql.load_all(__package__)
_TURNS = _SQL["turns"]
_LOCK_TENANTS = _SQL["lock_tenants"]
_IN_FLIGHT = _SQL["in_flight"]


def sort_keys(places: Sequence[tuple[int, bool, int, int, Seq]]) -> dict[Seq, tuple[int, int, int]]:
    """Sort keys by seq, from (lane, due, place, time of enqueueing in µs, seq): lanes in order, in each what was there
    earlier before what came later. Fresh jobs stay in the order of their places."""
    keys: dict[Seq, tuple[int, int, int]] = {}
    latest: dict[int, int] = {}
    for lane, due, place, at, seq in sorted(places):
        if not due:
            latest[lane] = max(at, latest.get(lane, 0))
        keys[seq] = (lane, place, 0) if due else (lane, latest[lane], place)
    return keys


async def in_turn(db: Connection, topic: Topic, reaches: Sequence[Reach], most: int) -> list[Reach]:
    """The same reaches, with as many due jobs of each lane as are among the next `most`, if jobs whose time has come
    stand behind those that came earlier. Plain reads: what happens before the claim is not in it."""
    rows = await db.fetch(
        _TURNS,
        topic.name,
        most,
        [reach.lane.tenant for reach in reaches],
        [reach.lane.priority for reach in reaches],
        [reach.after for reach in reaches],
        [reach.due for reach in reaches],
    )
    if sum(row["next"] for row in rows) < most:
        return list(reaches)  # all of them are next
    limits = dict.fromkeys(range(len(reaches)), 0)
    limits |= {row["ord"] - 1: row["due"] if row["more"] else None for row in rows}
    return [replace(reach, most_due=limits[i]) for i, reach in enumerate(reaches)]


async def room_of(db: Connection, topic: Topic, limits: Mapping[str, int]) -> dict[str, int]:
    """How many more jobs of these tenants may be in flight. `db` is a connection with a transaction of its own: whoever
    else asks waits for its end."""
    await db.execute(_LOCK_TENANTS, topic.id)
    held = await in_flight(db, topic, limits)
    return {tenant: limit - held[tenant] for tenant, limit in limits.items()}


async def in_flight(db: Connection, topic: Topic, most: Mapping[str, int]) -> dict[str, int]:
    """How many jobs of these tenants are under a good lease, counted up to so many of each."""
    rows = await db.fetch(_IN_FLIGHT, topic.name, list(most), list(most.values()))
    return {row["tenant"]: row["held"] for row in rows}
