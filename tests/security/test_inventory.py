"""What there is, is known: routes, the OpenAPI document, the manual and the tables of the tests name the same ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from fastapi.routing import APIRoute

from app.pages import render
from tests.api.keyring import client
from tests.api.scopes import DECLARED, OF_TOKENS, OPEN, SIGNED_IN, TABLE
from tests.routes import document
from tests.security.objects import routes

if TYPE_CHECKING:
    from tests.conftest import Running

DOCS = Path(__file__).parents[2] / "docs"
# What other services have, older ones had, and tools look for.
NOWHERE = [
    *("/docs", "/redoc", "/swagger.json", "/graphql", "/v1/topics", "/v0", "/api", "/api/v1/messages", "/internal"),
    *("/debug/pprof", "/actuator/env", "/.env", "/.git/config", "/server-status", "/static/", "/admin/static/"),
    *(f"/admin/static/{up}settings.py" for up in ("../../", "..%2f..%2f", "%2e%2e/%2e%2e/")),
    *("/v0//topics", "/V0/topics", "/v0/topics/", "/v0/topics%00", "/v0;x/topics", "/%76%30/topics/%2e%2e/keys"),
]


async def test_routes_document_and_tables_are_one_set(service: Running) -> None:
    of_api = [r for r in service.app.routes if isinstance(r, APIRoute)]
    served = {(m, r.path_format) for r in of_api if r.include_in_schema for m in r.methods or ()}
    assert served == set(routes()) == set(DECLARED) == set(TABLE) | OPEN | SIGNED_IN | OF_TOKENS
    # tests/sqs/test_signatures.py asks them for a signature.
    assert {r.path_format for r in of_api if not r.include_in_schema} == {"/", "/{account}/{queue}"}
    others = {getattr(r, "path", str(r)) for r in service.app.routes if not isinstance(r, APIRoute)}
    # The first says what the routes are; pages are in tests/api/test_scopes.py. The last is a WebSocket, which
    # tests/test_sockets.py asks for a token.
    assert others == {"/openapi.json", "/admin", "/admin/static", "/v0/users/{id}/events"}
    async with client(service) as http:
        for path in ("/openapi.json", render.asset_address("admin.css")):
            assert (await http.get(path)).status_code == 200


def test_the_manual_names_no_route_that_there_is_not() -> None:
    there = [re.compile(re.sub(r"{\w+}", "[^/]+", path) + r"\Z") for _, path in routes()]
    spoken = {
        path
        for page in DOCS.glob("*.md")
        for path in re.findall(r"`(?:GET|PUT|POST|DELETE|PATCH) (/(?:v0|api|in)/[^`? ]+)", page.read_text())
    }
    assert spoken
    assert [path for path in spoken if not any(route.match(path) for route in there)] == []


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
    assert {link for link, given in found.items() if given != set(re.findall(r"{(\w+)}", by_id[link[1]]))} == set()


async def test_nothing_is_where_nothing_is_meant_to_be(service: Running) -> None:
    async with client(service, "root") as http:
        for path in NOWHERE:
            request = http.build_request("GET", service.url + "/")
            request.url = httpx.URL(service.url + path)
            answer = await http.send(request)
            assert answer.status_code in {400, 404, 405}, (path, answer.status_code)
            assert "BaseModel" not in answer.text
