"""Pages don't wait for a look at the ledger that takes long: what it finds comes after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import httpx
import pytest

from app.pages import render
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.conftest import Running

# Each look at what happened to a job takes this long.
SLOW = "ALTER FUNCTION holdfast.last_events(integer, bigint, integer) RENAME TO quick"
SLOWLY = """
    CREATE FUNCTION holdfast.last_events(of_topic_id integer, of_seq bigint, most integer)
    RETURNS SETOF holdfast.lease_events LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_sleep(0.5);
        RETURN QUERY SELECT * FROM holdfast.quick(of_topic_id, of_seq, most);
    END $$"""


@pytest.fixture
async def slow(serve: Serve, new_database: Callable[[], Awaitable[str]], monkeypatch: pytest.MonkeyPatch) -> Running:
    dsn = await new_database()
    service = await serve(database_url=dsn)
    db = await asyncpg.connect(dsn)
    await db.execute(SLOW)
    await db.execute(SLOWLY)
    await db.close()
    monkeypatch.setattr(render, "LOOK_SECONDS", 0.05)
    return service


async def test_a_job_is_shown_before_what_happened_to_it(slow: Running) -> None:
    async with httpx.AsyncClient(base_url=slow.url) as http:
        topic = Topic(http, "orders")
        await topic.put()
        await topic.append({"data": 1}, {"data": 2})
        done = (await topic.claim(max=1))["claimed"][0]["$seq"]
        await topic.ack("n", [done])
        page = (await http.get(f"/admin/topics/orders/jobs/{done + 1}")).text
        assert "Searching the ledger" in page
        assert "Payload" in page
        gone = await http.get("/admin/topics/orders/jobs/77")
        assert gone.status_code == 200, "whether it ever was is not known yet"
        for seq, said in ((77, "There is no record of this job"), (done + 1, "Enqueued"), (done, "completed")):
            moves = await http.get(f"/admin/topics/orders/jobs/{seq}", headers={"hx-target": "live"})
            assert said in moves.text
            assert "aria-busy" not in moves.text
