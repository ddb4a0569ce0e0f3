"""The OpenAPI document: complete, and in short in docs/routes.txt. Its truth is tested in test_exchanges.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import jsonschema
import pytest
from fastapi.routing import APIRoute

from tests import routes
from tests.api.dialect import Body

if TYPE_CHECKING:
    from tests.conftest import Running

UNPROCESSABLE = {
    "GET /v0/topics/{topic}/asof",
    "GET /v0/topics/{topic}/asof/jobs",
    "PATCH /v0/topics/{topic}/jobs/{seq}",
    "POST /v0/topics/{topic}",
    "POST /api/topics/{topic}/replay",
    "PUT /api/admin/delete-reaper/schedule",
    "POST /api/messages",
    "POST /api/messages/batch",
    "POST /in/{topic}",
    "POST /in/{topic}/{group}",
    "POST /in/{topic}/{group}/{dedupe}",
    "PUT /v0/schedules/{name}",
    "POST /v0/schedules/{name}/run",
}

STREAMS = ("/work", "/{wid}", "/users/{id}/events")


@pytest.fixture(scope="module")
def document(service: Running) -> Body:
    found: Body = service.app.openapi()
    return found


def operations(document: Body) -> Iterator[tuple[str, str, Body]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


def test_it_has_every_route_and_no_other(service: Running, document: Body) -> None:
    routes = {
        (route.path_format, method)
        for route in service.app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert routes
    assert {(path, method) for path, method, _ in operations(document)} == routes


def test_every_operation_says_what_it_is_for_and_has_a_name_of_its_own(document: Body) -> None:
    all_of_them = [operation for _, _, operation in operations(document)]
    assert all(len(operation["description"]) > 10 and operation["summary"] for operation in all_of_them)
    names = [operation["operationId"] for operation in all_of_them]
    assert len(set(names)) == len(names)


def test_every_parameter_of_a_path_is_declared(document: Body) -> None:
    for path, method, operation in operations(document):
        declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path" and p["required"]}
        assert declared == set(re.findall(r"{(\w+)}", path)), (method, path)
        assert all(p["description"] and p["schema"] for p in operation.get("parameters", []))


def test_every_answer_and_error_has_its_schema(document: Body) -> None:
    for path, method, operation in operations(document):
        where = f"{method} {path}"
        responses = operation["responses"]
        assert responses.keys() & {"200", "201", "202", "204"}, where
        assert ("422" in responses) == (where in UNPROCESSABLE), where
        for status, response in responses.items():
            assert response["description"], where
            if method == "GET" and path.endswith(STREAMS) and status == "200":
                assert set(response["content"]) == {"text/event-stream"}
                continue
            if status == "204":
                assert "content" not in response
                continue
            if path == "/metrics" and status == "200":
                assert set(response["content"]) == {"text/plain"}
                continue
            ref = response["content"]["application/json"]["schema"]["$ref"]
            error = "/MessagesError" if path.startswith("/api/") else "/ErrorAnswer"
            assert ref.endswith(error) == (int(status) >= 400), where
        if path.startswith("/v0/topics"):
            expected = {"400", "401", "403", "503"}
            if method in {"POST", "PUT"}:
                expected |= {"413", "415"}
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                for one in schema.get("anyOf", [schema]):  # a queue's records, or a log's
                    assert one["$ref"].startswith("#/components/schemas/"), where
                # A PUT and these have defaults for all.
                required = method == "POST" and not path.endswith(("/diff", "/pause", "/resume", "/drain"))
                assert operation["requestBody"]["required"] is required, where
            assert expected <= set(responses), where


def test_every_schema_is_one_and_every_reference_leads_to_one(document: Body) -> None:
    schemas = document["components"]["schemas"]
    named = {name.rpartition("/")[2] for name in re.findall(r'"\$ref": "([^"]+)"', json.dumps(document))}
    assert named == set(schemas) | set(document["components"]["headers"])
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["description"], name


def test_the_list_in_docs_is_current(document: Body) -> None:
    assert routes.document() == json.loads(json.dumps(document))
    assert routes.FILE.read_text() == routes.page(), "make openapi writes it anew"


async def test_the_service_shows_it(service: Running, document: Body) -> None:
    async with httpx.AsyncClient(base_url=service.url) as plain:
        assert (await plain.get("/openapi.json")).json() == json.loads(json.dumps(document))
