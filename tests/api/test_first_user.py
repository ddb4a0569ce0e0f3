"""The first user, or key: how an open service closes, that nothing opens it again, and that no route is left out."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import jwt
import pytest
from starlette.routing import Mount, Route

from app.errors import ConfigurationError
from app.main import create_app
from app.settings import Settings
from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.events import working
from tests.api.keyring import ALL, Services, bearer, client, make
from tests.api.messages.client import done
from tests.api.people import PASSWORD, add_user, basic
from tests.api.scopes import OF_BROWSERS

if TYPE_CHECKING:
    from tests.conftest import Running

# Written by hand: a route that is declared open by mistake is not among them.
TO_ALL = {
    ("GET", path) for path in ("/healthz", "/v0/health", "/readyz", "/v0/ready", "/api/version", "/api/auth/status")
} | {("POST", "/api/auth/login")}
EXAMPLES = {"topic": "mail", "id": str(uuid.UUID(int=7)), "grant_id": str(uuid.UUID(int=7)), "wid": f"wid_{'A' * 22}"}
STREAMS = {("GET", "/v0/users/{id}/events"), *OF_BROWSERS}
KEY: Body = {"name": "k", "scopes": ALL}
EITHER = pytest.mark.parametrize("way", ["user", "key"])


@pytest.fixture
async def service(services: Services) -> AsyncIterator[Running]:
    await services.forget_keys()
    service = await services.start(bcrypt_cost=10)
    yield service
    await services.forget_keys()


async def first(http: httpx.AsyncClient, way: str) -> dict[str, str]:
    """Somebody becomes the first: how they sign in."""
    if way == "user":
        await add_user(http, name="boss", is_admin=True)
        return basic("boss")
    return bearer((await make(http))["secret"])


def attempts(http: httpx.AsyncClient, name: str = "late") -> list[asyncio.Task[httpx.Response]]:
    user = {"username": name, "password": PASSWORD, "is_admin": True}
    return [asyncio.create_task(http.post(url, json=b)) for url, b in (("/api/users", user), ("/v0/keys", KEY))]


@EITHER
async def test_it_closes_the_service(service: Running, topic: str, way: str) -> None:
    async with client(service) as anybody:
        for headers in ({}, basic("admin", "secret"), bearer("wrong")):  # ignored: all is open
            assert (await anybody.get("/v0/topics", headers=headers)).status_code == 200
        assert done(await anybody.get("/api/auth/status")) == {"auth_required": False}
        refused(await anybody.post("/api/auth/refresh"), 401, "unauthorized")
        await Topic(anybody, topic).put()
        async with working(Topic(anybody, topic)) as stream:
            boss = await first(anybody, way)
            assert (await stream.error())["code"] == 401
            assert await stream.frame() is None
        assert done(await anybody.get("/api/auth/status")) == {"auth_required": True}
        for path in ("/v0/topics", "/api/messages", "/admin/horizon"):
            assert (await anybody.get(path)).status_code == 401
            assert (await anybody.get(path, headers=boss)).status_code == 200
        assert [answer.status_code for answer in await asyncio.gather(*attempts(anybody))] == [401, 401]
        made = accepted(await anybody.post("/v0/keys", json=KEY, headers=boss))
        assert made["created_by"] != "open"
        await add_user(anybody, headers=boss)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/users", {"username": "u", "password": PASSWORD, "is_admin": False}),
        ("/v0/keys", KEY | {"scopes": ["read", "write", "delete"]}),
        ("/v0/keys", KEY | {"prefixes": ["mail."]}),
    ],
)
async def test_the_first_must_be_able_to_make_the_others(service: Running, path: str, body: Body) -> None:
    async with client(service) as anybody:
        error = refused(await anybody.post(path, json=body), 400, "invalid_request")
        assert re.search("first (user|key)", error["message"])
        assert (await anybody.get("/v0/topics")).status_code == 200


async def test_of_many_who_want_to_be_first_one_is(service: Running, services: Services) -> None:
    async with client(service) as anybody:
        answers = await asyncio.gather(*(one for n in range(3) for one in attempts(anybody, f"u{n}")))
    assert sorted(answer.status_code for answer in answers) == [201, *[401] * 5]
    [kept] = await services.sql("SELECT (SELECT count(*) FROM holdfast.api_keys) + count(*) AS n FROM holdfast.users")
    assert kept["n"] == 1


@EITHER
async def test_another_process_does_not_let_anybody_in_meanwhile(
    service: Running, services: Services, way: str
) -> None:
    other = await services.start(bcrypt_cost=10)
    async with client(service) as here, client(other) as there:
        await first(here, way)
        assert [answer.status_code for answer in await asyncio.gather(*attempts(there))] == [401, 401]
        assert (await there.put(f"/api/users/{EXAMPLES['id']}", json={"password": PASSWORD})).status_code == 401
        refused(await there.get("/v0/topics"), 401, "unauthorized")


@EITHER
async def test_it_does_not_open_again_when_the_last_is_gone(service: Running, services: Services, way: str) -> None:
    async with client(service) as anybody:
        boss = await first(anybody, way)
        if way == "key":
            [key] = accepted(await anybody.get("/v0/keys", headers=boss))["keys"]
            accepted(await anybody.delete(f"/v0/keys/{key['id']}", headers=boss))
        await services.sql("UPDATE holdfast.users SET deleted_at = now(), password_hash = NULL")
        await service.context.access.directory.reload()
        refused(await anybody.get("/v0/topics"), 401, "unauthorized")
        async with client(await services.start()) as later:
            refused(await later.get("/v0/topics"), 401, "unauthorized")
        await services.forget_keys()
        await service.context.access.directory.reload()
        refused(await anybody.get("/v0/topics"), 401, "unauthorized")


@EITHER
async def test_an_address_that_others_reach_needs_one(service: Running, services: Services, way: str) -> None:
    app = create_app(Settings.model_validate({"database_url": services.url, "host": "0.0.0.0"}))
    with pytest.raises(ConfigurationError) as error:
        async with app.router.lifespan_context(app):
            pass
    ways = ("HOLDFAST_HOST=0.0.0.0", "keys add", "users add --admin", "HOLDFAST_API_KEYS")
    for word in (*ways, "HOLDFAST_ALLOW_INSECURE_NO_AUTH=1"):
        assert word in str(error.value)
    await services.start(host="0.0.0.0", allow_insecure_no_auth=True)
    await services.start(host="0.0.0.0", api_keys="root")
    async with client(service) as anybody:
        await first(anybody, way)
    await services.start(host="0.0.0.0")


async def sent(http: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]) -> int:
    address = re.sub(r"{(\w+)}", lambda name: EXAMPLES.get(name[1], "x"), path)
    async with http.stream(method, address, headers=headers) as answer:
        return answer.status_code


@EITHER
async def test_no_route_answers_without_sign_in(service: Running, way: str) -> None:
    """Made from the service's own description of its routes: a new one is among them, and so are streams."""
    async with client(service) as http:
        boss = await first(http, way)
        document = (await http.get("/openapi.json")).json()
        routes = {(m.upper(), path): one for path, item in document["paths"].items() for m, one in item.items()}
        opened = {route for route, one in routes.items() if one.get("security") == []}
        assert opened == TO_ALL
        assert len(routes) > len(opened) + 40
        stale = jwt.encode({"iss": "holdfast", "sub": EXAMPLES["id"], "epoch": 1, "iat": 0, "exp": 1}, "s" * 32)
        ways: list[dict[str, str]] = [{}, bearer("hf_guess"), bearer(stale), {"authorization": "Basic !"}, basic("")]
        for method, path in routes:
            answers = {await sent(http, method, path, headers) for headers in ways[: 5 if path == "/v0/keys" else 4]}
            if (method, path) in STREAMS:
                answers |= {await sent(http, method, f"{path}?node=n&token={t}", {}) for t in ("", "hf_guess", stale)}
            elif way == "key":  # a good one, where no key is taken from the query
                secret = boss["authorization"].removeprefix("Bearer ")
                answers.add(await sent(http, method, f"{path}?token={secret}", {}))
            if (method, path) not in opened:
                assert answers == {401}, (method, path)
            else:
                assert 401 not in answers or path == "/api/auth/login", (method, path)
        # What is not described: pages, other ways to write a path, and other methods.
        (pages,) = [route for route in service.app.routes if isinstance(route, Mount) and route.path == "/admin"]
        for path in [f"/admin{page.path}" for page in pages.routes if isinstance(page, Route)] + ["/admin/whatever"]:
            assert (await http.get(path)).status_code in {401, 404, 405} or path == "/admin/sign-in", path
        for path in {path for _, path in routes}:
            for method in ("HEAD", "OPTIONS", "PATCH", "TRACE"):
                assert await sent(http, method, path, {}) >= 400 or ("GET", path) in opened, (method, path)
        strange = ("/v0/topics/", "//v0/topics", "/v0/./topics", "/V0/topics", "/v0/topics%2f", "/healthz/../v0/topics")
        for path in strange:
            assert await sent(http, "GET", path, {}) >= 300, path
