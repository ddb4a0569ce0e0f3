"""Who is at a topic's jobs, and who waits for whom, as people look at it. Reads only, and bounded."""

from __future__ import annotations

from typing import Final

import msgspec

from app.db import sql
from app.queue.model import Connection, Topic

_HOLDERS = sql.load(__package__, "holders")
_WAITING_GROUPS = sql.load(__package__, "waiting_groups")

LOOKED_AT: Final = 2_000  # jobs of a topic that are held, and of each lane entries that are looked at
GROUPS: Final = 200  # that are looked at
COUNTED: Final = 1_000  # jobs that wait in a group


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


async def waiting_groups(db: Connection, topic: Topic, limit: int) -> list[WaitingGroup]:
    """Up to `limit` groups with the most jobs that wait, among the first GROUPS by tenant and name; COUNTED of each are
    counted."""
    rows = await db.fetch(_WAITING_GROUPS, topic.name, GROUPS, limit, COUNTED)
    return [WaitingGroup(**dict(row)) for row in rows]
