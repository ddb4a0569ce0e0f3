"""Leases by node, and groups with waiting jobs. Bounded reads for pages, metrics and explanations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg
import msgspec

from app.base.db import sql
from app.kernel.model import Connection, HeldJob, Lane, Topic

_SQL: Final = sql.load_all(__package__)
_HOLDERS = _SQL["holders"]
_WAITING_GROUPS = _SQL["waiting_groups"]
_STUCK_GROUPS = _SQL["stuck_groups"]
_FAILING_HEADS = _SQL["failing_heads"]
_LONG_LEASES = _SQL["long_leases"]
_LEASE_OF_GROUP = _SQL["lease_of_group"]
_LEASES_OF_NODE = _SQL["leases_of_node"]

LOOKED_AT: Final = 2_000  # leased jobs of a topic, and entries of each lane, that are read
GROUPS: Final = 200  # groups of a topic that are read
COUNTED: Final = 1_000  # waiting jobs of a group that are counted
STUCK: Final = 1_000  # groups with waiting jobs of a topic that are read
FAILING: Final = 5  # failing heads of a topic whose events are read in the ledger
MOST_FAILING: Final = 20  # failing heads of all topics together
FAILING_SECONDS: Final = 0.5  # most time for reading the ledger
TRIES: Final = 10_000  # events of a failing head that are read
LANES: Final = 100  # lanes of one statement
_HEAD: Final = ("tenants", "grps", "seqs", "since", "till")
NEVER: Final = datetime.fromtimestamp(0, UTC)  # before every deadline


class WorkerLeases(msgspec.Struct, frozen=True):
    """The jobs that a worker holds, by its node's name. Times are in ms since 1970.

    leased_ms: when the oldest lease began. until_ms: when the first lease ends.
    """

    node: str
    held: int
    leased_ms: int
    until_ms: int


class WaitingGroup(msgspec.Struct, frozen=True):
    """A group, how many jobs wait in it, and the job in front of them."""

    tenant: str
    grp: str
    behind: int
    seq: int | None
    state: str | None
    node: str | None
    until_ms: int | None

    @property
    def at_least(self) -> bool:
        """Whether more jobs may wait than were counted."""
        return self.behind >= COUNTED


async def holders(db: Connection, topic: Topic, limit: int) -> list[WorkerLeases]:
    """Up to `limit` workers with leases, the one with the most first. Counts the LOOKED_AT leases that end first."""
    rows = await db.fetch(_HOLDERS, topic.name, LOOKED_AT, LOOKED_AT, limit)
    return [WorkerLeases(**dict(row)) for row in rows]


async def waiting_groups(db: Connection, topic: Topic, limit: int, goal_ms: int = 0) -> list[WaitingGroup]:
    """Up to `limit` groups with waiting jobs, of the first GROUPS by tenant and name. Groups that have been stuck for
    `goal_ms` come first, then groups whose first job failed twice or more, then groups with the most jobs."""
    rows = await db.fetch(_WAITING_GROUPS, topic.name, GROUPS, limit, COUNTED, goal_ms)
    return [WaitingGroup(**dict(row)) for row in rows]


async def lease_of_group(db: Connection, topic: Topic, tenant: str, group: str) -> HeldJob | None:
    """The lease of a group's first job; None if it is not leased."""
    row = await db.fetchrow(_LEASE_OF_GROUP, topic.name, tenant, group)
    return None if row is None else HeldJob(row["seq"], row["lease_id"], row["node"])


async def leases_of_node(
    db: Connection, topic: Topic, lanes: Sequence[Lane], node: str, most: int = LOOKED_AT
) -> AsyncIterator[list[HeldJob]]:
    """The leases of a node as of now, in batches. Each statement reads LANES lanes, and `most` entries of each."""
    at: datetime | None = None
    for first in range(0, len(lanes), LANES):
        behind = dict.fromkeys(lanes[first : first + LANES], NEVER)
        while behind:
            left = list(behind)
            columns = [lane.tenant for lane in left], [lane.priority for lane in left], list(behind.values())
            rows = await db.fetch(_LEASES_OF_NODE, topic.name, *columns, node, at, most)
            at = at or rows[0]["at"]
            behind = {left[row["ord"] - 1]: row["last"] for row in rows if row["last"] is not None}
            held = [
                HeldJob(seq, lease, node) for row in rows for seq, lease in zip(row["seqs"], row["leases"], strict=True)
            ]
            if held:
                yield held


