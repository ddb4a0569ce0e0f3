"""The ways in which users sign in: for how long, how often, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from pydantic import SecretStr

from app.errors import ConfigurationError
from app.settings import Settings
from tests.api.conftest import Serve
from tests.api.dialect import Body, Topic, accepted, eventually, until_waiting
from tests.api.events import working
from tests.api.keyring import ALL, Services, bearer, client, make
from tests.api.messages.client import Messages, done, refused
from tests.api.people import PASSWORD, add_user, basic, token_of

if TYPE_CHECKING:
    from tests.conftest import Running

OTHER = "another long password"
SECRET = "s" * 32


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture
async def service(services: Services) -> Running:
    """A service of the test's own, where nobody has tried to sign in."""
    await services.sql("DELETE FROM holdfast.sign_in_tries")
    return await services.start(api_keys="root", bcrypt_cost=10)


@pytest.fixture
async def root(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service, "root") as http:
        yield http


@pytest.fixture
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as http:
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
    for name, password in ((ann, OTHER), ("nobody", PASSWORD), (ann, ""), (ann, "x" * 200), ("a\0b", "")):
        answer = await http.post("/api/auth/login", json={"username": name, "password": password})
        if "\0" in name:
            refused(answer, 400, "invalid_request")
        else:
            assert refused(answer, 401, "unauthorized") == "invalid credentials"
    bad: list[object] = [{}, {"username": ann}, {"password": PASSWORD}, {"username": 1, "password": PASSWORD}, []]
    for body in bad:
        refused(await http.post("/api/auth/login", json=body), 400, "invalid_request")


async def test_ten_tries_a_minute_of_a_name_from_an_address(services: Services) -> None:
    await services.sql("DELETE FROM holdfast.sign_in_tries")
    service = await services.start(api_keys="root", bcrypt_cost=10, trusted_proxies="10.0.0.0/8")
    async with client(service, "root") as root, client(service) as http:
        ann = (await add_user(root, "read"))["username"]
        token = await token_of(http, ann)
        assert await status(http, basic(ann)) == 200
        forged = {"x-real-ip": "10.9.9.9"}  # this peer is no proxy that is trusted
        body = {"username": ann, "password": OTHER}
        for n in range(10):
            answer = await http.post("/api/auth/login", json=body, headers=forged if n % 2 else {})
            refused(answer, 401, "unauthorized")
        late = await http.post("/api/auth/login", json={**body, "password": PASSWORD}, headers=forged)
        assert "10 tries" in refused(late, 429, "throttled")
        assert late.headers["retry-after"] == "60"
        assert (await http.get("/v0/topics", headers=basic(ann, OTHER))).status_code == 429
        assert (await http.get("/admin/horizon", headers=basic(ann, OTHER))).status_code == 429
        assert (await http.get("/v0/topics", headers=basic("nobody"))).status_code == 401
        # Who has signed in goes on.
        assert await status(http, token) == await status(http, basic(ann)) == 200


