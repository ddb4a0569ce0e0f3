"""Whether a topic's tallies are what its jobs are."""

from __future__ import annotations

from app.kernel.model import Connection
from app.kernel.topics.policy import Policy

_OFF = """
WITH jobs AS (
    SELECT count(*) FILTER (WHERE state = 'ready') AS ready, count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
           count(*) FILTER (WHERE state = 'blocked') AS blocked, count(*) FILTER (WHERE state = 'leased') AS leased,
           count(*) FILTER (WHERE state = 'failed') AS failed, count(*) FILTER (WHERE state = 'expired') AS expired,
           coalesce(sum(octet_length(payload)) FILTER (WHERE state NOT IN ('failed', 'expired')), 0) AS bytes
    FROM holdfast.jobs WHERE topic = $1
), sums AS (
    SELECT coalesce(sum(ready), 0), coalesce(sum(scheduled), 0), coalesce(sum(blocked), 0), coalesce(sum(leased), 0),
           coalesce(sum(failed), 0), coalesce(sum(expired), 0),
           coalesce(sum(bytes), 0)
    FROM holdfast.tallies WHERE topic_id = $2
)
SELECT j::text AS jobs, s::text AS sums FROM jobs j, sums s
"""


async def tallied(db: Connection, policy: Policy) -> bool:
    """Whether they are; fails with both where they are not."""
    return await are_tallied(db, policy.topic.name, policy.topic.id)


async def are_tallied(db: Connection, topic: str, topic_id: int) -> bool:
    """The same, of a topic by its name and its id."""
    found = await db.fetchrow(_OFF, topic, topic_id)
    assert found is not None
    assert found["jobs"] == found["sums"]
    return True
