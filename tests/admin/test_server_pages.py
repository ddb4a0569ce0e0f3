"""Pages about the server: reapers, webhooks, the audit trail, and who holds back vacuum."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from tests.admin.conftest import BOSS, HOSTILE
from tests.admin.operator import Operator, Page
from tests.api.dialect import Topic, accepted, eventually
from tests.conftest import Running

NIGHTLY = "<script>report</script>"


async def once(boss: Operator, path: str, *texts: str) -> Page:
    """A page, once it says all of this."""

    async def said() -> Page | None:
        page = await boss.open(path)
        return page if all(text in page.text for text in texts) else None

    found = await eventually(said, 30)
    assert found is not None
    return found


async def test_a_reaper_is_run_and_says_what_it_moved(
    boss: Operator, http: httpx.AsyncClient, service: Running
) -> None:
    page = await boss.open("reapers")
    assert "never ran" in page.row("delete")
    await boss.press(page, "run-delete")

    async def ran() -> bool:
        return "never ran" not in (await boss.open("reapers")).row("delete")

    await eventually(ran, 30)
    page = await boss.press(page, "Set", schedule="every day", status=422)
    assert page.fault("schedule")
    assert page.value("schedule") == "every day"
    page = await boss.press(page, "Set", schedule="30 3 * * *")
    assert "30 3 * * *" in page.row("delete")
    assert (await http.get("/api/admin/delete-reaper/schedule")).json()["schedule"] == "30 3 * * *"
    entry = accepted(await http.get("/v0/admin/audit?page_size=1&action=schedule.changed"))["entries"][0]
    assert entry["actor_name"] == BOSS

    page = await boss.follow(page, "watches")
    assert "No runs yet." in page.text
    async with service.context.pools.rest.acquire() as db:
        await db.execute(
            """INSERT INTO holdfast.sweep_runs (name, run, started_at, finished_at, moved, error)
               SELECT 'watches', gen_random_uuid(), now() - n * interval '1 h', now() - n * interval '59 min',
                      n * 1000,
                      CASE n WHEN 2 THEN '<b>it broke</b>' END FROM generate_series(1, 3) AS n"""
        )
    page = await boss.open(page.path)
    assert "3,000" in page.text
    assert "<b>it broke</b>" in page.text


async def test_webhooks_say_who_is_told_and_what_was_given_up(
    boss: Operator, queue: Topic, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.context.engine.readings, "ttl", 0.1)
    hook = {"url": "http://127.0.0.1:9/<i>", "on": ["completed"], "secret": "a long and a random one"}
    await queue.put(webhook=hook)
    await queue.add(1)
    await queue.ack("n", [(await queue.take())["$seq"]])
    # What is no public address fails at once; whose hooks there are is known as of the last look at all topics.
    page = await once(boss, "webhooks", "which is not public", queue.name)
    assert "Given up 1" in page.text
    assert [queue.name, "http://127.0.0.1:9/<i>", "completed"] in page.table
    assert "random" not in page.html


async def test_the_trail_is_filtered_by_its_address_and_says_what_was_another(
    boss: Operator, http: httpx.AsyncClient, queue: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.put(lease_ms=2_000)
    await http.post("/v0/keys", json={"name": HOSTILE, "scopes": ["read"]})
    page = await boss.open("audit")
    assert HOSTILE in page.text
    page = await boss.press(page, "Filter", subject=queue.name, since="2026-01-01T00:00")
    assert f"subject={queue.name}" in page.path
    changed, created = page.table
    assert changed[4] == "lease_ms 30000 became 2000"
    assert "config.lease_ms" in created[4]
    assert all(row[1] == "topic.changed" for row in (await boss.follow(page, "topic.changed")).table)
    assert "No entry matches." in (await boss.open("audit?since=2999-01-01T00:00")).text
    page = await boss.open("audit?since=x&subject=kept", 400)
    assert "Must be a time" in page.fault("since")
    assert page.value("subject") == "kept"
    assert "action must be one of" in (await boss.open("audit?action=fly", 400)).text

    monkeypatch.setattr("app.features.audit.page.MOST", 1)
    page = await boss.open(f"audit?subject={queue.name}")
    assert [row[1] for row in page.table] == ["topic.changed"]
    page = await boss.follow(page, "Next")
    assert [row[1] for row in page.table] == ["topic.created"]
    assert page.link("Next") is None


async def test_a_trail_that_takes_too_long_to_search_says_so(
    boss: Operator, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.audit.page.SECONDS", 0.2)
    async with service.context.pools.rest.acquire() as db, db.transaction():
        await db.execute("LOCK TABLE holdfast.audit")  # nobody else can read it meanwhile
        assert "The search took too long." in (await boss.open("audit")).text


async def test_who_holds_back_vacuum_is_found_from_home_and_ended(
    boss: Operator, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.base.db.health.OLD_SECONDS", 0.5)
    url = service.context.settings.database_url
    assert url is not None
    report = await asyncpg.connect(url.get_secret_value(), server_settings={"application_name": NIGHTLY})
    try:
        await report.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT '<i>\"&'")
        page = await once(boss, "horizon", NIGHTLY, "The tables will grow if this holder stays while jobs flow.")
        command = f"SELECT pg_terminate_backend({report.get_server_pid()});"
        (holder,) = [one for one in page.all(".//tbody") if command in one]
        assert "idle in transaction" in holder
        fact = (await boss.open("")).main.find(".//a[@href='/admin/horizon']")
        assert fact is not None
        assert fact.text != "not held back"
        async with service.context.pools.rest.acquire() as db:
            await db.execute(command)

        async def gone() -> bool:
            return command not in (await boss.open("horizon")).text

        await eventually(gone, 30)
    finally:
        report.terminate()
