"""Counts of tenants' jobs in a topic. docs/semantics.md, section 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.counts.inspector import columns
from app.kernel.model import Budget, Connection, Lane, Reach, Topic

_SQL: Final = sql.load_all(__package__)
_STATS = _SQL["tenant_stats"]
_WORKING = _SQL["working"]
_OF_TENANT = _SQL["of_tenant"]

COUNTED: Final = 10_000  # entries that are counted, of each lane and state


class Stats(msgspec.Struct, frozen=True):
    """Counts of one tenant's jobs. With `at_least` there may be more. `oldest_ms`: how long the oldest ready job has
    been claimable; None: there is none."""

    tenant: str
    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: int
    at_least: bool
    oldest_ms: int | None


async def stats(
    db: Connection,
    topic: Topic,
    budget: Budget,
    dead_letter: str | None,
    lows: Sequence[Reach],
    *,
    begin: str,
    limit: int,
    only: str | None = None,
) -> list[Stats]:
    """Up to `limit` tenants by name, from `begin` on. Or `only` one, also if it never had a job: it then has none."""
    rows = await db.fetch(
        _STATS,
        *(topic.name, begin, limit, only, COUNTED, budget.ends, budget.max_deliveries, dead_letter),
        *columns(lows),
    )
    return [Stats(**dict(row)) for row in rows]


async def working(
    db: Connection, topic: Topic, floor: tuple[int, int], lows: Sequence[Reach], soon_ms: int
) -> list[tuple[Lane, int]]:
    """A topic's lanes that have a job to claim, or will have one within `soon_ms`, each with the time until then in ms,
    0 for now. Lanes start at the `floor`, a position and a time in µs since 1970, unless they are among `lows`."""
    rows = await db.fetch(_WORKING, topic.name, *floor, *columns(lows), soon_ms)
    return [(Lane(row["tenant"], row["priority"]), row["wait_ms"]) for row in rows]


async def of_tenant(db: Connection, topic: Topic, tenant: str, seqs: Sequence[int]) -> set[int]:
    """The seqs that belong to jobs of a tenant. A job's tenant never changes."""
    found: list[int] = await db.fetchval(_OF_TENANT, topic.name, topic.id, tenant, seqs)
    return set(found)
