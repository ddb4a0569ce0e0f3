"""Groups: of each, one job is out at a time, in the order of enqueueing. docs/semantics.md, section 6; docs/adr/0033.

Whoever takes out the job of a group leaves a note of it, in the same commit: a trigger of the jobs table does, whatever
the verb. Here the notes are read, and the next jobs let through.
"""

from __future__ import annotations

from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection, Topic

_SQL: Final = sql.load_all(__package__)
_PROMOTE = _SQL["promote"]
_FREED_TOPICS = _SQL["freed_topics"]
_GROUP_TOPICS = _SQL["group_topics"]


class Promoted(msgspec.Struct, frozen=True):
    """How many departures were seen to; how many jobs became ready by that, and how many are hidden for a while yet."""

    freed: int
    ready: int
    scheduled: int


async def promote(db: Connection, topic: Topic, limit: int) -> Promoted:
    """Let the next job of groups through, for up to `limit` departures. Raises asyncpg's errors."""
    row = await db.fetchrow(_PROMOTE, topic.name, topic.id, topic.sequence, limit)
    assert row is not None, "it answers one row always"
    return Promoted(row["freed"], row["ready"], row["scheduled"])


async def freed_topics(db: Connection, after: int, limit: int) -> list[tuple[str, int]]:
    """Topics where a departure waits to be seen to, behind an id: names and ids."""
    return [(row["name"], row["id"]) for row in await db.fetch(_FREED_TOPICS, after, limit)]


async def topics(db: Connection, limit: int) -> list[int]:
    """Ids of up to `limit` topics that have groups with live jobs."""
    return [row["topic_id"] for row in await db.fetch(_GROUP_TOPICS, limit)]
