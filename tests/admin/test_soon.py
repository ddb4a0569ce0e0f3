"""Pages don't wait for a look at the ledger that takes long: what it finds comes after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import httpx
import pytest
from playwright.async_api import Browser, expect

from app.pages import render
from tests.admin.browser import tab, visitor
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


async def test_a_job_is_shown_before_what_happened_to_it(browser: Browser, slow: Running) -> None:
    async with httpx.AsyncClient(base_url=slow.url) as http:
        topic = Topic(http, "orders")
        await topic.put()
        await topic.append({"data": 1}, {"data": 2})
        done = (await topic.claim(max=1))["claimed"][0]["$seq"]
        await topic.ack("n", [done])
        waits = done + 1
        page = (await http.get(f"/admin/topics/orders/jobs/{waits}")).text
        assert "being looked for" in page
        assert "Payload" in page
        gone = await http.get("/admin/topics/orders/jobs/77")
        assert gone.status_code == 200, "whether it ever was is not known yet"
        told = await http.get("/admin/topics/orders/jobs/77", headers={"hx-target": "live"})
        assert "Nothing is known of it" in told.text
    async with visitor(browser, proxied=False) as context, tab(context, slow.url) as one:
        for seq, word in ((waits, "Enqueued"), (done, "completed")):
            await one.open(f"/admin/topics/orders/jobs/{seq}")
            await expect(one.page.locator("#live")).to_contain_text(word)
            assert await one.page.locator("[aria-busy]").count() == 0
        assert await one.faults() == []
