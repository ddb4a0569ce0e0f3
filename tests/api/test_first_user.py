"""The first user: how an open service closes, that nothing opens it again, and that no route is left out."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from starlette.routing import Mount, Route

from app.errors import ConfigurationError
from app.main import create_app
from app.settings import Settings
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.api.events import working
from tests.api.keyring import ALL, Services, bearer, client
from tests.api.messages.client import Body, done, refused
from tests.api.people import PASSWORD, add_user, basic, token_of
from tests.api.scopes import OF_TOKENS

if TYPE_CHECKING:
    from tests.conftest import Running

# Written by hand: a route that is declared open by mistake is not among them.
TO_ALL = {
    ("GET", path) for path in ("/healthz", "/v0/health", "/readyz", "/v0/ready", "/api/version", "/api/auth/status")
} | {("POST", "/api/auth/login")}
EXAMPLES = {"topic": "mail", "id": str(uuid.UUID(int=7)), "grant_id": str(uuid.UUID(int=7)), "wid": f"wid_{'A' * 22}"}
METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture
async def service(services: Services) -> AsyncIterator[Running]:
    await services.forget_keys()
    service = await services.start(bcrypt_cost=10)
    yield service
    await services.forget_keys()


def user(name: str = "boss", *, is_admin: bool = True) -> Body:
    return {"username": name, "password": PASSWORD, "is_admin": is_admin}


async def test_its_first_user_closes_it(service: Running, topic: str) -> None:
    async with client(service) as anybody:
        for headers in ({}, basic("admin", "secret"), bearer("wrong")):  # ignored: all is open
            assert (await anybody.get("/v0/topics", headers=headers)).status_code == 200
        assert done(await anybody.get("/api/auth/status")) == {"auth_required": False}
        refused(await anybody.post("/api/auth/refresh"), 401, "unauthorized")
        await Topic(anybody, topic).put()
        async with working(Topic(anybody, topic)) as stream:
            await add_user(anybody, name="boss", is_admin=True)
            assert (await stream.error())["code"] == 401
            assert await stream.frame() is None
        assert done(await anybody.get("/api/auth/status")) == {"auth_required": True}
        for path in ("/v0/topics", "/api/messages", "/admin/horizon"):
            assert (await anybody.get(path)).status_code == 401
            assert (await anybody.get(path, headers=basic("boss"))).status_code == 200
        refused(await anybody.post("/api/users", json=user("late")), 401, "unauthorized")
        assert (await anybody.post("/v0/keys", json={"name": "k", "scopes": ALL})).status_code == 401
        await add_user(anybody, headers=basic("boss"))


async def test_its_first_user_must_be_able_to_make_the_others(service: Running) -> None:
    async with client(service) as anybody:
        error = refused(await anybody.post("/api/users", json=user(is_admin=False)), 400, "invalid_request")
        assert "first user" in error
        assert (await anybody.get("/v0/topics")).status_code == 200


async def test_of_many_who_want_to_be_first_one_is(service: Running, services: Services) -> None:
    """Whether by a key or as a user."""
    async with client(service) as anybody:
        users = [anybody.post("/api/users", json=user(f"u{n}")) for n in range(4)]
        keys = [anybody.post("/v0/keys", json={"name": "k", "scopes": ALL}) for _ in range(2)]
        answers = await asyncio.gather(*users, *keys)
    assert sorted(answer.status_code for answer in answers) == [201, *[401] * 5]


async def test_another_process_does_not_let_anybody_in_meanwhile(service: Running, services: Services) -> None:
    other = await services.start(bcrypt_cost=10)
    async with client(service) as here, client(other) as there:
        made = await add_user(here, is_admin=True)
        refused(await there.post("/api/users", json=user()), 401, "unauthorized")
        refused(await there.put(f"/api/users/{made['id']}", json={"password": PASSWORD}), 401, "unauthorized")
        assert (await there.get("/v0/topics")).status_code == 401


async def test_it_does_not_open_again_when_the_last_user_is_gone(service: Running, services: Services) -> None:
    async with client(service) as anybody:
        await add_user(anybody, name="boss", is_admin=True)
        made = await add_user(anybody, is_admin=True, headers=basic("boss"))
        (boss,) = await services.sql("SELECT id::text AS id FROM holdfast.users WHERE username = 'boss'")
        done(await anybody.delete(f"/api/users/{boss['id']}", headers=basic(made["username"])), 204)
        await services.sql("UPDATE holdfast.users SET deleted_at = now(), password_hash = NULL")
        await service.context.access.directory.reload()
        assert (await anybody.get("/v0/topics")).status_code == 401
        async with client(await services.start()) as later:
            assert (await later.get("/v0/topics")).status_code == 401
        await services.forget_keys()
        await service.context.access.directory.reload()
        assert (await anybody.get("/v0/topics")).status_code == 401


async def test_an_address_that_others_reach_needs_a_user_or_a_key(service: Running, services: Services) -> None:
    app = create_app(Settings.model_validate({"database_url": services.url, "host": "0.0.0.0"}))
    with pytest.raises(ConfigurationError, match="users add --admin"):
        async with app.router.lifespan_context(app):
            pass
    async with client(service) as anybody:
        await add_user(anybody, is_admin=True)
    await services.start(host="0.0.0.0")


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield method.upper(), path, item[method]


def filled(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda name: EXAMPLES.get(name[1], "x"), path)


@pytest.mark.parametrize("first", ["user", "key"])
async def test_no_route_answers_without_sign_in_once_there_is_a_user_or_a_key(service: Running, first: str) -> None:
    """Made from the service's own description of its routes: a new one is among them, and so are streams."""
    async with client(service) as http:
        if first == "user":
            await add_user(http, name="boss", is_admin=True)
        else:
            done(await http.post("/v0/keys", json={"name": "k", "scopes": ALL}), 201)
        document = (await http.get("/openapi.json")).json()
        found, streams = list(operations(document)), list[str]()
        opened = {(method, path) for method, path, one in found if one.get("security") == []}
        stale = jwt.encode({"iss": "holdfast", "sub": EXAMPLES["id"], "epoch": 1, "iat": 0, "exp": 1}, "s" * 32)
        ways: list[dict[str, str]] = [{}, bearer("hf_guess"), bearer(stale), {"authorization": "Basic !"}, basic("")]
        for method, path, one in found:
            answers = [await _sent(http, method, path, headers) for headers in ways[: 4 if path != "/v0/keys" else 5]]
            if "token" in {parameter["name"] for parameter in one.get("parameters", ())}:
                streams.append(path)
                answers += [await _sent(http, method, f"{path}?node=n&token={t}", {}) for t in ("", "hf_guess", stale)]
            if (method, path) in opened:
                assert 401 not in answers or path == "/api/auth/login", (method, path)
            else:
                assert set(answers) == {401}, (method, path)
        assert opened == TO_ALL
        assert len(found) > len(opened) + 40
        # What is not described: pages, other ways to write a path, and other methods.
        (pages,) = [route for route in service.app.routes if isinstance(route, Mount) and route.path == "/admin"]
        for path in [f"/admin{page.path}" for page in pages.routes if isinstance(page, Route)] + ["/admin/whatever"]:
            answer = await http.get(path)
            assert answer.status_code in {401, 404, 405} or path == "/admin/sign-in", path
        for method, path in {(m, p) for _, p, _ in found for m in ("HEAD", "OPTIONS", "PATCH", "TRACE")}:
            assert await _sent(http, method, path, {}) >= 400 or ("GET", path) in opened, (method, path)
        for path in (
            "/v0/topics/",
            "//v0/topics",
            "/v0/./topics",
            "/V0/topics",
            "/v0/topics%2f",
            "/healthz/../v0/topics",
        ):
            assert await _sent(http, "GET", path, {}) >= 300, path
        assert set(streams) == {"/v0/topics/{topic}/work", "/v0/watch/{wid}", "/v0/users/{id}/events"}


async def test_every_route_answers_an_admin_who_has_signed_in(service: Running) -> None:
    async with client(service) as http:
        await add_user(http, name="boss", is_admin=True)
        document = (await http.get("/openapi.json")).json()
        for headers in (basic("boss"), await token_of(http, "boss")):
            for method, path, _ in operations(document):
                refuses = path == "/api/auth/login" or (method, path) in OF_TOKENS
                assert await _sent(http, method, path, headers) not in {401, 403} or refuses, (method, path)


async def _sent(http: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]) -> int:
    async with http.stream(method, filled(path), headers=headers) as answer:
        return answer.status_code
