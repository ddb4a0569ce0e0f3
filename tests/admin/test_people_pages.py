"""Keys and users, as an admin makes, changes and ends them at the pages, and as an admin of some topics sees them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.admin.conftest import BOSS, HOSTILE, READER
from tests.admin.operator import Operator, Page, at_the_pages
from tests.api.dialect import Topic, accepted
from tests.api.keyring import bearer, client, make
from tests.api.people import PASSWORD, add_user
from tests.conftest import Running

PAGES = ["reapers", "reapers/expiry", "webhooks", "keys", "keys/new", "users", "users/new", "audit"]
OF_ALL_TOPICS = {"reapers", "reapers/expiry", "webhooks", "users", "users/new"}


async def lets_in(service: Running, secret: str) -> bool:
    async with client(service, secret) as with_it:
        return (await with_it.get("/v0/topics")).status_code == 200


def secret_on(page: Page) -> str:
    (secret,) = page.all(".//*[@id='secret']")
    return secret


async def test_an_empty_service_has_none(empty: Running) -> None:
    async with httpx.AsyncClient(base_url=empty.url) as http:
        nobody = Operator(http)
        for name, said in (
            ("keys", "No keys yet."),
            ("users", "No users yet."),
            ("audit", "No changes yet."),
            ("webhooks", "No webhooks were sent yet."),
            ("webhooks", "No topic has a webhook."),
        ):
            assert said in (await nobody.open(name)).text
        assert (await nobody.open("reapers")).button("Run") is None
        assert (await http.post("/admin/reapers/expiry/run", data={"proof": ""})).status_code == 403


async def test_a_key_is_made_shown_once_rotated_and_revoked(
    boss: Operator, http: httpx.AsyncClient, service: Running
) -> None:
    page = await boss.follow(await boss.open("keys"), "New key")
    page = await boss.press(page, "Create", name=HOSTILE, prefixes="mail.\n!", scope_read="on", status=400)
    assert page.fault("prefixes") == "No topic's name can start with '!'."
    assert page.value("name") == HOSTILE
    page = await boss.press(page, "Create", prefixes="mail.\npost.")
    secret, page = secret_on(page), await boss.follow(page, "Back to the key")
    key_id = page.path.rpartition("/")[2]
    made = accepted(await http.get(f"/v0/keys/{key_id}"))
    assert (made["name"], made["scopes"], made["prefixes"]) == (HOSTILE, ["read"], ["mail.", "post."])
    assert await lets_in(service, secret)
    assert secret not in page.html
    second = secret_on(await boss.press(page, "Rotate", grace="0"))
    assert (await lets_in(service, secret), await lets_in(service, second)) == (False, True)
    page = await boss.press(page, "Revoke")
    assert not await lets_in(service, second)
    assert page.button("Revoke") is None
    trail = await http.get("/v0/admin/audit", params={"subject": key_id})
    entries = accepted(trail)["entries"]
    assert [entry["action"] for entry in entries] == ["key.revoked", "key.rotated", "key.made"]
    assert {entry["actor_name"] for entry in entries} == {BOSS}
    assert secret not in trail.text


async def test_a_key_may_be_of_a_tenant_for_some_days_and_see_no_payloads(
    boss: Operator, http: httpx.AsyncClient
) -> None:
    page = await boss.open("keys/new")
    wanted: dict[str, Any] = {"name": "sealed", "scope_read": "on", "hides_payloads": "on", "days": "3"}
    page = await boss.follow(await boss.press(page, "Create", tenant="acme", **wanted), "Back to the key")
    made = accepted(await http.get(f"/v0/keys/{page.path.rpartition('/')[2]}"))
    assert (made["name"], made["payloads"], made["tenant"]) == ("sealed", "hidden", "acme")
    assert "acme" in page.text
    assert "Expires never" not in page.text
    assert "payloads hidden" in (await boss.open("keys")).row("sealed")


async def test_keys_have_pages(boss: Operator, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.people.keys_page.MOST", 2)
    for name in ("a", "b", "c"):
        await make(http, name, ["read"])
    page = await boss.open("keys")
    assert page.rows == ["c", "b"]
    assert (await boss.follow(page, "Next")).rows[0] == "a"


async def test_a_user_is_made_granted_something_changed_and_deleted(boss: Operator, http: httpx.AsyncClient) -> None:
    page = await boss.open("users")
    assert {BOSS, READER} <= set(page.rows)
    page = await boss.follow(page, "New user")
    page = await boss.press(page, "Create", username=BOSS, password=PASSWORD, status=409)
    assert page.fault("username") == f"A user named '{BOSS}' already exists."
    assert PASSWORD not in page.html
    page = await boss.press(page, "Create", username="<b>ann</b>", password="short", status=400)
    assert page.fault("password") == "A password must have at least 12 characters."
    page = await boss.press(page, "Create", password=PASSWORD)
    user_id = page.path.rpartition("/")[2]
    assert page.all(".//h1") == ["<b>ann</b>"]
    assert "This user may do nothing until you add a grant." in page.text

    assert page.value("topic_pattern") == "", "rights in every topic are typed, never left standing"
    for pattern in ("", "mail*"):
        page = await boss.press(page, "Grant", topic_pattern=pattern, status=400)
        assert "topic_pattern must be" in page.fault("topic_pattern")
    page = await boss.press(page, "Grant", action="write", topic_pattern="mail.*")
    grants = (await http.get(f"/api/users/{user_id}/grants")).json()["items"]
    assert [(grant["action"], grant["topic_pattern"]) for grant in grants] == [("write", "mail.*")]
    page = await boss.press(page, "Revoke")
    assert (await http.get(f"/api/users/{user_id}/grants")).json()["items"] == []

    login: dict[str, Any] = {"username": "anna", "password": "another password entirely"}
    page = await boss.press(page, "Change", **login, is_admin="on")
    assert page.all(".//h1") == ["anna"]
    (entry, *_) = accepted(await http.get("/v0/admin/audit", params={"subject": user_id}))["entries"]
    assert (entry["detail"]["is_admin"], entry["actor_name"]) == ({"from": False, "to": True}, BOSS)
    assert (await http.post("/api/auth/login", json=login)).status_code == 200
    page = await boss.press(page, "Delete")
    assert page.path == "/admin/users"
    assert "anna" not in page.rows
    (entry, *_) = accepted(await http.get("/v0/admin/audit", params={"subject": user_id}))["entries"]
    assert entry["action"] == "user.deleted"
    page = await boss.follow(page, BOSS)
    assert "Users can't delete themselves." in (await boss.press(page, "Delete", status=400)).text


async def test_grants_that_the_api_made_are_shown(boss: Operator, http: httpx.AsyncClient) -> None:
    user = await add_user(http, "read mail.*", "consume orders")
    page = await boss.open(f"users/{user['id']}")
    assert [row[:2] for row in page.table] == [["consume", "orders"], ["read", "mail.*"]]


async def test_an_admin_of_some_topics_sees_their_part(service: Running, http: httpx.AsyncClient) -> None:
    made = await make(http, "of mail", ["read", "admin"], prefixes=["mail."])
    mine = await make(http, "mine", ["read"], prefixes=["mail.in"])
    outside = (await make(http, "outside", ["read"]))["id"]
    async with at_the_pages(service, "", made["secret"]) as some:
        for name in PAGES:
            await some.open(name, 403 if name in OF_ALL_TOPICS else 200)
        keys = (await some.open("keys")).html
        assert mine["id"] in keys
        assert outside not in keys
        await some.open(f"keys/{made['id']}")
        await some.open(f"keys/{outside}", 404)
        trail = (await some.open("audit")).text
        assert "mail.outbound" in trail
        assert "orders" not in trail
        more = {"name": "more", "scope_delete": "on", "prefixes": "mail."}
        page = await some.press(await some.open("keys/new"), "Create", **more, status=403)
        assert "a key with more rights than its own" in page.text
        assert page.value("name") == "more"
    revoked = await http.post(f"/admin/keys/{outside}/revoke", data={"x": "1"}, headers=bearer(made["secret"]))
    assert revoked.status_code == 404


async def test_who_reads_some_topics_sees_those_and_no_other_pages(reader: Operator) -> None:
    page = await reader.open("topics")
    assert page.rows == ["mail.outbound"]
    home = await reader.open("")
    assert [one.get("href") for one in home.tree.iterfind(".//nav[@aria-label='Pages']/a")] == [
        "/admin/",
        "/admin/topics",
    ]
    assert "orders" not in home.text
    assert (await reader.open("topics/mail.outbound")).button("Resume") is None
    page = await reader.open("topics/orders", 403)
    assert "This user has no grant that allows this on this topic." in page.text


async def test_payloads_that_are_hidden_can_be_left_as_they_are(service: Running, queue: Topic) -> None:
    """What is not seen can be changed but for its payload, and says why it is not seen."""
    await queue.append({"data": {"card": "4711"}, "meta": {"of": "ada"}})
    hidden = await make(queue.http, "on call", ["read", "write"], payloads="hidden")
    async with at_the_pages(service, "", hidden["secret"]) as guest:
        page = await guest.open(f"topics/{queue.name}/jobs/1")
        assert "4711" not in page.html
        assert page.all(".//*[@id='to-data']") == page.all(".//*[@id='command']") == []
        await guest.press(page, "Change", priority="3")
    changed = accepted(await queue.http.get(f"{queue.path}/jobs/1"))
    assert (changed["priority"], changed["data"]) == (3, {"card": "4711"})
