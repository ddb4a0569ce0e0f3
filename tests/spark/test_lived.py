"""The mixed load makes what the other tests rely on."""

from __future__ import annotations

import asyncpg

from tests.spark.conftest import LIVED_EVENTS, Lived

EVENTS = {
    "acked", "cancelled", "claimed", "dead_lettered", "deleted", "enqueued", "expired", "extended", "failed",
    "released", "requeued", "superseded", "unblocked", "updated",
}  # fmt: skip


async def test_the_mixed_load_has_everything(lived: Lived) -> None:
    database = await asyncpg.connect(lived.dsn)
    rows = await database.fetch("SELECT event::text, count(*) FROM holdfast.lease_events GROUP BY 1")
    states = await database.fetch("SELECT DISTINCT state::text FROM holdfast.jobs")
    counts = [
        await database.fetchval(f"SELECT count(*) FROM holdfast.{table}") for table in ("results", "archive", "records")
    ]
    late = await database.fetchval(
        "SELECT count(*) FROM holdfast.lease_events e JOIN holdfast.lease_events f USING (topic_id, seq)"
        " WHERE e.event = 'claimed' AND f.event = 'claimed' AND f.deliveries = e.deliveries + 1 AND e.until < f.at"
    )
    await database.close()
    assert {event for event, _ in rows} == EVENTS
    assert sum(count for _, count in rows) == lived.events >= LIVED_EVENTS
    assert {state for (state,) in states} == {"ready", "scheduled", "blocked", "leased", "failed", "expired"}
    assert min(counts) > 0
    assert late > 0, "no lease has ended in silence"
