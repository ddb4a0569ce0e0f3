"""What each route declares, against what requests meet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from app.main import ALL_PAGES
from app.pages import render
from app.pages.permissions import Role
from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.keyring import ALL, Services, bearer, client, make
from tests.api.people import add_user, basic, token_of
from tests.api.scopes import (
    ANY_USER,
    CONSUMES,
    DECLARED,
    FOREIGN,
    NO_WATCH,
    OF_BROWSERS,
    OF_TOKENS,
    OPEN,
    RIGHTS,
    SIGNED_IN,
    TABLE,
    T,
)

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

EACH = pytest.mark.parametrize("route", TABLE, ids=" ".join)


@pytest.fixture(scope="module")
async def service(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await (await Services.make(serve, new_database)).start(api_keys="root", bcrypt_cost=10)


@pytest.fixture
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as http:
        yield http


@pytest.fixture(scope="module")
async def keys(service: Running) -> dict[str, Body]:
    """A key for each scope alone, by its name; "mine" may do everything in topics of its own; and two of nobody's."""
    async with client(service, "root") as root:
        await Topic(root, FOREIGN).put()
        made = {scope: await make(root, scope, [scope]) for scope in ALL}
        made["mine"] = await make(root, "mine", prefixes=["mine."])
        made["other"], made["spare"] = [await make(root, name) for name in ("other", "spare")]
    return made


@pytest.fixture(scope="module")
async def people(service: Running, keys: dict[str, Body]) -> dict[str, dict[str, str]]:
    """Users who have signed in: one for each right alone; "mine" with all of them, in topics of its own; "nothing"
    with none; and an admin."""
    grants = {right: [right] for right in ("read", "write", "consume", "admin")}
    grants |= {"mine": [f"{right} mine.*" for right in ("read", "write", "admin")], "nothing": [], "boss": []}
    shown = {}
    async with client(service, "root") as root:
        for name, granted in grants.items():
            await add_user(root, *granted, name=name, is_admin=name == "boss")
            shown[name] = await token_of(root, name)
    return shown


def routes(service: Running) -> set[tuple[str, str]]:
    found = {(m, r.path_format) for r in service.app.routes if isinstance(r, APIRoute) for m in r.methods or ()}
    assert found
    return found


async def ask(http: httpx.AsyncClient, route: tuple[str, str], key_id: str, headers: dict[str, str]) -> httpx.Response:
    method, path = route
    row = TABLE[route]
    url = (
        path.replace("{topic}", FOREIGN)
        .replace("{id}", key_id)
        .replace("{wid}", NO_WATCH)
        .replace("{name}", "expiry")
        .replace("{cluster}", "0" * 16)
        + row.query
    )
    content = {} if row.body is None else {"json": row.body}
    request = http.build_request(method, url, headers=headers, **content)  # type: ignore[arg-type]
    response = await http.send(request, stream=True)
    if response.status_code != 200:
        await response.aread()
    await response.aclose()
    return response


def test_every_route_is_declared_and_no_row_is_without_its_route(service: Running) -> None:
    assert routes(service) == set(DECLARED) == set(TABLE) | OPEN | SIGNED_IN | OF_TOKENS


async def test_nothing_else_answers_without_a_key(service: Running, http: httpx.AsyncClient) -> None:
    others = {getattr(r, "path", str(r)) for r in service.app.routes if not isinstance(r, APIRoute)}
    # The first says what the routes are, and nothing of what the service holds; the pages are those below. The last is
    # a WebSocket, which tests/test_sockets.py asks for a token.
    assert others == {"/openapi.json", "/admin", "/admin/static", "/v0/users/{id}/events"}
    for path in {path for method, path in OPEN if method == "GET"} | {
        "/openapi.json",
        render.asset_address("admin.css"),
    }:
        assert (await http.get(path)).status_code == 200


async def test_pages_need_a_key_as_their_routes_do(
    service: Running, http: httpx.AsyncClient, keys: dict[str, Body]
) -> None:
    (mount,) = [r for r in service.app.routes if isinstance(r, Mount) and r.path == "/admin"]
    others = {r.path for r in mount.routes if isinstance(r, Route)} - {page.path for page in ALL_PAGES}
    assert others == {"/sign-in", "/sign-out"}
    for page in ALL_PAGES:
        method, path, permission = page.method, page.path, page.needs
        address = f"/admin{path}".replace("{topic}", FOREIGN)
        for headers, may in (
            ({}, False),
            (bearer(keys["read"]["secret"]), permission.role is Role.VIEWER),
            (bearer(keys["mine"]["secret"]), "{topic}" not in path and not permission.server),
            (bearer(keys["other"]["secret"]), True),
        ):
            answer = await http.request(method, address, headers=headers)
            refused = 403 if headers else 401
            assert (answer.status_code != refused) is may, (method, path, headers)