async def test_wrong_passwords_with_requests_are_tries_and_right_ones_are_none(
    root: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    names = [(await add_user(root, "read"))["username"] for _ in range(12)]
    for name in names:
        assert await status(http, basic(name)) == 200
    wrong = [await status(http, basic(names[0], f"{OTHER} {n}")) for n in range(11)]
    assert wrong == [401] * 10 + [429]
    refused(await http.post("/api/auth/login", json={"username": names[0], "password": PASSWORD}), 429, "throttled")


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


async def test_a_password_is_in_no_memory_of_the_sessions(
    service: Running, root: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    ann = (await add_user(root, "read"))["username"]
    assert await status(http, basic(ann)) == 200
    sessions = service.context.access.sessions
    assert sessions._right
    assert PASSWORD not in repr(sessions.__dict__)


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


async def test_a_token_is_good_for_15_minutes_if_nothing_is_set() -> None:
    assert Settings().token_seconds == 900


async def test_a_refresh_is_for_users(root: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    ann = await add_user(root)
    name = ann["username"]
    refused(await http.post("/api/auth/refresh"), 401, "unauthorized")
    refused(await root.post("/api/auth/refresh"), 403, "forbidden")
    assert done(await http.post("/api/auth/refresh", headers=basic(name)))["token"]
    token = await token_of(http, name)
    answer = await http.post("/api/auth/refresh", headers=token)
    assert answer.headers["cache-control"] == "no-store"
    done(await root.delete(f"/api/users/{ann['id']}"), 204)
    for headers in (token, bearer(done(answer)["token"]), basic(name)):
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


@pytest.mark.parametrize("secret", ["s" * 31, "ü" * 15])
def test_a_short_secret_refuses_to_start(secret: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_JWT_SECRET: must have 32 bytes") as error:
        Settings.from_env({"HOLDFAST_JWT_SECRET": secret})
    assert secret not in str(error.value)


@pytest.mark.parametrize("text", ["proxy", "10.0.0.0/99", "10.0.0.1;10.0.0.2"])
def test_what_is_no_network_refuses_to_start(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_TRUSTED_PROXIES"):
        Settings.from_env({"HOLDFAST_TRUSTED_PROXIES": text})


async def test_grants_open_their_topics_and_no_others(
    root: httpx.AsyncClient, http: httpx.AsyncClient, topic: str
) -> None:
    ann = await add_user(root, f"read {topic}.*", f"write {topic}.in", f"consume {topic}.out", f"admin {topic}.mine")
    http.headers.update(basic(ann["username"]))
    for name in ("in", "out", "other", "mine"):
        accepted(await root.put(f"/v0/topics/{topic}.{name}", json={"type": "queue"}))
    accepted(await root.put(f"/v0/topics/{topic}", json={"type": "queue"}))

    def on(name: str, http: httpx.AsyncClient = http) -> Messages:
        return Messages(http, f"{topic}.{name}")

    async def asked(name: str, path: str, body: Body) -> int:
        answer = await http.post(path, json={"topic": f"{topic}.{name}", **body})
        return answer.status_code

    put: Any = ("/api/messages", {"payload": "x"})
    assert [await asked(name, *put) for name in ("in", "out", "other", "mine")] == [201, 403, 403, 403]
    one = await on("out", root).put()
    assert [await asked(n, "/api/messages/dequeue", {}) for n in ("in", "out", "other")] == [200, 200, 403]
    await on("out").ack(one)
    job = {"node": "n"}
    claims = [(await http.post(f"/v0/topics/{topic}.{n}/claim", json=job)).status_code for n in ("in", "out", "other")]
    assert claims == [200, 200, 403]
    assert (await http.post(f"/v0/topics/{topic}.out", json={"records": [{"data": 1}]})).status_code == 403
    theirs = await on("other", root).put()
    assert (await on("other").get(theirs))["id"] == theirs  # reading is granted for all of these
    refused(await http.post(f"/api/messages/{theirs}/nack"), 404, "not_found")
    refused(await http.get("/api/messages"), 403, "forbidden")
    refused(await http.get("/api/messages", params={"topic": topic}), 403, "forbidden")
    listed = accepted(await http.get("/v0/topics", params={"prefix": topic}))["topics"]
    assert {item["topic"] for item in listed} == {f"{topic}.{name}" for name in ("in", "out", "other", "mine")}
    # The one topic whose name is granted, and none that begins so.
    accepted(await http.put(f"/v0/topics/{topic}.mine", json={"type": "queue", "lease_ms": 1_000}))
    for name in (f"{topic}.mine.dlq", f"{topic}.min", f"{topic}.in"):
        assert (await http.put(f"/v0/topics/{name}", json={"type": "queue"})).status_code == 403
    shown = done(await http.get("/api/topic-configs"))["items"]
    assert {item["topic"] for item in shown} == {f"{topic}.mine"}
    stats = done(await http.get("/api/stats"))["topics"]
    assert {item["topic"] for item in stats} <= {f"{topic}.mine"}
    trail = accepted(await http.get("/v0/admin/audit"))["entries"]
    assert {entry["subject"] for entry in trail} == {f"{topic}.mine"}
    refused(await http.get("/api/users"), 403, "forbidden")


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
    await Topic(root, topic).put()
    deleted, changed, lesser, other = [await add_user(root, f"consume {topic}", "read") for _ in range(4)]
    grants = done(await root.get(f"/api/users/{lesser['id']}/grants"))["items"]
    async with client(service) as one, client(service) as two, client(service) as three, client(service) as four:
        one.headers.update(await token_of(one, deleted["username"]))
        two.headers.update(basic(changed["username"]))
        three.headers.update(await token_of(three, lesser["username"]))
        four.headers.update(await token_of(four, other["username"]))
        async with (
            working(Topic(one, topic), "a") as first,
            working(Topic(two, topic), "b") as second,
            working(Topic(three, topic), "c") as third,
            working(Topic(four, topic), "d") as fourth,
        ):
            done(await root.delete(f"/api/users/{deleted['id']}"), 204)
            done(await root.put(f"/api/users/{changed['id']}", json={"password": OTHER}))
            for grant in grants:
                if grant["action"] == "consume":
                    done(await root.delete(f"/api/users/{lesser['id']}/grants/{grant['id']}"), 204)
            for stream in (first, second, third):
                error = await stream.error()
                assert (error["code"], error["error"]) == (401, "unauthorized")
            await Topic(root, topic).add(1)
            await fourth.job()


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


async def test_a_browser_opens_a_stream_with_a_token(
    root: httpx.AsyncClient, http: httpx.AsyncClient, topic: str
) -> None:
    await Topic(root, topic).put()
    ann = await add_user(root, f"write {topic}")
    token = (await token_of(http, ann["username"]))["authorization"][7:]
    async with http.stream("GET", f"/v0/topics/{topic}/work", params={"node": "n", "token": token}) as answer:
        assert answer.status_code == 200
    assert await status(http, {}, f"/v0/topics?token={token}") == 401


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({}, 200),
    ],
)
async def test_another_sites_page_does_nothing_with_a_browsers_password(
    root: httpx.AsyncClient, http: httpx.AsyncClient, topic: str, sent: dict[str, str], status: int
) -> None:
    """A form can send this without a body, and the browser adds what it was told for a page."""
    boss = (await add_user(root, is_admin=True))["username"]
    messages = Messages(root, topic)
    await messages.put()
    answer = await http.post(f"/api/topics/{topic}/purge", headers=basic(boss) | sent)
    assert answer.status_code == status
    assert await messages.counts() == ({} if status == 200 else {"pending": 1})
    token = await token_of(http, boss)
    assert (await http.post(f"/api/topics/{topic}/purge", headers=token | sent)).status_code == 200
    assert (await http.get("/admin/horizon", headers=token | sent)).status_code == 200


async def test_a_key_is_no_password(root: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    made = await make(root, "k", ALL)
    for path in ("/admin/horizon", "/v0/topics"):
        assert await status(http, basic("anybody", made["secret"]), path) == 401
