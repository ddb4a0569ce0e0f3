"""/api/users and their grants: what they take, answer and refuse, and what is written down of it."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Body, accepted, every_page, refused
from tests.api.keyring import ALL, Services, bearer, client, make
from tests.api.messages.client import done
from tests.api.people import PASSWORD, add_user, basic

if TYPE_CHECKING:
    from tests.conftest import Running

NOBODY = str(uuid.UUID(int=7))


@pytest.fixture(scope="module")
async def guarded(services: Services) -> Running:
    return await services.start(api_keys="root", bcrypt_cost=10)


async def test_a_users_life(root: httpx.AsyncClient, services: Services) -> None:
    made = await add_user(root, name="ann")
    assert set(made) == {"id", "username", "is_admin", "created_at", "updated_at"}
    assert (made["username"], made["is_admin"]) == ("ann", False)
    assert str(uuid.UUID(made["id"])) == made["id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", made["created_at"])
    path = f"/api/users/{made['id']}"
    assert made in done(await root.get("/api/users"))["items"]
    changed = done(await root.put(path, json={"is_admin": True}))
    assert changed["is_admin"] is True
    assert changed["updated_at"] > made["updated_at"]
    assert done(await root.put(path, json={"username": "anna", "is_admin": False}))["username"] == "anna"
    assert done(await root.put(path, json={"password": "another long password"}))["username"] == "anna"
    done(await root.put(path, json={}))
    grant = done(await root.post(f"{path}/grants", json={"action": "read", "topic_pattern": "mail.*"}), 201)
    assert set(grant) == {"id", "user_id", "action", "topic_pattern", "created_at"}
    assert (grant["user_id"], grant["action"], grant["topic_pattern"]) == (made["id"], "read", "mail.*")
    everything = done(await root.post(f"{path}/grants", json={"action": "admin"}), 201)
    assert everything["topic_pattern"] == "*"
    assert done(await root.get(f"{path}/grants")) == {"items": [everything, grant]}
    done(await root.delete(f"{path}/grants/{everything['id']}"), 204)
    done(await root.delete(path), 204)
    assert "anna" not in str(done(await root.get("/api/users")))
    await add_user(root, name="anna")  # the name is free again
    entries = accepted(await root.get("/v0/admin/audit", params={"subject": made["id"]}))["entries"]
    assert [(entry["action"], entry["detail"]) for entry in reversed(entries)] == [
        ("user.made", {"username": "ann", "is_admin": False}),
        ("user.changed", {"username": "ann", "is_admin": {"from": False, "to": True}}),
        ("user.changed", {"username": {"from": "ann", "to": "anna"}, "is_admin": {"from": True, "to": False}}),
        ("user.changed", {"username": "anna", "password": "changed"}),
        ("grant.made", {"username": "anna", "action": "read", "topic_pattern": "mail.*"}),
        ("grant.made", {"username": "anna", "action": "admin", "topic_pattern": "*"}),
        ("grant.revoked", {"username": "anna", "action": "admin", "topic_pattern": "*"}),
        ("user.deleted", {"username": "anna"}),
    ]
    for table in ("users", "audit"):
        kept = str([dict(row) for row in await services.sql(f"SELECT * FROM holdfast.{table}")])
        assert PASSWORD not in kept
        assert "another long" not in kept
    (row,) = await services.sql("SELECT password_hash FROM holdfast.users WHERE id = $1", made["id"])
    assert row["password_hash"] is None


async def test_who_changes_a_user_is_written_down(root: httpx.AsyncClient) -> None:
    boss = await add_user(root, name="boss", is_admin=True)
    made = await add_user(root, headers=basic("boss"))
    (entry,) = accepted(await root.get("/v0/admin/audit", params={"subject": made["id"]}))["entries"]
    assert (entry["actor"], entry["actor_name"], entry["address"]) == (boss["id"], "boss", "127.0.0.1")


async def test_what_is_no_user_or_no_grant_is_a_400(root: httpx.AsyncClient) -> None:
    made = await add_user(root)
    before = done(await root.get("/api/users"))
    for name in ("", "a:b", "a\nb", "ü" * 65):
        refused(await root.post("/api/users", json={"username": name, "password": PASSWORD}), 400, "invalid_request")
    for password, said in (("eleven char", "12"), ("x" * 73, "72 bytes")):  # which is refused and not cut
        answer = await root.post("/api/users", json={"username": "u", "password": password})
        assert said in refused(answer, 400, "invalid_request")["message"]
    assert done(await root.get("/api/users")) == before
    for body in ({"action": "READ"}, *({"action": "read", "topic_pattern": p} for p in ("", "mail*", "a b"))):
        refused(await root.post(f"/api/users/{made['id']}/grants", json=body), 400, "invalid_request")


async def test_a_name_and_a_grant_are_there_once(root: httpx.AsyncClient) -> None:
    one, two = [await add_user(root, "read mail.*") for _ in range(2)]
    body = {"username": one["username"], "password": PASSWORD}
    refused(await root.post("/api/users", json=body), 409, "already_exists")
    refused(await root.put(f"/api/users/{two['id']}", json={"username": one["username"]}), 409, "already_exists")
    grant = {"action": "read", "topic_pattern": "mail.*"}
    refused(await root.post(f"/api/users/{one['id']}/grants", json=grant), 409, "already_exists")
    answers = await asyncio.gather(*(root.post("/api/users", json={**body, "username": "same"}) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]


async def test_an_unknown_user_or_grant_is_a_404(root: httpx.AsyncClient) -> None:
    made, other = await add_user(root), await add_user(root, "read")
    [foreign] = done(await root.get(f"/api/users/{other['id']}/grants"))["items"]
    refused(await root.delete(f"/api/users/{made['id']}/grants/{foreign['id']}"), 404, "not_found")
    for user_id in (NOBODY, "x", "a" * 300, f"{NOBODY}0", "%20"):
        path = f"/api/users/{user_id}"
        refused(await root.put(path, json={"password": PASSWORD}), 404, "not_found")
        refused(await root.delete(path), 404, "not_found")
        refused(await root.get(f"{path}/grants"), 404, "not_found")
        refused(await root.post(f"{path}/grants", json={"action": "read"}), 404, "not_found")
        refused(await root.delete(f"{path}/grants/{NOBODY}"), 404, "not_found")
        refused(await root.delete(f"/api/users/{made['id']}/grants/{user_id}"), 404, "not_found")


async def test_nobody_deletes_themselves_nor_ends_being_an_admin_by_mistake(
    guarded: Running, root: httpx.AsyncClient
) -> None:
    me = await add_user(root, is_admin=True)
    async with client(guarded) as http:
        http.headers.update(basic(me["username"]))
        refused(await http.delete(f"/api/users/{me['id']}"), 400, "invalid_request")
        refused(await http.put(f"/api/users/{me['id']}", json={"is_admin": False}), 400, "invalid_request")
        done(await http.put(f"/api/users/{me['id']}", json={"is_admin": True}))
    done(await root.delete(f"/api/users/{me['id']}"), 204)


async def test_users_come_in_pages(root: httpx.AsyncClient) -> None:
    names = {(await add_user(root))["username"] for _ in range(3)}
    seen = [user["username"] for user in await every_page(root, "/api/users", "items")]
    assert seen == sorted(set(seen))
    assert names <= set(seen)


async def test_nobody_makes_a_user_who_may_do_more(guarded: Running, root: httpx.AsyncClient) -> None:
    """Neither a key nor a user: nor changes one, since a password given is a way in."""
    lesser = await make(root, "lesser", ["admin", "delete"])
    boss, reader = await add_user(root, is_admin=True), await add_user(root, "read")
    granted = await add_user(root, "admin")
    for headers in (bearer(lesser["secret"]), basic(granted["username"])):
        async with client(guarded) as http:
            http.headers.update(headers)
            body: Body = {"username": "more", "password": PASSWORD, "is_admin": True}
            refused(await http.post("/api/users", json=body), 403, "forbidden")
            mine = await add_user(http, "admin mail.*")
            path = f"/api/users/{mine['id']}"
            refused(await http.put(path, json={"is_admin": True}), 403, "forbidden")
            for action in ("read", "write", "consume"):
                refused(await http.post(f"{path}/grants", json={"action": action}), 403, "forbidden")
            for other in (boss, reader):
                path = f"/api/users/{other['id']}"
                refused(await http.put(path, json={"password": PASSWORD}), 403, "forbidden")
                refused(await http.delete(path), 403, "forbidden")
            assert (await http.post("/v0/keys", json={"name": "k", "scopes": ALL})).status_code == 403


async def test_a_key_or_user_of_some_topics_manages_no_users(root: httpx.AsyncClient) -> None:
    some = await make(root, "some", prefixes=["mail."])
    granted = await add_user(root, "admin mail.*", "read *", "write *")
    for headers in (bearer(some["secret"]), basic(granted["username"])):
        refused(await root.get("/api/users", headers=headers), 403, "forbidden")
        body = {"username": "u", "password": PASSWORD}
        refused(await root.post("/api/users", json=body, headers=headers), 403, "forbidden")


async def test_a_user_has_a_bounded_number_of_grants(root: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.signin.users.MOST_GRANTS", 2)
    made = await add_user(root, "read a", "read b")
    refused(await root.post(f"/api/users/{made['id']}/grants", json={"action": "read"}), 429, "throttled")
