"""Keys kept in the database: made, listed, rotated and revoked, and what that opens and closes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import pytest

from app.base.keys import digest_of
from app.http.signin.directory import Directory
from tests.api.dialect import Body, Topic, accepted, eventually, refused, until_waiting
from tests.api.events import working
from tests.api.keyring import ALL, Services, bearer, client, make

if TYPE_CHECKING:
    from tests.conftest import Running


@pytest.fixture
async def root(guarded: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(guarded, "root") as http:
        yield http


async def test_a_key_is_made_used_and_never_shown_again(root: httpx.AsyncClient, services: Services) -> None:
    made = await make(root, "deploys", ["write", "read"], prefixes=["mail.", "post."], expires_in_ms=60_000)
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}", made["secret"])
    assert re.fullmatch(r"key_[0-9a-f]{16}", made["id"])
    assert (made["name"], made["scopes"], made["prefixes"]) == ("deploys", ["read", "write"], ["mail.", "post."])
    assert made["expires_at"] - made["created_at"] == pytest.approx(60_000, abs=2_000)
    assert (made["state"], made["rotated_at"], made["revoked_at"], made["old_secret_until"]) == ("live", *[None] * 3)
    used = await root.get("/v0/topics", headers=bearer(made["secret"]))
    assert used.status_code == 200
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


async def test_an_answer_with_a_secret_is_kept_by_no_cache(root: httpx.AsyncClient) -> None:
    made = await root.post("/v0/keys", json={"name": "k", "scopes": ["read"]})
    rotated = await root.post(f"/v0/keys/{made.json()['id']}/rotate")
    assert (made.headers["cache-control"], rotated.headers["cache-control"]) == ("no-store", "no-store")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"scopes": ["read"]}, "name"),
        ({"name": "k"}, "scopes"),
        ({"name": "k", "scopes": []}, "scopes"),
        ({"name": "k", "scopes": ["rw"]}, "scopes"),
        ({"name": "k", "scopes": "read"}, "scopes"),
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "x" * 129, "scopes": ["read"]}, "name"),
        ({"name": "a\nb", "scopes": ["read"]}, "name"),
        ({"name": "k", "scopes": ["read"], "prefixes": [""]}, "start"),
        ({"name": "k", "scopes": ["read"], "prefixes": ["a b"]}, "start"),
        ({"name": "k", "scopes": ["read"], "prefixes": ["a"] * 101}, "100 prefixes"),
        ({"name": "k", "scopes": ["read"], "prefixes": "a"}, "prefixes"),
        ({"name": "k", "scopes": ["read"], "expires_in_ms": 0}, "expires_in_ms"),
        ({"name": "k", "scopes": ["read"], "expires_in_ms": 10**15}, "expires_in_ms"),
        ({"name": "k", "scopes": ["read"], "secret": "mine"}, "secret"),
        ({"name": "k", "scopes": ["read"], "created_by": "me"}, "created_by"),
    ],
)
async def test_nonsense_makes_no_key(root: httpx.AsyncClient, services: Services, body: Body, why: str) -> None:
    before = await services.sql("SELECT count(*) FROM holdfast.api_keys")
    assert why in refused(await root.post("/v0/keys", json=body), 400, "invalid_request")["message"]
    assert await services.sql("SELECT count(*) FROM holdfast.api_keys") == before


async def test_other_fields_and_parameters_are_refused(root: httpx.AsyncClient) -> None:
    made = await make(root)
    rotate = f"/v0/keys/{made['id']}/rotate"
    refused(await root.post(rotate, json={"grace": 5}), 400, "invalid_request")
    refused(await root.post(rotate, json={"grace_ms": 604_800_001}), 400, "invalid_request")
    for query in ("limit=5", "cursor=x", "page_size=x", "cursor=eyJhdCI6MSwiaWQiOiJcdTAwMDAifQ=="):
        refused(await root.get(f"/v0/keys?{query}"), 400, "invalid_request")


@pytest.mark.parametrize("key_id", ["key_0000000000000000", "key_", "x", "%00", "key_0000000000000000%0a"])
async def test_a_key_that_there_is_not(root: httpx.AsyncClient, key_id: str) -> None:
    refused(await root.get(f"/v0/keys/{key_id}"), 404, "not_found")
    refused(await root.delete(f"/v0/keys/{key_id}"), 404, "not_found")
    refused(await root.post(f"/v0/keys/{key_id}/rotate"), 404, "not_found")


async def test_pages_have_every_key_once_the_newest_first(root: httpx.AsyncClient) -> None:
    made = [(await make(root, f"page {i}"))["id"] for i in range(5)]
    seen: list[str] = []
    query = "page_size=2"
    while True:
        page = accepted(await root.get(f"/v0/keys?{query}"))
        seen += [key["id"] for key in page["keys"]]
        assert "secret" not in str(page).replace("old_secret_until", "")
        if "next_cursor" not in page:
            break
        query = f"page_size=2&cursor={page['next_cursor']}"
    assert seen[:5] == made[::-1]
    assert len(seen) == len(set(seen))


async def test_a_revoked_key_opens_nothing_from_then_on(root: httpx.AsyncClient) -> None:
    made = await make(root)
    headers = bearer(made["secret"])
    assert (await root.get("/v0/topics", headers=headers)).status_code == 200
    gone = accepted(await root.delete(f"/v0/keys/{made['id']}"))
    refused(await root.get("/v0/topics", headers=headers), 401, "unauthorized")
    assert gone["state"] == "revoked"
    again = accepted(await root.delete(f"/v0/keys/{made['id']}"))
    assert again["revoked_at"] == gone["revoked_at"]
    assert made["id"] in {key["id"] for key in accepted(await root.get("/v0/keys"))["keys"]}
    error = refused(await root.post(f"/v0/keys/{made['id']}/rotate"), 409, "key_not_live")
    assert error["detail"] == {"id": made["id"], "state": "revoked"}


async def test_a_rotated_key_has_another_secret_at_once(root: httpx.AsyncClient) -> None:
    made = await make(root)
    rotated = accepted(await root.post(f"/v0/keys/{made['id']}/rotate"))
    assert rotated["secret"] != made["secret"]
    assert rotated["rotated_at"] >= made["created_at"]
    refused(await root.get("/v0/topics", headers=bearer(made["secret"])), 401, "unauthorized")
    assert (await root.get("/v0/topics", headers=bearer(rotated["secret"]))).status_code == 200


async def test_the_secret_before_is_good_for_the_grace(root: httpx.AsyncClient) -> None:
    made = await make(root)
    first, path = bearer(made["secret"]), f"/v0/keys/{made['id']}/rotate"
    second = accepted(await root.post(path, json={"grace_ms": 500}))
    assert second["old_secret_until"] - second["rotated_at"] == pytest.approx(500, abs=50)
    for headers in (first, bearer(second["secret"])):
        assert (await root.get("/v0/topics", headers=headers)).status_code == 200

    async def over() -> bool:
        return (await root.get("/v0/topics", headers=first)).status_code == 401

    await eventually(over)
    assert (await root.get("/v0/topics", headers=bearer(second["secret"]))).status_code == 200
    third = accepted(await root.post(path, json={"grace_ms": 60_000}))
    fourth = accepted(await root.post(path, json={"grace_ms": 60_000}))
    answers = [await root.get("/v0/topics", headers=bearer(key["secret"])) for key in (second, third, fourth)]
    assert [answer.status_code for answer in answers] == [401, 200, 200]
    accepted(await root.delete(f"/v0/keys/{made['id']}"))
    answers = [await root.get("/v0/topics", headers=bearer(key["secret"])) for key in (third, fourth)]
    assert [answer.status_code for answer in answers] == [401, 401]


async def test_a_key_expires_by_itself(root: httpx.AsyncClient) -> None:
    made = await make(root, expires_in_ms=400)

    async def over() -> bool:
        return (await root.get("/v0/topics", headers=bearer(made["secret"]))).status_code == 401

    assert not await over()
    await eventually(over)
    assert accepted(await root.get(f"/v0/keys/{made['id']}"))["state"] == "expired"
    refused(await root.post(f"/v0/keys/{made['id']}/rotate"), 409, "key_not_live")


@pytest.mark.parametrize(
    ("scopes", "prefixes", "allowed"),
    [
        (["read", "admin"], ["mail."], True),
        (["read"], ["mail.x", "mail."], True),
        (["read", "write"], ["mail."], False),
        (["read"], [], False),
        (["read"], ["mail"], False),
        (["read"], ["mail.", "post."], False),
        (ALL, [], False),
    ],
)
async def test_a_key_makes_none_that_may_do_more(
    root: httpx.AsyncClient, scopes: list[str], prefixes: list[str], allowed: bool
) -> None:
    maker = await make(root, "maker", ["read", "admin"], prefixes=["mail."])
    body = {"name": "made", "scopes": scopes, "prefixes": prefixes}
    answer = await root.post("/v0/keys", json=body, headers=bearer(maker["secret"]))
    if not allowed:
        refused(answer, 403, "forbidden")
        return
    assert accepted(answer)["created_by"] == maker["id"]


async def test_a_key_neither_sees_nor_touches_one_that_may_do_more(root: httpx.AsyncClient) -> None:
    maker = await make(root, "maker", ["read", "admin"], prefixes=["mail."])
    headers = bearer(maker["secret"])
    within = await make(root, "within", ["read"], prefixes=["mail.a"])
    beyond = [
        await make(root, "more scopes", ["read", "delete"], prefixes=["mail."]),
        await make(root, "every topic", ["read"]),
        await make(root, "other topics", ["read"], prefixes=["mail.", "post."]),
    ]
    listed = [key["id"] for key in accepted(await root.get("/v0/keys", headers=headers))["keys"]]
    assert {maker["id"], within["id"]} <= set(listed)
    assert not {key["id"] for key in beyond} & set(listed)
    for key in beyond:
        path = f"/v0/keys/{key['id']}"
        refused(await root.get(path, headers=headers), 404, "not_found")
        refused(await root.post(f"{path}/rotate", headers=headers), 404, "not_found")
        refused(await root.delete(path, headers=headers), 404, "not_found")
        assert (await root.get("/v0/topics", headers=bearer(key["secret"]))).status_code == 200
    accepted(await root.post(f"/v0/keys/{within['id']}/rotate", headers=headers))
    accepted(await root.delete(f"/v0/keys/{within['id']}", headers=headers))


async def test_the_number_of_live_keys_is_bounded(root: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in accepted(await root.get("/v0/keys?page_size=1000"))["keys"]:
        if key["state"] == "live":
            accepted(await root.delete(f"/v0/keys/{key['id']}"))
    monkeypatch.setattr("app.http.signin.api_keys.MOST_KEYS", 1)
    extra = await make(root)
    error = refused(await root.post("/v0/keys", json={"name": "k", "scopes": ["read"]}), 429, "throttled")
    assert error["detail"] == {"limit": "max_keys", "max": 1}
    accepted(await root.delete(f"/v0/keys/{extra['id']}"))
    await make(root)


async def test_a_key_made_elsewhere_works_at_its_first_use(services: Services, guarded: Running) -> None:
    """Without Redis: an unknown key is looked for in the database, at most once a second."""
    other = await services.start(api_keys="root")
    async with client(guarded, "root") as here, client(other) as there:
        made = await make(here)

        async def known() -> bool:
            return (await there.get("/v0/topics", headers=bearer(made["secret"]))).status_code == 200

        began = time.monotonic()
        await eventually(known)
        assert time.monotonic() - began < 3
        # A body that was sent with the first use is read once, by the run of the route that counts.
        await asyncio.sleep(1.0)  # the time within which it would not look again
        made = await make(here)
        put = await there.put(
            "/v0/topics/later", json={"type": "queue", "lease_ms": 777}, headers=bearer(made["secret"])
        )
        assert put.status_code == 201, put.text
        assert put.json()["config"]["lease_ms"] == 777


async def test_strangers_make_the_service_ask_once_a_second_at_most(services: Services) -> None:
    service = await services.start(api_keys="root")
    directory = service.context.access.directory
    async with client(service) as http:
        answers = await asyncio.gather(*(http.get("/v0/topics", headers=bearer(f"guess-{i}")) for i in range(50)))
        assert {answer.status_code for answer in answers} == {401}
        asked = directory.loads
        began = time.monotonic()
        for i in range(50):
            refused(await http.get("/v0/topics", headers=bearer(f"again-{i}")), 401, "unauthorized")
        assert directory.loads - asked <= 1 + (time.monotonic() - began)


async def test_a_stream_ends_with_its_key(root: httpx.AsyncClient, guarded: Running, topic: str) -> None:
    await Topic(root, topic).put()
    made, kept, rotated = [await make(root, name, ["read", "write"]) for name in ("made", "kept", "rotated")]
    async with (
        client(guarded, made["secret"]) as one,
        client(guarded, kept["secret"]) as two,
        client(guarded, rotated["secret"]) as three,
        working(Topic(one, topic), "a") as ending,
        working(Topic(two, topic), "b") as going_on,
        working(Topic(three, topic), "c") as outdated,
    ):
        await Topic(root, topic).add(1)
        job = f"/v0/topics/{topic}/jobs/1"

        async def leased() -> bool:
            return bool(accepted(await root.get(job))["state"] == "leased")

        await eventually(leased)
        held = {"a": ending, "b": going_on, "c": outdated}[accepted(await root.get(job))["node"]]
        await held.job()
        accepted(await root.delete(f"/v0/keys/{made['id']}"))
        accepted(await root.post(f"/v0/keys/{rotated['id']}/rotate"))
        for stream in (ending, outdated):
            while (last := await stream.frame()) is not None and (kind := last.fields.get("event")) != "error":
                assert kind is None or last.data["$seq"] == 1, "which another of them has released"
            assert last is not None
            error = last.data
            assert (error["code"], error["error"], error["topic"]) == (401, "unauthorized", topic)
            assert await stream.frame() is None
        if held is not going_on:
            await going_on.job()  # what the others held was released
        await Topic(root, topic).ack("b", [1])
        await Topic(root, topic).add(1)
        await going_on.job()


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


async def test_a_directory_learns_of_changes_by_its_ttl_alone(services: Services, guarded: Running) -> None:
    """What a process without Redis does, with a shorter time to live."""
    directory = Directory(guarded.context.pools.rest, [], ttl=0.1)
    async with client(guarded, "root") as root:
        made = await make(root)
        await directory.reload()
        digest = digest_of(made["secret"].encode())
        assert directory.find(digest) is not None
        directory.start()
        accepted(await root.delete(f"/v0/keys/{made['id']}"))

        async def forgotten() -> bool:
            return directory.find(digest) is None

        await eventually(forgotten, 5)
    await directory.stop()