@EACH
async def test_it_refuses_who_shows_no_key(
    http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    for headers in ({}, bearer("hf_guess"), {"authorization": "Basic cm9vdA=="}):
        refused(await ask(http, route, keys["other"]["id"], headers), 401, "unauthorized")


@EACH
async def test_it_needs_each_of_its_scopes(
    service: Running, http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    needed = DECLARED[route].split("+")
    for scope in ALL:
        answer = await ask(http, route, keys["other"]["id"], bearer(keys[scope]["secret"]))
        missing = [word for word in needed if word != scope]
        if missing:
            assert f"the scope {'+'.join(missing)}." in refused(answer, 403, "forbidden")["message"]
        else:
            assert answer.status_code != 401, answer.text
            assert "lacks" not in answer.text if answer.status_code == 403 else True
            if route == ("DELETE", T):
                async with client(service, "root") as root:
                    await Topic(root, FOREIGN).put()


@EACH
async def test_a_key_of_other_topics_gets_nowhere(
    http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    row = TABLE[route]
    answer = await ask(http, route, keys["other"]["id"], bearer(keys["mine"]["secret"]))
    if row.foreign == 200:
        assert answer.status_code == 200
        file, _, name = row.shown_by.partition(": ")
        assert f"def {name}(" in Path(__file__).parent.joinpath(f"{file}.py").read_text()
    else:
        refused(answer, row.foreign, {403: "forbidden", 404: "not_found"}[row.foreign])


@EACH
async def test_a_user_needs_a_grant_of_each_of_its_scopes(
    service: Running,
    http: httpx.AsyncClient,
    keys: dict[str, Body],
    people: dict[str, dict[str, str]],
    route: tuple[str, str],
) -> None:
    needed = {RIGHTS[scope] for scope in DECLARED[route].split("+")}
    for right in ("read", "write", "consume", "admin", "nothing"):
        allowed = right in {"write", "consume"} if route in CONSUMES else needed == {right}
        answer = await ask(http, route, keys["other"]["id"], people[right])
        if allowed or route in ANY_USER:
            assert answer.status_code != 401, answer.text
            assert "granted" not in answer.text if answer.status_code == 403 else True
            if route == ("DELETE", T):
                async with client(service, "root") as root:
                    await Topic(root, FOREIGN).put()
        else:
            assert "Nothing that is granted to this user" in refused(answer, 403, "forbidden")["message"]


@EACH
async def test_an_admin_bypasses_grants_and_may_sign_in_in_each_way(
    service: Running,
    http: httpx.AsyncClient,
    keys: dict[str, Body],
    people: dict[str, dict[str, str]],
    route: tuple[str, str],
) -> None:
    for headers in (people["boss"], basic("boss")):
        answer = await ask(http, route, keys["spare"]["id"], headers)
        assert answer.status_code not in {401, 403}, answer.text
        if route == ("DELETE", T):
            async with client(service, "root") as root:
                await Topic(root, FOREIGN).put()


@EACH
async def test_a_user_of_other_topics_gets_nowhere(
    http: httpx.AsyncClient, keys: dict[str, Body], people: dict[str, dict[str, str]], route: tuple[str, str]
) -> None:
    row = TABLE[route]
    answer = await ask(http, route, keys["other"]["id"], people["mine"])
    if row.foreign == 200:
        assert answer.status_code == 200
    else:
        refused(answer, row.foreign, {403: "forbidden", 404: "not_found"}[row.foreign])


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_topics_that_a_body_names_are_looked_at_too(
    http: httpx.AsyncClient, keys: dict[str, Body], method: str, topic: str
) -> None:
    config = {"type": "queue", "dead_letter": FOREIGN}
    body = config if method == "PUT" else {"records": [{"data": 1}], "config": config}
    headers = bearer(keys["mine"]["secret"])
    error = refused(
        await http.request(method, f"/v0/topics/mine.{topic}", json=body, headers=headers), 403, "forbidden"
    )
    assert error["detail"] == {"topic": FOREIGN}
    config["dead_letter"] = f"mine.{topic}.dead"
    accepted(await http.request(method, f"/v0/topics/mine.{topic}", json=body, headers=headers))


@pytest.mark.parametrize("route", [route for route in TABLE if route not in OF_BROWSERS], ids=" ".join)
async def test_no_other_route_takes_a_key_from_the_query(
    http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    method, path = route
    url = path.replace("{topic}", FOREIGN).replace("{id}", keys["other"]["id"])
    query = {"token": keys["other"]["secret"]}
    refused(await http.request(method, url, params=query, json=TABLE[route].body), 401, "unauthorized")
