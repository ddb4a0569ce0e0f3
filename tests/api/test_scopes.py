"""What each route declares, against what requests meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.routing import Mount, Route

from app.main import ALL_PAGES
from app.pages.permissions import Role
from tests.api.dialect import Body, Topic, refused
from tests.api.keyring import ALL, Services, bearer, client, make
from tests.api.people import add_user, basic, token_of
from tests.api.scopes import DECLARED, FOREIGN, NO_WATCH, TABLE, T

if TYPE_CHECKING:
    from tests.conftest import Running

EACH = pytest.mark.parametrize("route", TABLE, ids=" ".join)
# What a user may do who is granted write or consume there, and nothing else.
CONSUMES = {
    *(("POST", f"{T}/{verb}") for verb in ("claim", "ack", "nack", "fail", "extend")),
    *(("POST", f"/api/messages/{verb}") for verb in ("dequeue", "ack")),
    *(("POST", f"/api/messages/{{id}}/{verb}") for verb in ("ack", "nack", "extend")),
    ("GET", f"{T}/work"),
    ("POST", "/v0/claim"),
}
ANY_USER = {("GET", "/metrics"), ("GET", "/v0/metrics")}
RIGHTS = {"read": "read", "write": "write", "delete": "admin", "admin": "admin"}


@pytest.fixture(scope="module")
async def service(services: Services) -> Running:
    return await services.start(api_keys="root", bcrypt_cost=10)


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
    """Users who have signed in: one for each right alone, one with nothing, and an admin."""
    shown = {}
    async with client(service, "root") as root:
        for right in ("read", "write", "consume", "admin"):
            await add_user(root, right, name=right)
        await add_user(root, name="nothing")
        await add_user(root, name="boss", is_admin=True)
        for name in ("read", "write", "consume", "admin", "nothing", "boss"):
            shown[name] = await token_of(root, name)
    return shown


async def ask(http: httpx.AsyncClient, route: tuple[str, str], key_id: str, headers: dict[str, str]) -> httpx.Response:
    """The answer; of a stream, once it is open. The topic is there again afterwards."""
    method, path = route
    row = TABLE[route]
    names = {"topic": FOREIGN, "id": key_id, "wid": NO_WATCH, "name": "expiry", "cluster": "0" * 16}
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    content = {} if row.body is None else {"json": row.body}
    async with http.stream(method, path + row.query, headers=headers, **content) as response:  # type: ignore[arg-type]
        if response.status_code != 200:
            await response.aread()
    if route == ("DELETE", T) and response.status_code == 200:
        await http.put(f"/v0/topics/{FOREIGN}", json={"type": "queue"}, headers=bearer("root"))
    return response


async def test_pages_need_a_key_as_their_routes_do(
    service: Running, http: httpx.AsyncClient, keys: dict[str, Body]
) -> None:
    (mount,) = [r for r in service.app.routes if isinstance(r, Mount) and r.path == "/admin"]
    others = {r.path for r in mount.routes if isinstance(r, Route)} - {page.path for page in ALL_PAGES}
    assert others == {"/sign-in", "/sign-out"}
    for page in ALL_PAGES:
        address = f"/admin{page.path}".replace("{topic}", FOREIGN)
        for headers, may in (
            ({}, False),
            (bearer(keys["read"]["secret"]), page.needs.role is Role.VIEWER),
            (bearer(keys["mine"]["secret"]), "{topic}" not in page.path and not page.needs.server),
            (bearer(keys["other"]["secret"]), True),
        ):
            answer = await http.request(page.method, address, headers=headers)
            refused = 403 if headers else 401
            assert (answer.status_code != refused) is may, (page.method, page.path, headers)


@EACH
async def test_it_needs_each_of_its_scopes(
    http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    needed = DECLARED[route].split("+")
    for scope in ALL:
        answer = await ask(http, route, keys["other"]["id"], bearer(keys[scope]["secret"]))
        missing = [word for word in needed if word != scope]
        if missing:
            assert f"the scope {'+'.join(missing)}." in refused(answer, 403, "forbidden")["message"]
        else:
            assert answer.status_code != 401, answer.text
            assert answer.status_code != 403 or "lacks" not in answer.text


@EACH
async def test_a_user_needs_a_grant_of_each_of_its_scopes_and_an_admin_none(
    http: httpx.AsyncClient, keys: dict[str, Body], people: dict[str, dict[str, str]], route: tuple[str, str]
) -> None:
    needed = {RIGHTS[scope] for scope in DECLARED[route].split("+")}
    for right in ("read", "write", "consume", "admin", "nothing"):
        allowed = right in {"write", "consume"} if route in CONSUMES else needed == {right}
        answer = await ask(http, route, keys["other"]["id"], people[right])
        if allowed or route in ANY_USER:
            assert answer.status_code != 401, answer.text
            assert answer.status_code != 403 or "granted" not in answer.text
        else:
            assert "This user has no grant that allows" in refused(answer, 403, "forbidden")["message"]
    for headers in (people["boss"], basic("boss")):
        answer = await ask(http, route, keys["spare"]["id"], headers)
        assert answer.status_code not in {401, 403}, answer.text
