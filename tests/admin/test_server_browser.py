"""Pages about the server in a real browser: keys, users, reapers, the audit trail; and who may not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Locator, expect

from tests.admin.browser import PATIENCE_MS, Tab, tab, visitor
from tests.admin.conftest import BOSS, HOSTILE, READER
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import bearer, client, make
from tests.api.people import PASSWORD, add_user
from tests.conftest import Running

PAGES = ["reapers", "reapers/expiry", "webhooks", "keys", "keys/new", "users", "users/new", "audit"]
OF_ALL_TOPICS = {"reapers", "reapers/expiry", "webhooks", "users", "users/new"}


@pytest.fixture
async def http(small: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(small, "root") as opened:
        yield opened


@pytest.fixture
async def one(boss: BrowserContext, small: Running) -> AsyncIterator[Tab]:
    async with tab(boss, small.url) as opened:
        yield opened


async def submit(one: Tab, button: Locator) -> None:
    """Press it, confirm what wants to be confirmed, and wait for the next page."""
    asks = await button.evaluate("(one) => Boolean(one.form?.dataset.confirm)")
    async with one.page.expect_navigation():
        await button.click()
        if asks:
            await one.page.locator("#confirm[open] [value=yes]").click()
    await one.ready()


def button(one: Tab, name: str) -> Locator:
    return one.page.locator("main").get_by_role("button", name=name, exact=True)


async def last_entry(http: httpx.AsyncClient, **query: str) -> Body:
    answer = accepted(await http.get("/v0/admin/audit", params={"page_size": "1", **query}))
    entry: Body = answer["entries"][0]
    return entry


async def lets_in(small: Running, secret: str) -> bool:
    async with client(small, secret) as with_it:
        return (await with_it.get("/v0/topics")).status_code == 200


async def test_each_page_where_there_is_nothing(browser: Browser, axe: Axe, empty: Running) -> None:
    async with visitor(browser, proxied=False) as nobody, tab(nobody, empty.url) as one:
        texts = {}
        for name in ("keys", "users", "audit"):
            await one.open(f"/admin/{name}")
            assert await one.faults() == []
            await one.keep(f"empty-{name}-1280-light")
            texts[name] = await one.text()
        assert "There are no keys." in texts["keys"]
        assert "There are no users." in texts["users"]
        assert "Nothing was changed yet." in texts["audit"]
        await one.open("/admin/reapers")
        assert await one.page.get_by_role("button", name="Run").count() == 0
        refused = await one.page.request.post(f"{empty.url}/admin/reapers/expiry/run", form={"proof": ""})
        assert refused.status == 403  # nobody needs to sign in, and so nothing is changed


async def test_a_key_is_made_shown_once_rotated_and_revoked(
    one: Tab, axe: Axe, small: Running, http: httpx.AsyncClient
) -> None:
    await one.open("/admin/keys")
    await submit(one, one.page.get_by_role("link", name="Make a key"))
    await one.page.fill("#name", HOSTILE)
    await one.page.fill("#prefixes", "mail.\n!")
    await one.page.check("[name=scope_read]")
    await submit(one, button(one, "Make"))
    assert await one.page.inner_text("#prefixes-fault") == "'!' is not how a topic's name can start."
    assert await one.page.input_value("#name") == HOSTILE
    assert await one.page.is_checked("[name=scope_read]")
    assert await one.looked_at(axe, "small-key-fault") == []
    await one.page.fill("#prefixes", "mail.\npost.")
    await submit(one, button(one, "Make"))
    assert await one.looked_at(axe, "small-key-secret") == []
    secret = await one.page.inner_text("#secret")
    key_id = one.page.url.rpartition("/")[2]
    made = accepted(await http.get(f"/v0/keys/{key_id}"))
    assert (made["name"], made["scopes"], made["prefixes"]) == (HOSTILE, ["read"], ["mail.", "post."])
    assert await lets_in(small, secret)
    await one.page.reload()  # shows the key, and makes no other
    await one.ready()
    assert await one.page.locator("#secret").count() == 0
    assert secret not in await one.page.content()
    assert await one.looked_at(axe, "small-key") == []

    await one.page.select_option("#grace", label="at once")
    await submit(one, button(one, "Rotate"))
    second = await one.page.inner_text("#secret")
    assert (await lets_in(small, secret), await lets_in(small, second)) == (False, True)
    await submit(one, one.page.get_by_role("link", name="The key"))
    await submit(one, button(one, "Revoke"))
    assert not await lets_in(small, second)
    assert await button(one, "Revoke").count() == 0
    trail = await http.get("/v0/admin/audit", params={"subject": key_id})
    entries = trail.json()["entries"]
    assert [entry["action"] for entry in entries] == ["key.revoked", "key.rotated", "key.made"]
    assert {entry["actor_name"] for entry in entries} == {BOSS}
    assert secret not in trail.text
    await one.open("/admin/keys")
    assert await one.page.locator("[data-row]").first.inner_text() == HOSTILE
    assert await one.looked_at(axe, "small-keys") == []


async def test_keys_have_pages(one: Tab, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.people.keys_page.MOST", 2)
    for name in ("a", "b", "c"):
        await make(http, name, ["read"])
    await one.open("/admin/keys")
    assert await one.page.locator("[data-row]").all_inner_texts() == ["c", "b"]
    await submit(one, one.page.get_by_role("link", name="Next"))
    assert (await one.page.locator("[data-row]").all_inner_texts())[0] == "a"


async def test_a_user_is_made_granted_something_changed_and_deleted(
    one: Tab, axe: Axe, small: Running, http: httpx.AsyncClient
) -> None:
    await one.open("/admin/users")
    assert {BOSS, READER} <= set(await one.page.locator("[data-row]").all_inner_texts())
    assert await one.looked_at(axe, "small-users") == []
    await submit(one, one.page.get_by_role("link", name="Make a user"))
    await one.page.fill("#username", BOSS)
    await one.page.fill("#password", PASSWORD)
    await submit(one, button(one, "Make"))
    assert await one.page.inner_text("#username-fault") == f"There is a user '{BOSS}' already."
    assert PASSWORD not in await one.page.content()
    await one.page.fill("#username", "<b>ann</b>")
    await one.page.fill("#password", "short")
    await submit(one, button(one, "Make"))
    assert await one.page.inner_text("#password-fault") == "A password has at least 12 characters."
    await one.page.fill("#password", PASSWORD)
    await submit(one, button(one, "Make"))
    user_id = one.page.url.rpartition("/")[2]
    assert await one.page.inner_text("h1") == "<b>ann</b>"
    assert "This user may do nothing." in await one.text()

    assert await one.page.input_value("#topic_pattern") == ""  # rights in every topic are typed, never left standing
    await submit(one, button(one, "Grant"))
    assert "topic_pattern must be" in await one.page.inner_text("#topic_pattern-fault")
    await one.page.fill("#topic_pattern", "mail*")
    await submit(one, button(one, "Grant"))
    assert "topic_pattern must be" in await one.page.inner_text("#topic_pattern-fault")
    await one.page.select_option("#action", "write")
    await one.page.fill("#topic_pattern", "mail.*")
    await submit(one, button(one, "Grant"))
    assert await one.looked_at(axe, "small-user") == []
    grants = (await http.get(f"/api/users/{user_id}/grants")).json()["items"]
    assert [(grant["action"], grant["topic_pattern"]) for grant in grants] == [("write", "mail.*")]
    await submit(one, one.page.get_by_role("button", name="Take back"))
    assert (await http.get(f"/api/users/{user_id}/grants")).json()["items"] == []

    await one.page.fill("#username", "anna")
    await one.page.fill("#password", "another password entirely")
    await one.page.check("[name=is_admin]")
    await submit(one, button(one, "Change"))
    assert await one.page.inner_text("h1") == "anna"
    entry = await last_entry(http, subject=user_id)
    assert entry["detail"]["is_admin"] == {"from": False, "to": True}
    assert entry["actor_name"] == BOSS
    login = {"username": "anna", "password": "another password entirely"}
    assert (await http.post("/api/auth/login", json=login)).status_code == 200
    await submit(one, button(one, "Delete"))
    assert one.page.url == f"{small.url}/admin/users"
    assert "anna" not in await one.text()
    assert (await last_entry(http, subject=user_id))["action"] == "user.deleted"


async def test_nobody_deletes_themselves(one: Tab) -> None:
    await one.open("/admin/users")
    await submit(one, one.page.get_by_role("link", name=BOSS, exact=True))
    await submit(one, button(one, "Delete"))
    assert await one.page.inner_text("main [role=alert]") == "Nobody deletes themselves."


async def test_a_reaper_is_run_and_says_what_it_moved(one: Tab, axe: Axe, http: httpx.AsyncClient) -> None:
    await one.open("/admin/reapers")
    row = one.page.locator("tr", has=one.page.locator("#run-delete"))
    assert "never ran" in await row.inner_text()
    await submit(one, one.page.locator("#run-delete"))
    await row.get_by_text("done").wait_for()
    assert "never ran" not in await row.inner_text()
    await one.page.fill("#schedule", "every day")
    await submit(one, button(one, "Set"))
    assert await one.page.input_value("#schedule") == "every day"
    assert await one.page.locator("#schedule-fault").count() == 1
    assert await one.looked_at(axe, "small-reapers") == []
    await one.page.fill("#schedule", "30 3 * * *")
    await submit(one, button(one, "Set"))
    assert "30 3 * * *" in await row.inner_text()
    assert (await http.get("/api/admin/delete-reaper/schedule")).json()["schedule"] == "30 3 * * *"
    assert (await last_entry(http, action="schedule.changed"))["actor_name"] == BOSS


async def test_webhooks_say_who_is_told_and_what_was_given_up(
    one: Tab, axe: Axe, http: httpx.AsyncClient, small: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small.context.engine.kept, "ttl", 0.1)
    await one.open("/admin/webhooks")
    assert "Nobody was told anything yet." in await one.text()
    assert "No topic has a webhook." in await one.text()
    queue = Topic(http, "hooked")
    await queue.put(webhook={"url": "http://127.0.0.1:9/<i>", "on": ["completed"], "secret": "a long and a random one"})
    await queue.add(1)
    await queue.ack("n", [(await queue.take())["$seq"]])
    given_up = one.page.locator(".figures div", has_text="Given up").locator(".count")
    await expect(given_up).to_have_text("1", timeout=PATIENCE_MS)  # what is no public address fails at once
    await one.page.locator("td", has_text="which is not public").first.wait_for()
    row = one.page.locator("tbody tr", has=one.page.locator("#row-hooked"))
    await row.wait_for()  # as of the last look at all topics
    assert (await row.locator("td").all_inner_texts())[1:] == ["http://127.0.0.1:9/<i>", "completed"]
    assert "random" not in await one.page.content()
    assert await one.looked_at(axe, "small-webhooks") == []


async def test_the_trail_is_filtered_by_its_address_and_says_what_was_another(
    one: Tab, axe: Axe, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Topic(http, "trail")
    await queue.put(lease_ms=1_000)
    await queue.put(lease_ms=2_000)
    await http.post("/v0/keys", json={"name": HOSTILE, "scopes": ["read"]})
    monkeypatch.setattr("app.features.audit.page.MOST", 6)  # axe takes seconds for fifty
    await one.open("/admin/audit")
    assert await one.looked_at(axe, "small-audit") == []
    assert HOSTILE in await one.text()
    await one.page.fill("#subject", "trail")
    await one.page.fill("#since", "2026-01-01T00:00")
    await submit(one, button(one, "Filter"))
    assert "subject=trail" in one.page.url
    rows = one.page.locator("tbody tr")
    assert await rows.count() == 2
    assert (await rows.first.locator(".told").inner_text()).split() == ["lease_ms", "1000", "became", "2000"]
    await rows.locator("summary").click()  # of what it was made with
    assert "config.lease_ms" in await rows.last.inner_text()
    await submit(one, rows.first.get_by_role("link", name="topic.changed"))
    assert await one.page.locator("tbody tr").count() > 0
    await one.open("/admin/audit?since=2999-01-01T00:00")
    assert "Nothing in the trail is like that." in await one.text()
    await one.open("/admin/audit?since=x&subject=kept")
    assert "This is no time" in await one.page.inner_text("#since-fault")
    assert await one.page.input_value("#subject") == "kept"
    await one.open("/admin/audit?action=fly")
    assert "action must be one of" in await one.text()

    monkeypatch.setattr("app.features.audit.page.MOST", 1)
    await one.open("/admin/audit?subject=trail")
    assert await one.page.locator("tbody tr").count() == 1
    await submit(one, one.page.get_by_role("link", name="Next"))
    assert "topic.created" in await one.page.inner_text("tbody")
    assert await one.page.get_by_role("link", name="Next").count() == 0


async def test_a_trail_that_takes_too_long_to_search_says_so(
    small: Running, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.audit.page.SECONDS", 0.2)
    async with small.context.pools.rest.acquire() as db, db.transaction():
        await db.execute("LOCK TABLE holdfast.audit")  # nobody else can read it meanwhile
        answer = await http.get("/admin/audit")
    assert answer.status_code == 200
    assert "This takes too long to find." in answer.text


async def test_who_reads_sees_nothing_of_this_and_changes_nothing(guest: BrowserContext, small: Running) -> None:
    answer = await guest.request.post(
        f"{small.url}/admin/sign-in", form={"name": READER, "secret": PASSWORD}, headers={"origin": small.url}
    )
    assert answer.ok
    async with tab(guest, small.url) as one:
        await one.open("/admin/topics/mail.outbound")
        assert await one.page.locator("nav[aria-label=Pages] a").all_inner_texts() == ["Home", "Topics"]
        proof = await one.page.input_value("[name=proof] >> nth=0")
    for name in (*PAGES, "topics/orders/asof"):
        assert (await guest.request.get(f"{small.url}/admin/{name}")).status == 403, name
    for name in (
        *("keys/new", "keys/key_0123456789abcdef/rotate", "keys/key_0123456789abcdef/revoke"),
        *("users/new", "users/x", "users/x/delete", "users/x/grants", "users/x/grants/y/revoke"),
        *("reapers/expiry/run", "reapers/delete/schedule"),
    ):
        refused = await guest.request.post(
            f"{small.url}/admin/{name}", form={"proof": proof}, headers={"origin": small.url}
        )
        assert refused.status == 403, name


async def test_an_admin_of_some_topics_sees_their_part(small: Running, http: httpx.AsyncClient) -> None:
    made = await make(http, "of mail", ["read", "admin"], prefixes=["mail."])
    mine = await make(http, "mine", ["read"], prefixes=["mail.in"])
    async with client(small, made["secret"]) as some:
        for name in PAGES:
            assert (await some.get(f"/admin/{name}")).status_code == (403 if name in OF_ALL_TOPICS else 200), name
        keys = (await some.get("/admin/keys")).text
        assert mine["id"] in keys
        assert (await some.get(f"/admin/keys/{made['id']}")).status_code == 200
        outside = (await make(http, "outside", ["read"]))["id"]
        assert outside not in keys
        assert (await some.get(f"/admin/keys/{outside}")).status_code == 404
        assert (await some.post(f"/admin/keys/{outside}/revoke", data={"x": "1"})).status_code == 404
        trail = (await some.get("/admin/audit")).text
        assert "mail.outbound" in trail
        assert "orders" not in trail
        more = await some.post("/admin/keys/new", data={"name": "more", "scope_delete": "on", "prefixes": "mail."})
        assert more.status_code == 403
        assert "may do more than itself" in more.text
        assert 'value="more"' in more.text


async def test_who_holds_back_vacuum_is_found_from_home(
    one: Tab, small: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.base.db.health.OLD_SECONDS", 0.5)
    url = small.context.settings.database_url
    assert url is not None
    report = await asyncpg.connect(url.get_secret_value(), server_settings={"application_name": "nightly report"})
    clicks = 0

    async def click(what: Locator) -> None:
        nonlocal clicks
        clicks += 1
        await submit(one, what)

    try:
        await report.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        await one.open("/admin/")
        await click(one.page.locator(".figures a[href='/admin/horizon']"))
        holder = one.page.locator("tbody.one.old", has_text="nightly report")
        await holder.wait_for()  # the page comes anew until then
        assert "idle in transaction" in await holder.inner_text()
        command = await holder.locator("code").inner_text()
        assert command == f"SELECT pg_terminate_backend({report.get_server_pid()});"
        async with small.context.pools.rest.acquire() as db:
            await db.execute(command)
        await holder.wait_for(state="detached")
    finally:
        report.terminate()
    assert clicks <= 6


async def test_what_the_api_made_is_what_the_pages_show(one: Tab, http: httpx.AsyncClient) -> None:
    user = await add_user(http, "read mail.*", "consume orders")
    await one.open(f"/admin/users/{user['id']}")
    cells = await one.page.locator("tbody td:nth-child(-n+2)").all_inner_texts()
    assert cells == ["consume", "orders", "read", "mail.*"]
    tenant = await make(http, "of acme", ["read"], tenant="acme", expires_in_ms=3_600_000)
    await one.open(f"/admin/keys/{tenant['id']}")
    assert "acme" in await one.text()
    assert "for ever" not in await one.text()
    assert not (await one.page.request.get(one.page.url, headers=bearer("unknown"))).ok