class StuckGroups(msgspec.Struct, frozen=True):
    """Groups of a queue with waiting jobs, and which of them are stuck.

    oldest_ms: how long the oldest job of any group has waited; None: none waits.
    groups, behind, ms: stuck groups, jobs waiting in them, and for how long at most.
    last: the tenant and group after which the next read begins; None: all groups were read.
    """

    oldest_ms: int | None = None
    groups: int = 0
    behind: int = 0
    ms: int = 0
    last: tuple[str, str] | None = None

    def plus(self, other: StuckGroups) -> StuckGroups:
        """The sum of both, for different groups. The next read begins where the other one ended."""
        oldest_ms = max(self.oldest_ms or 0, other.oldest_ms or 0) or None
        ms = max(self.ms, other.ms)
        return StuckGroups(oldest_ms, self.groups + other.groups, self.behind + other.behind, ms, other.last)


NOT_STUCK: Final = StuckGroups()


class LongLeases(msgspec.Struct, frozen=True):
    """Leases of a queue that are far longer than its own `lease_ms`: how many, and in how many ms the last one ends."""

    leases: int = 0
    ends_ms: int = 0


async def stuck_groups(
    db: Connection, queues: Sequence[tuple[Topic, int]], behind: Mapping[str, tuple[str, str]], most: int = STUCK
) -> dict[str, StuckGroups]:
    """The stuck groups of queues, by topic. Each queue is given with how long its jobs may wait, in ms. Reads `most`
    groups of each, after `behind`."""
    names = [topic.name for topic, _ in queues]
    starts = [behind.get(name, ("", "")) for name in names]
    rows = await db.fetch(
        _STUCK_GROUPS,
        names,
        [goal_ms for _, goal_ms in queues],
        [tenant for tenant, _ in starts],
        [group for _, group in starts],
        most,
        COUNTED,
        FAILING,
    )
    found, heads, known = dict[str, StuckGroups](), [], {topic.name: (topic, goal_ms) for topic, goal_ms in queues}
    for row in rows:
        last = (row["tenant"], row["grp"]) if row["looked"] >= most else None
        found[row["topic"]] = StuckGroups(row["oldest_ms"], row["stuck"], row["behind"], row["stuck_ms"], last)
        named = zip(*(row[column] or () for column in _HEAD), strict=True)
        heads += [(place, *known[row["topic"]], *head) for place, head in enumerate(named)]
    for name, failing in await _failing(db, sorted(heads, key=lambda head: head[0])[:MOST_FAILING]):
        found[name] = failing.plus(found[name])
    return found


async def _failing(db: Connection, heads: Sequence[tuple[Any, ...]]) -> list[tuple[str, StuckGroups]]:
    """The heads that have failed for longer than the goal, each with its topic. Empty if the ledger is too slow."""
    if not heads:
        return []
    _, topics, *columns = zip(*heads, strict=True)
    of_topics = [topic.name for topic in topics], [topic.id for topic in topics]
    try:
        async with asyncio.timeout(FAILING_SECONDS):
            rows = await db.fetch(_FAILING_HEADS, *of_topics, *columns, TRIES, COUNTED)
    except (asyncpg.QueryCanceledError, TimeoutError):
        return []
    return [(row["topic"], StuckGroups(None, 1, row["behind"], row["failing_ms"])) for row in rows]


async def long_leases(db: Connection, queues: Sequence[tuple[Topic, int]]) -> dict[str, LongLeases]:
    """Leases that end later than the given ms from now, by topic. Topics without such leases are left out."""
    names = [topic.name for topic, _ in queues]
    rows = await db.fetch(_LONG_LEASES, names, [long_ms for _, long_ms in queues], LOOKED_AT, LOOKED_AT)
    return {row["topic"]: LongLeases(row["leases"], row["ends_ms"]) for row in rows}
