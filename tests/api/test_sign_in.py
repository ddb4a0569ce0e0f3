"""The ways in which users sign in: for how long, how often, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import jwt
import pytest
from pydantic import SecretStr

from app.errors import ConfigurationError
from app.settings import Settings
from tests.api.dialect import Body, Topic, accepted, eventually, until_waiting
from tests.api.events import working
from tests.api.keyring import Services, bearer, client, make
from tests.api.messages.client import Messages, done, refused
from tests.api.people import PASSWORD, add_user, basic, token_of

if TYPE_CHECKING:
    from tests.conftest import Running

OTHER = "another long password"
SECRET = "s" * 32


@pytest.fixture
async def service(services: Services) -> Running:
    """A service of the test's own, where nobody has tried to sign in."""
    await services.sql("DELETE FROM holdfast.sign_in_tries")
    return await services.start(api_keys="root", bcrypt_cost=10)


@pytest.fixture
async def root(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service, "root") as http:
        yield http


async def status(http: httpx.AsyncClient, headers: dict[str, str], path: str = "/v0/topics") -> int:
    return (await http.get(path, headers=headers)).status_code


async def test_each_way_works_on_both_dialects_and_on_the_pages(
    root: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    for headers in (basic(boss), await token_of(http, boss), bearer("root")):
        for path in ("/v0/topics", "/api/messages", "/v0/admin/horizon", "/admin/horizon", "/metrics", "/api/users"):
            assert await status(http, headers, path) == 200, path
    for headers in ({}, basic(boss, OTHER), basic("nobody"), bearer("a.b.c")):
        for path in ("/v0/topics", "/api/messages"):
            assert await status(http, headers, path) == 401
    wrong = await http.get("/admin/horizon", headers=basic(boss, OTHER))
    assert (wrong.status_code, wrong.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert wrong.headers["www-authenticate"] == "Bearer"  # browsers have a form, and must not ask by themselves
    assert done(await http.get("/api/auth/status")) == {"auth_required": True}


async def test_a_login_that_fails_says_not_why(root: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    ann = (await add_user(root))["username"]
    for name, password in ((ann, OTHER), ("nobody", PASSWORD), (ann, ""), (ann, "x" * 200)):
        answer = await http.post("/api/auth/login", json={"username": name, "password": password})
        assert refused(answer, 401, "unauthorized") == "invalid credentials"
    refused(await http.post("/api/auth/login", json={"username": "a\0b", "password": ""}), 400, "invalid_request")


async def test_ten_tries_a_minute_of_a_name_from_an_address(services: Services) -> None:
    """With a login or a request; right passwords are none, and neither are tokens."""
    await services.sql("DELETE FROM holdfast.sign_in_tries")
    service = await services.start(api_keys="root", bcrypt_cost=10, trusted_proxies="10.0.0.0/8")
    async with client(service, "root") as root, client(service) as http:
        ann = (await add_user(root, "read"))["username"]
        token = await token_of(http, ann)
        assert {await status(http, basic(ann)) for _ in range(12)} == {200}
        forged = {"x-real-ip": "10.9.9.9"}  # this peer is no proxy that is trusted
        body = {"username": ann, "password": OTHER}
        for n in range(5):
            answer = await http.post("/api/auth/login", json=body, headers=forged if n % 2 else {})
            refused(answer, 401, "unauthorized")
            assert await status(http, basic(ann, f"{OTHER} {n}")) == 401
        late = await http.post("/api/auth/login", json={**body, "password": PASSWORD}, headers=forged)
        assert "The limit is 10" in refused(late, 429, "throttled")
        assert late.headers["retry-after"] == "60"
        assert (await http.get("/v0/topics", headers=basic(ann, OTHER))).status_code == 429
        assert (await http.get("/admin/horizon", headers=basic(ann, OTHER))).status_code == 429
        assert (await http.get("/v0/topics", headers=basic("nobody"))).status_code == 401
        # Who has signed in goes on.
        assert await status(http, token) == await status(http, basic(ann)) == 200


async def test_behind_a_trusted_proxy_its_clients_are_counted(services: Services) -> None:
    await services.sql("DELETE FROM holdfast.sign_in_tries")
    service = await services.start(api_keys="root", bcrypt_cost=10, trusted_proxies="127.0.0.1, 10.0.0.0/8")
    async with client(service) as http:
        body = {"username": "nobody", "password": OTHER}
        for address in ("203.0.113.1", "203.0.113.2"):
            answers = [
                (await http.post("/api/auth/login", json=body, headers={"x-real-ip": address})).status_code
                for _ in range(11)
            ]
            assert answers == [401] * 10 + [429]
        refused(await http.post("/api/auth/login", json=body), 401, "unauthorized")


async def test_many_requests_with_one_password_look_at_it_once(
    service: Running, root: httpx.AsyncClient, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = (await add_user(root, "read"))["username"]
    looked: list[str | None] = []
    real = service.context.access.sessions.passwords.matches

    async def counted(kept: str | None, password: str) -> bool:
        looked.append(kept)
        return await real(kept, password)

    monkeypatch.setattr(service.context.access.sessions.passwords, "matches", counted)
    assert set(await asyncio.gather(*(status(http, basic(ann)) for _ in range(30)))) == {200}
    assert await status(http, basic(ann)) == 200
    assert len(looked) == 1
    sessions = service.context.access.sessions
    assert sessions._right
    assert PASSWORD not in repr(sessions.__dict__), "it is in no memory"


async def test_a_token_is_good_for_its_time(services: Services) -> None:
    service = await services.start(api_keys="root", bcrypt_cost=10, token_seconds=2)
    async with client(service, "root") as root, client(service) as http:
        ann = (await add_user(root, "read"))["username"]
        token = await token_of(http, ann)
        assert await status(http, token) == 200
        fresh = bearer(done(await http.post("/api/auth/refresh", headers=token))["token"])
        assert await status(http, fresh) == 200

        async def over() -> bool:
            return await status(http, token) == 401

        await eventually(over, 10)
        assert "expired" in refused(await http.post("/api/auth/refresh", headers=token), 401, "unauthorized")
    claims = jwt.decode(token["authorization"][7:], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 2
    assert Settings().token_seconds == 900  # if nothing is set


async def test_a_refresh_is_for_users(root: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    ann = await add_user(root)
    refused(await root.post("/api/auth/refresh"), 403, "forbidden")
    token = await token_of(http, ann["username"])
    fresh = bearer(done(await http.post("/api/auth/refresh", headers=token))["token"])
    done(await root.delete(f"/api/users/{ann['id']}"), 204)
    for headers in (token, fresh, basic(ann["username"]), {}):
        refused(await http.post("/api/auth/refresh", headers=headers), 401, "unauthorized")


async def test_another_password_ends_what_the_one_before_opened(
    root: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    ann = await add_user(root, "read")
    name = ann["username"]
    token = await token_of(http, name)
    assert await status(http, token) == await status(http, basic(name)) == 200
    done(await root.put(f"/api/users/{ann['id']}", json={"password": OTHER}))
    assert await status(http, token) == await status(http, basic(name)) == 401
    assert await status(http, await token_of(http, name, OTHER)) == await status(http, basic(name, OTHER)) == 200
    # Another name does not: it is the same user.
    token = await token_of(http, name, OTHER)
    done(await root.put(f"/api/users/{ann['id']}", json={"username": f"{name}-new"}))
    assert await status(http, token) == await status(http, basic(f"{name}-new", OTHER)) == 200
    assert await status(http, basic(name, OTHER)) == 401


async def test_one_process_believes_the_tokens_of_another_and_learns_of_its_users(services: Services) -> None:
    one, two = [await services.start(api_keys="root", bcrypt_cost=10) for _ in range(2)]
    async with client(one, "root") as root, client(one) as here, client(two) as there:
        boss = await add_user(root, is_admin=True)
        token = await token_of(here, boss["username"])
        assert await status(there, token) == 200
        late = await add_user(here, "read", headers=token)
        assert await status(there, basic(late["username"])) == 200
        restarted = await services.start(bcrypt_cost=10)
        async with client(restarted) as again:
            assert await status(again, token) == 200


async def test_another_secret_makes_another_service(services: Services) -> None:
    mine = await services.start(api_keys="root", bcrypt_cost=10, jwt_secret=SecretStr(SECRET))
    kept = await services.start(api_keys="root", bcrypt_cost=10)
    async with client(mine, "root") as root, client(mine) as one, client(kept) as other:
        ann = await add_user(root, "read")
        token = await token_of(one, ann["username"])
        assert await status(one, token) == 200
        assert await status(other, token) == 401
        jwt.decode(token["authorization"][7:], SECRET, algorithms=["HS256"], issuer="holdfast")
        forged = jwt.encode({"iss": "holdfast", "sub": ann["id"], "epoch": 1, "iat": 0, "exp": 2**40}, "x" * 32)
        assert await status(one, bearer(forged)) == 401


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("JWT_SECRET", text) for text in ("s" * 31, "ü" * 15)),
        *(("TRUSTED_PROXIES", text) for text in ("proxy", "10.0.0.0/99", "10.0.0.1;10.0.0.2")),
    ],
)
def test_a_setting_that_makes_no_sense_refuses_to_start(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"HOLDFAST_{name}") as error:
        Settings.from_env({f"HOLDFAST_{name}": text})
    assert name != "JWT_SECRET" or text not in str(error.value)


async def test_grants_open_their_topics_and_no_others(
    root: httpx.AsyncClient, http: httpx.AsyncClient, topic: str
) -> None:
    """By a start of names, or by a whole name, which grants none that begins so."""
    ann = await add_user(root, f"read {topic}.*", f"write {topic}.in", f"consume {topic}.out", f"admin {topic}.mine")
    http.headers.update(basic(ann["username"]))
    names = [f"{topic}.{end}" for end in ("in", "out", "other", "mine")]
    for name in (*names, topic):
        accepted(await root.put(f"/v0/topics/{name}", json={"type": "queue"}))
    theirs = await Messages(root, f"{topic}.other").put()

    async def asked(method: str, path: str, body: Body) -> list[int]:
        bodies = {name: body | ({"topic": name} if path.startswith("/api/") else {}) for name in names}
        answers = [await http.request(method, path.format(name), json=bodies[name]) for name in names]
        return [answer.status_code for answer in answers]

    assert await asked("POST", "/api/messages", {"payload": "x"}) == [201, 403, 403, 403]
    assert await asked("POST", "/v0/topics/{}", {"records": [{"data": 1}]}) == [200, 403, 403, 403]
    assert await asked("POST", "/api/messages/dequeue", {}) == [200, 200, 403, 403]
    assert await asked("POST", "/v0/topics/{}/claim", {"node": "n"}) == [200, 200, 403, 403]
    assert await asked("PUT", "/v0/topics/{}", {"type": "queue"}) == [403, 403, 403, 200]
    for name in (f"{topic}.mine.dlq", f"{topic}.min"):
        assert (await http.put(f"/v0/topics/{name}", json={"type": "queue"})).status_code == 403
    assert (await Messages(http, f"{topic}.other").get(theirs))["id"] == theirs  # reading is granted for all of these
    refused(await http.post(f"/api/messages/{theirs}/nack"), 404, "not_found")
    refused(await http.get("/api/messages", params={"topic": topic}), 403, "forbidden")
    listed = accepted(await http.get("/v0/topics", params={"prefix": topic}))["topics"]
    assert {item["topic"] for item in listed} == set(names)


async def test_metrics_are_for_any_user_and_topics_for_those_who_may_read_them(
    root: httpx.AsyncClient, http: httpx.AsyncClient, topic: str
) -> None:
    accepted(await root.put(f"/v0/topics/{topic}", json={"type": "queue"}))
    nobody, reader = await add_user(root), await add_user(root, f"read {topic}")

    async def sees(user: Body) -> bool:
        answer = await http.get("/metrics", headers=basic(user["username"]))
        assert answer.status_code == 200
        return f'topic="{topic}"' in answer.text

    await eventually(lambda: sees(reader))
    assert not await sees(nobody)


async def test_a_stream_ends_with_what_opened_it(service: Running, root: httpx.AsyncClient, topic: str) -> None:
    """A user, a password, a grant. A browser opens it with a token in the address, which no other route takes."""
    queue = Topic(root, topic)
    await queue.put()
    deleted, changed, lesser, other = [await add_user(root, f"consume {topic}") for _ in range(4)]
    [grant] = done(await root.get(f"/api/users/{lesser['id']}/grants"))["items"]
    async with contextlib.AsyncExitStack() as stack:
        streams = []
        for user in (deleted, changed, lesser, other):
            http = await stack.enter_async_context(client(service))
            token = await token_of(http, user["username"])
            http.headers.update(basic(user["username"]) if user is changed else token)
            streams.append(await stack.enter_async_context(working(queue.through(http), user["username"])))
        done(await root.delete(f"/api/users/{deleted['id']}"), 204)
        done(await root.put(f"/api/users/{changed['id']}", json={"password": OTHER}))
        done(await root.delete(f"/api/users/{lesser['id']}/grants/{grant['id']}"), 204)
        for stream in streams[:3]:
            error = await stream.error()
            assert (error["code"], error["error"]) == (401, "unauthorized")
        await queue.add(1)
        await streams[3].job()
        query = {"node": "n", "token": token["authorization"].removeprefix("Bearer ")}
        async with client(service) as nobody:
            async with nobody.stream("GET", f"{queue.path}/work", params=query) as answer:
                assert answer.status_code == 200
            assert (await nobody.get(queue.path, params=query)).status_code == 401


async def test_who_waits_for_work_and_is_deleted_gets_none(
    service: Running, root: httpx.AsyncClient, http: httpx.AsyncClient, topic: str
) -> None:
    messages = Messages(root, topic)
    await messages.put()
    await messages.take()
    ann = await add_user(root, "write")
    token = await token_of(http, ann["username"])
    body = {"topic": topic, "wait_seconds": 20}
    waiting = asyncio.create_task(http.post("/api/messages/dequeue", json=body, headers=token))
    await until_waiting(service, topic, 1)
    done(await root.delete(f"/api/users/{ann['id']}"), 204)
    two = await messages.put()
    refused(await waiting, 401, "unauthorized")
    assert (await messages.take())["id"] == two


async def test_another_sites_page_does_nothing_with_a_browsers_password(
    root: httpx.AsyncClient, http: httpx.AsyncClient, topic: str
) -> None:
    """A form can send this without a body, and the browser adds what it was told for a page."""
    boss = (await add_user(root, is_admin=True))["username"]
    token = await token_of(http, boss)
    messages = Messages(root, topic)
    await messages.put()
    sites: list[tuple[dict[str, str], int]] = [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({}, 200),
    ]
    for sent, expected in sites:
        answer = await http.post(f"/api/topics/{topic}/purge", headers=basic(boss) | sent)
        assert answer.status_code == expected
        if expected == 403:
            assert await messages.counts() == {"pending": 1}
        assert (await http.get("/admin/horizon", headers=token | sent)).status_code == 200
    assert await messages.counts() == {}
    cross = token | {"sec-fetch-site": "cross-site"}
    assert (await http.post(f"/api/topics/{topic}/purge", headers=cross)).status_code == 200


async def test_a_key_is_no_password(root: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    made = await make(root)
    for path in ("/admin/horizon", "/v0/topics"):
        assert await status(http, basic("anybody", made["secret"]), path) == 401
