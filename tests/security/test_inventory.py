"""What there is, is known: routes, the OpenAPI document, the manual and the tables of the tests name the same ones."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from app.main import ALL_PAGES
from tests.api.keyring import Services, client
from tests.api.scopes import OF_TOKENS, OPEN, SIGNED_IN, TABLE
from tests.routes import document
from tests.security.objects import routes

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

DOCS = Path(__file__).parents[2] / "docs"
# What other services have, older ones had, and tools look for.
NOWHERE = [
    *(
        "/docs",
        "/redoc",
        "/swagger",
        "/swagger.json",
        "/api-docs",
        "/graphql",
        "/v1",
        "/v1/topics",
        "/v2/topics",
        "/v0",
    ),
    *(
        "/api",
        "/api/v1/messages",
        "/api/v0/messages",
        "/internal",
        "/debug",
        "/debug/pprof",
        "/console",
        "/actuator/env",
    ),
    *("/.env", "/.git/config", "/server-status", "/robots.txt", "/favicon.ico", "/static/", "/admin/static/"),
    *(
        "/admin/static/../../settings.py",
        "/admin/static/%2e%2e/%2e%2e/settings.py",
        "/admin/static/..%2f..%2fsettings.py",
    ),
    *("/v0//topics", "/V0/topics", "/v0/topics/", "/v0/topics%00", "/v0;x/topics", "/%76%30/topics/%2e%2e/keys"),
]


@pytest.fixture(scope="module")
async def service(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await (await Services.make(serve, new_database)).start(api_keys="root")


def served(service: Running) -> set[tuple[str, str]]:
    return {(m, r.path_format) for r in service.app.routes if isinstance(r, APIRoute) for m in r.methods or ()}


def test_routes_document_and_tables_are_one_set(service: Running) -> None:
    assert served(service) == set(routes()) == set(TABLE) | OPEN | SIGNED_IN | OF_TOKENS


def test_the_manual_names_every_route_and_none_besides(service: Running) -> None:
    """In the tables of docs/http.md, and wherever a page shows a path."""
    there = [re.compile(re.sub(r"{\w+}", "[^/]+", path) + r"\Z") for _, path in served(service)]
    in_table = re.findall(r"^\| \[`(\w+) (/\S+)`\]", (DOCS / "http.md").read_text(), re.MULTILINE)
    assert {(method, path) for method, path in in_table} - {("GET", "/openapi.json")} == served(service)
    spoken = {
        path
        for page in DOCS.glob("*.md")
        for path in re.findall(r"`(?:GET|PUT|POST|DELETE|PATCH) (/(?:v0|api|in)/[^`? ]+)", page.read_text())
    }
    assert [path for path in spoken if not any(route.match(path) for route in there)] == [], "there is none such"


def test_every_link_leads_to_an_operation_and_gives_what_its_path_needs() -> None:
    """Links are what stateful requests follow: tests/api/test_schemathesis.py."""
    paths = document()["paths"]
    by_id = {operation["operationId"]: path for path, item in paths.items() for operation in item.values()}
    found = {
        (path, link["operationId"]): set(link.get("parameters", {}))
        for path, item in paths.items()
        for operation in item.values()
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    }
    assert {path for path, _ in found} >= {"/v0/topics/{topic}", "/v0/topics/{topic}/claim", "/api/messages"}
    wrong = {link for link, given in found.items() if given != set(re.findall(r"{(\w+)}", by_id[link[1]]))}
    assert wrong == set()


def test_pages_are_a_table_too(service: Running) -> None:
    (mount,) = [r for r in service.app.routes if isinstance(r, Mount) and r.path == "/admin"]
    pages = {(page.method, page.path) for page in ALL_PAGES}
    found = {(m, r.path) for r in mount.routes if isinstance(r, Route) for m in (r.methods or set()) - {"HEAD"}}
    assert found - pages == {("GET", "/sign-in"), ("POST", "/sign-in"), ("POST", "/sign-out")}
    assert pages <= found


async def test_nothing_is_where_nothing_is_meant_to_be(service: Running) -> None:
    async with client(service, "root") as http:
        for path in NOWHERE:
            request = http.build_request("GET", service.url + "/")
            request.url = httpx.URL(service.url + path)
            answer = await http.send(request)
            assert answer.status_code in {400, 404, 405}, (path, answer.status_code)
            assert "BaseModel" not in answer.text


@pytest.mark.parametrize("path", ["/v0/topics", "/api/messages", "/admin/", "/healthz", "/in/t"])
async def test_methods_that_nobody_declared_are_none(service: Running, path: str) -> None:
    async with client(service, "root") as http:
        for method in ("TRACE", "CONNECT", "OPTIONS", "PATCH", "PROPFIND"):
            answer = await http.request(method, path)
            assert answer.status_code in {400, 404, 405}, (method, answer.status_code)
