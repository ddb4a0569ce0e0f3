"""Keys kept in the database: made, listed, rotated and revoked, and what that opens and closes."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from app.base.keys import digest_of
from app.http.signin.directory import Directory
from tests.api.dialect import Body, Topic, accepted, eventually, every_page, refused, until_waiting
from tests.api.events import working
from tests.api.keyring import Services, bearer, client, make

if TYPE_CHECKING:
    from tests.conftest import Running


async def status(http: httpx.AsyncClient, key: Body) -> int:
    return (await http.get("/v0/topics", headers=bearer(key["secret"]))).status_code


async def test_a_key_is_made_used_and_never_shown_again(root: httpx.AsyncClient, services: Services) -> None:
    made = await make(root, "deploys", ["write", "read"], prefixes=["mail.", "post."], expires_in_ms=60_000)
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}", made["secret"])
    assert re.fullmatch(r"key_[0-9a-f]{16}", made["id"])
    assert (made["name"], made["scopes"], made["prefixes"]) == ("deploys", ["read", "write"], ["mail.", "post."])
    assert made["expires_at"] - made["created_at"] == pytest.approx(60_000, abs=2_000)
    assert (made["state"], made["rotated_at"], made["revoked_at"], made["old_secret_until"]) == ("live", *[None] * 3)
    assert await status(root, made) == 200
    listed = accepted(await root.get("/v0/keys"))["keys"]
    one = accepted(await root.get(f"/v0/keys/{made['id']}"))
    del one["performance"], made["performance"]
    secret = made.pop("secret")
    assert one == made == next(key for key in listed if key["id"] == made["id"])
    for table in ("api_keys", "audit"):
        kept = str([dict(row) for row in await services.sql(f"SELECT * FROM holdfast.{table}")])
        assert made["id"] in kept
        assert secret not in kept
    (row,) = await services.sql("SELECT digest FROM holdfast.api_keys WHERE id = $1", made["id"])
    assert row["digest"] == digest_of(secret.encode())


async def test_nonsense_makes_no_key(root: httpx.AsyncClient, services: Services) -> None:
    before = await services.sql("SELECT count(*) FROM holdfast.api_keys")
    for fields, why in (
        ({"scopes": []}, "scopes"),
        ({"scopes": ["rw"]}, "scopes"),
        ({"name": "a\nb"}, "name"),
        ({"prefixes": [""]}, "start"),
        ({"prefixes": ["a b"]}, "start"),
        ({"prefixes": ["a"] * 101}, "100 prefixes"),
        ({"expires_in_ms": 0}, "expires_in_ms"),
        ({"secret": "mine"}, "secret"),
    ):
        answer = await root.post("/v0/keys", json={"name": "k", "scopes": ["read"], **fields})
        assert why in refused(answer, 400, "invalid_request")["message"]
    assert await services.sql("SELECT count(*) FROM holdfast.api_keys") == before
    for key_id in ("key_0000000000000000", "key_", "%00", "key_0000000000000000%0a"):
        refused(await root.get(f"/v0/keys/{key_id}"), 404, "not_found")
        refused(await root.post(f"/v0/keys/{key_id}/rotate"), 404, "not_found")


async def test_pages_have_every_key_once_the_newest_first(root: httpx.AsyncClient) -> None:
    made = [(await make(root, f"page {i}"))["id"] for i in range(5)]
    keys = await every_page(root, "/v0/keys", "keys")
    assert "secret" not in str(keys).replace("old_secret_until", "")
    seen = [key["id"] for key in keys]
    assert seen[:5] == made[::-1]
    assert len(seen) == len(set(seen))


async def test_a_revoked_key_opens_nothing_from_then_on(root: httpx.AsyncClient) -> None:
    made = await make(root)
    assert await status(root, made) == 200
    gone = accepted(await root.delete(f"/v0/keys/{made['id']}"))
    assert await status(root, made) == 401
    assert gone["state"] == "revoked"
    again = accepted(await root.delete(f"/v0/keys/{made['id']}"))
    assert again["revoked_at"] == gone["revoked_at"]
    error = refused(await root.post(f"/v0/keys/{made['id']}/rotate"), 409, "key_not_live")
    assert error["detail"] == {"id": made["id"], "state": "revoked"}


async def test_the_secret_before_is_good_for_the_grace(root: httpx.AsyncClient) -> None:
    first = await make(root)
    path = f"/v0/keys/{first['id']}"
    second = accepted(await root.post(f"{path}/rotate", json={"grace_ms": 3_000}))
    assert second["old_secret_until"] - second["rotated_at"] == pytest.approx(3_000, abs=50)
    assert second["rotated_at"] >= first["created_at"]
    assert [await status(root, key) for key in (first, second)] == [200, 200]

    async def over() -> bool:
        return await status(root, first) == 401

    await eventually(over)
    third = accepted(await root.post(f"{path}/rotate", json={"grace_ms": 60_000}))
    fourth = accepted(await root.post(f"{path}/rotate", json={"grace_ms": 60_000}))
    assert [await status(root, key) for key in (second, third, fourth)] == [401, 200, 200]
    fifth = accepted(await root.post(f"{path}/rotate"))
    assert [await status(root, key) for key in (fourth, fifth)] == [401, 200]
    accepted(await root.post(f"{path}/rotate", json={"grace_ms": 60_000}))
    assert accepted(await root.delete(path))["old_secret_until"] is None
    assert await status(root, fifth) == 401


async def test_a_key_expires_by_itself(root: httpx.AsyncClient) -> None:
    made = await make(root, expires_in_ms=3_000)
    assert await status(root, made) == 200

    async def over() -> bool:
        return await status(root, made) == 401

    await eventually(over)
    assert accepted(await root.get(f"/v0/keys/{made['id']}"))["state"] == "expired"
    refused(await root.post(f"/v0/keys/{made['id']}/rotate"), 409, "key_not_live")


async def test_a_key_makes_none_that_may_do_more(root: httpx.AsyncClient) -> None:
    maker = await make(root, "maker", ["read", "admin"], prefixes=["mail."])
    for scopes, prefixes, allowed in (
        (["read", "admin"], ["mail."], True),
        (["read"], ["mail.x", "mail."], True),
        (["read", "write"], ["mail."], False),
        (["read"], [], False),
        (["read"], ["mail"], False),
        (["read"], ["mail.", "post."], False),
    ):
        body = {"name": "made", "scopes": scopes, "prefixes": prefixes}
        answer = await root.post("/v0/keys", json=body, headers=bearer(maker["secret"]))
        if allowed:
            assert accepted(answer)["created_by"] == maker["id"]
        else:
            refused(answer, 403, "forbidden")


async def test_a_key_neither_sees_nor_touches_one_that_may_do_more(root: httpx.AsyncClient) -> None:
    maker = await make(root, "maker", ["read", "admin"], prefixes=["mail."])
    headers = bearer(maker["secret"])
    within = await make(root, "within", ["read"], prefixes=["mail.a"])
    beyond = [
        await make(root, "more scopes", ["read", "delete"], prefixes=["mail."]),
        await make(root, "every topic", ["read"]),
        await make(root, "other topics", ["read"], prefixes=["mail.", "post."]),
    ]
    listed = {key["id"] for key in accepted(await root.get("/v0/keys", headers=headers))["keys"]}
    assert {maker["id"], within["id"]} <= listed
    for key in beyond:
        assert key["id"] not in listed
        path = f"/v0/keys/{key['id']}"
        refused(await root.get(path, headers=headers), 404, "not_found")
        refused(await root.post(f"{path}/rotate", headers=headers), 404, "not_found")
        refused(await root.delete(path, headers=headers), 404, "not_found")
        assert await status(root, key) == 200
    accepted(await root.post(f"/v0/keys/{within['id']}/rotate", headers=headers))
    accepted(await root.delete(f"/v0/keys/{within['id']}", headers=headers))


async def test_the_number_of_live_keys_is_bounded(root: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in accepted(await root.get("/v0/keys?page_size=1000"))["keys"]:
        accepted(await root.delete(f"/v0/keys/{key['id']}"))
    monkeypatch.setattr("app.http.signin.api_keys.MOST_KEYS", 1)
    extra = await make(root)
    error = refused(await root.post("/v0/keys", json={"name": "k", "scopes": ["read"]}), 429, "throttled")
    assert error["detail"] == {"limit": "max_keys", "max": 1}
    accepted(await root.delete(f"/v0/keys/{extra['id']}"))
    await make(root)


async def test_a_key_made_elsewhere_works_at_its_first_use(services: Services, root: httpx.AsyncClient) -> None:
    """Without Redis: an unknown key is looked for in the database, at most once a second."""
    other = await services.start(api_keys="root")
    async with client(other) as there:
        made = await make(root)

        async def known() -> bool:
            return await status(there, made) == 200

        await eventually(known)
        await asyncio.sleep(1.1)  # the time within which it would not look again
        # A body that was sent with the first use is read once, by the run of the route that counts.
        headers = bearer((await make(root))["secret"])
        put = await there.put("/v0/topics/later", json={"type": "queue", "lease_ms": 777}, headers=headers)
        assert accepted(put)["config"]["lease_ms"] == 777


async def test_strangers_make_the_service_ask_once_a_second_at_most(services: Services) -> None:
    service = await services.start(api_keys="root")
    directory = service.context.access.directory
    async with client(service) as http:
        asked, began = directory.loads, time.monotonic()
        answers = await asyncio.gather(*(http.get("/v0/topics", headers=bearer(f"guess-{i}")) for i in range(50)))
        assert {answer.status_code for answer in answers} == {401}
        assert directory.loads - asked <= 2 + (time.monotonic() - began)


async def test_a_stream_ends_with_its_key(root: httpx.AsyncClient, guarded: Running, topic: str) -> None:
    queue = Topic(root, topic)
    await queue.put()
    revoked, rotated, kept = [await make(root, name, ["read", "write"]) for name in ("revoked", "rotated", "kept")]
    async with (
        client(guarded, revoked["secret"]) as one,
        client(guarded, rotated["secret"]) as two,
        client(guarded, kept["secret"]) as three,
        working(Topic(one, topic), "a") as first,
        working(Topic(two, topic), "b") as second,
        working(Topic(three, topic), "c") as third,
    ):
        accepted(await root.delete(f"/v0/keys/{revoked['id']}"))
        accepted(await root.post(f"/v0/keys/{rotated['id']}/rotate"))
        for stream in (first, second):
            error = await stream.error()
            assert (error["code"], error["error"], error["topic"]) == (401, "unauthorized", topic)
            assert await stream.frame() is None
        await queue.add(1)
        await third.job()


async def test_who_waits_for_work_with_a_revoked_key_gets_none(
    root: httpx.AsyncClient, guarded: Running, topic: str
) -> None:
    queue = Topic(root, topic)
    await queue.put()
    made = await make(root, "worker", ["read", "write"])
    async with client(guarded, made["secret"]) as worker:
        waiting = asyncio.create_task(worker.post(f"{queue.path}/claim", json={"node": "w", "wait_ms": 20_000}))
        await until_waiting(guarded, topic, 1)
        accepted(await root.delete(f"/v0/keys/{made['id']}"))
        await queue.add(1)
        refused(await waiting, 401, "unauthorized")
    assert (await queue.take("other"))["$seq"] == 1


async def test_a_directory_learns_of_changes_by_its_ttl_alone(root: httpx.AsyncClient, guarded: Running) -> None:
    """What a process without Redis does, with a shorter time to live."""
    directory = Directory(guarded.context.pools.rest, [], ttl=0.1)
    made = await make(root)
    await directory.reload()
    digest = digest_of(made["secret"].encode())
    assert directory.find(digest) is not None
    directory.start()
    accepted(await root.delete(f"/v0/keys/{made['id']}"))

    async def forgotten() -> bool:
        return directory.find(digest) is None

    await eventually(forgotten)
    await directory.stop()
