"""Who is at a topic's jobs, and who waits for whom, as people look at it. Reads only, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg
import msgspec

from app.base.db import sql
from app.kernel.model import Connection, Held, Lane, Topic

_SQL: Final = sql.load_all(__package__)
_HOLDERS = _SQL["holders"]
_WAITING_GROUPS = _SQL["waiting_groups"]
_STUCK_GROUPS = _SQL["stuck_groups"]
_FAILING_HEADS = _SQL["failing_heads"]
_LONG_LEASES = _SQL["long_leases"]
_LEASE_OF_GROUP = _SQL["lease_of_group"]
_LEASES_OF_NODE = _SQL["leases_of_node"]

LOOKED_AT: Final = 2_000  # jobs of a topic that are held, and of each lane entries that are looked at
GROUPS: Final = 200  # that are looked at
COUNTED: Final = 1_000  # jobs that wait in a group
STUCK: Final = 1_000  # groups of a topic that are looked at, of those in which jobs wait
FAILING: Final = 5  # heads of a topic's groups, of those that fail again and again, that the ledger is asked about
MOST_FAILING: Final = 20  # of all topics together
FAILING_SECONDS: Final = 0.5  # for which the ledger is asked
TRIES: Final = 10_000  # events of such a head that are read
LANES: Final = 100  # that are looked at together
_HEAD: Final = ("tenants", "grps", "seqs", "since", "till")
NEVER: Final = datetime.fromtimestamp(0, UTC)  # behind which every deadline is


class Holder(msgspec.Struct, frozen=True):
    """A worker, by the node that it says it is: how many jobs it holds, since when the oldest, and until when the first
    of their leases is good, in ms since 1970."""

    node: str
    held: int
    leased_ms: int
    until_ms: int


class WaitingGroup(msgspec.Struct, frozen=True):
    """A group: how many jobs wait, and the one that is out; see explained.Head."""

    tenant: str
    grp: str
    behind: int
    seq: int | None
    state: str | None
    node: str | None
    until_ms: int | None

    @property
    def at_least(self) -> bool:
        """Whether there may be more of them than were counted."""
        return self.behind >= COUNTED


async def holders(db: Connection, topic: Topic, limit: int) -> list[Holder]:
    """Up to `limit` of those who hold jobs, by how many; LOOKED_AT jobs are counted, those whose leases end first."""
    rows = await db.fetch(_HOLDERS, topic.name, LOOKED_AT, LOOKED_AT, limit)
    return [Holder(**dict(row)) for row in rows]


async def waiting_groups(db: Connection, topic: Topic, limit: int, goal_ms: int = 0) -> list[WaitingGroup]:
    """Up to `limit` groups in which jobs wait, first those that don't move, by how long their jobs may wait; then those
    whose first job failed twice or more; then those with the most jobs. Among the first GROUPS by tenant and name;
    COUNTED of each are counted."""
    rows = await db.fetch(_WAITING_GROUPS, topic.name, GROUPS, limit, COUNTED, goal_ms)
    return [WaitingGroup(**dict(row)) for row in rows]


async def lease_of_group(db: Connection, topic: Topic, tenant: str, group: str) -> Held | None:
    """The lease under which a group's job is out; None where it is not leased."""
    row = await db.fetchrow(_LEASE_OF_GROUP, topic.name, tenant, group)
    return None if row is None else Held(row["seq"], row["lease_id"], row["node"])


async def leases_of_node(
    db: Connection, topic: Topic, lanes: Sequence[Lane], node: str, most: int = LOOKED_AT
) -> AsyncIterator[list[Held]]:
    """The leases that a node has at this moment, in batches. Each look is at LANES lanes, and at `most` leases and
    delays of each."""
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
                Held(seq, lease, node) for row in rows for seq, lease in zip(row["seqs"], row["leases"], strict=True)
            ]
            if held:
                yield held


class Stuck(msgspec.Struct, frozen=True):
    """Groups of a queue in which jobs wait: for how long the oldest one has, None where none has. And of groups that
    don't move: how many, how many jobs wait in them, and for how many ms at most. `last`: behind which tenant and group
    the next look begins; None: all were looked at."""

    oldest_ms: int | None = None
    groups: int = 0
    behind: int = 0
    ms: int = 0
    last: tuple[str, str] | None = None

    def also(self, other: Stuck) -> Stuck:
        """Both together, of different groups; the next look begins where the other one ended."""
        oldest_ms = max(self.oldest_ms or 0, other.oldest_ms or 0) or None
        ms = max(self.ms, other.ms)
        return Stuck(oldest_ms, self.groups + other.groups, self.behind + other.behind, ms, other.last)


NONE_STUCK: Final = Stuck()


class Long(msgspec.Struct, frozen=True):
    """Leases of a queue that end far later than its own would: how many, and in how many ms the last one ends."""

    leases: int = 0
    ends_ms: int = 0


async def stuck_groups(
    db: Connection, queues: Sequence[tuple[Topic, int]], behind: Mapping[str, tuple[str, str]], most: int = STUCK
) -> dict[str, Stuck]:
    """Groups of queues that don't move, by topic, for queues and how long their jobs may wait in ms; `most` groups of
    each are looked at, behind these."""
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
    found, heads, known = dict[str, Stuck](), [], {topic.name: (topic, goal_ms) for topic, goal_ms in queues}
    for row in rows:
        last = (row["tenant"], row["grp"]) if row["looked"] >= most else None
        found[row["topic"]] = Stuck(row["oldest_ms"], row["stuck"], row["behind"], row["stuck_ms"], last)
        named = zip(*(row[column] or () for column in _HEAD), strict=True)
        heads += [(place, *known[row["topic"]], *head) for place, head in enumerate(named)]
    for name, failing in await _failing(db, sorted(heads, key=lambda head: head[0])[:MOST_FAILING]):
        found[name] = failing.also(found[name])
    return found


async def _failing(db: Connection, heads: Sequence[tuple[Any, ...]]) -> list[tuple[str, Stuck]]:
    """Those of these heads that have failed for longer than the goal, each with its topic. None, where the ledger does
    not answer in time."""
    if not heads:
        return []
    _, topics, *columns = zip(*heads, strict=True)
    of_topics = [topic.name for topic in topics], [topic.id for topic in topics]
    try:
        async with asyncio.timeout(FAILING_SECONDS):
            rows = await db.fetch(_FAILING_HEADS, *of_topics, *columns, TRIES, COUNTED)
    except (asyncpg.QueryCanceledError, TimeoutError):
        return []
    return [(row["topic"], Stuck(None, 1, row["behind"], row["failing_ms"])) for row in rows]


async def long_leases(db: Connection, queues: Sequence[tuple[Topic, int]]) -> dict[str, Long]:
    """Leases that end later than so many ms from now, by topic; topics without any are left out."""
    names = [topic.name for topic, _ in queues]
    rows = await db.fetch(_LONG_LEASES, names, [long_ms for _, long_ms in queues], LOOKED_AT, LOOKED_AT)
    return {row["topic"]: Long(row["leases"], row["ends_ms"]) for row in rows}
