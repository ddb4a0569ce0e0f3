"""The OpenAPI document: every route, parameter, field and answer is described, bounded and has an example that fits.
That answers are as it says is tested in test_exchanges.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import jsonschema
import msgspec

from app.http.openapi import STRUCTS
from tests import routes
from tests.api.dialect import Body
from tests.api.events import HEARTBEAT
from tests.examples import FILE
from tests.manual import frames
from tests.settings import completed, newer

if TYPE_CHECKING:
    from tests.conftest import Running

JSON = "application/json"
DOCUMENT = routes.document()
SCHEMAS = DOCUMENT["components"]["schemas"]
WITHOUT_JSON = {"/metrics", "/v0/topics/{topic}/work", "/v0/watch/{wid}", "/v0/users/{id}/events"}


def operations() -> Iterator[tuple[str, str, Body]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def named(part: object) -> set[str]:
    """The schemas that a part refers to, and those that they do."""
    found: set[str] = set()
    left = [json.dumps(part)]
    while left:
        new = set(re.findall(r"#/components/schemas/(\w+)", left.pop())) - found
        found |= new
        left += [json.dumps(SCHEMAS[name]) for name in new]
    return found


async def test_the_list_in_docs_is_current(service: Running) -> None:
    assert routes.FILE.read_text() == routes.page(), "make openapi writes it anew"
    async with httpx.AsyncClient(base_url=service.url) as plain:
        assert (await plain.get("/openapi.json")).json() == DOCUMENT


def test_every_operation_and_each_of_its_answers_is_described() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for method, path, operation in operations():
        where = f"{method} {path}"
        assert len(operation["description"]) > 10, where
        assert operation["summary"], where
        parameters = operation.get("parameters", [])
        assert all(one["description"] and one["schema"] for one in parameters), where
        declared = {one["name"] for one in parameters if one["in"] == "path" and one["required"]}
        assert declared == set(re.findall(r"{(\w+)}", path)), where
        assert operation["responses"].keys() & {"200", "201", "202", "204"}, where
        for status, response in operation["responses"].items():
            assert response["description"], where
            assert ("Retry-After" in response.get("headers", {})) == (status in {"429", "503"}), where
            if status == "204":
                assert "content" not in response
            elif status != "200" or path not in WITHOUT_JSON:
                ref = response["content"][JSON]["schema"]["$ref"]
                error = "/MessagesError" if path.startswith("/api/") else "/ErrorAnswer"
                assert ref.endswith(error) == (int(status) >= 400), where


def test_every_schema_is_one_and_every_reference_leads_to_one() -> None:
    refs = {name.rpartition("/")[2] for name in re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT))}
    assert refs == set(SCHEMAS) | set(DOCUMENT["components"]["headers"])
    for name, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["description"], name


def test_every_field_of_a_v0_request_says_what_it_is_for() -> None:
    """Itself, or by what it refers to."""
    bodies = [one["requestBody"] for _, path, one in operations() if path.startswith("/v0/") and "requestBody" in one]
    reached = named(bodies)
    assert reached >= {"WatchBody", "WatchFrom", "DiffBody", "Record", "AskedInFull"}
    without = [
        f"{name}.{field}"
        for name in sorted(reached)
        for field, shown in SCHEMAS[name].get("properties", {}).items()
        if not re.search(r'"description"|"\$ref"', json.dumps(shown))
    ]
    assert without == []


def test_every_number_and_list_that_is_sent_has_a_bound() -> None:
    """In its schema, or in words: what is clamped may be sent as it is."""
    unbounded, reached = [], set[str]()

    def look(schema: Body, where: str, words: str) -> None:
        words += schema.get("description", "")
        if "$ref" in schema and (name := schema["$ref"].rpartition("/")[2]) not in reached:
            reached.add(name)
            look(SCHEMAS[name], name, "")
        whole = {"minimum", "maximum"} <= schema.keys() or re.search("(?i)clamped|no limit", words) or "seq" in where
        listed = {"maxItems", "prefixItems"} & schema.keys() or {"enum", "const"} & schema.get("items", {}).keys()
        if (schema.get("type") == "integer" and not whole) or (
            schema.get("type") == "array" and not listed and not re.search(r"[Oo]ne for each|up to|\d to \d", words)
        ):
            unbounded.append(where)
        for one in schema.get("oneOf") or schema.get("anyOf") or ():
            look(one, where, words)
        for name, one in schema.get("properties", {}).items():
            look(one, f"{where}.{name}", "")
        if isinstance(schema.get("items"), dict):
            look(schema["items"], f"{where}[]", words)

    for method, path, operation in operations():
        for parameter in operation.get("parameters", ()):
            look(parameter["schema"], f"{method} {path} {parameter['name']}", parameter["description"])
        for kind in operation.get("requestBody", {}).get("content", {}).values():
            look(kind["schema"], f"{method} {path}", "")
    assert len(reached) > 20
    assert unbounded == []


def test_every_body_and_every_answer_has_an_example_that_fits() -> None:
    """Its schema, and its struct: JSON Schema takes 5.0 for an integer, and a client's decoder does not."""
    later = newer(FILE.read_text())
    for method, path, operation in operations():
        answers = [one for status, one in operation["responses"].items() if status < "300" and "content" in one]
        shown = [kind for one in answers for kind in one["content"].values()]
        asked = operation.get("requestBody", {"content": {}})["content"].values()
        for kinds in (shown, asked):
            assert not kinds or path == "/metrics" or any("example" in kind for kind in kinds), f"{method} {path}"
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            content = part.get("content", {}).get(JSON, {})
            if "example" not in content:
                continue
            example = completed(later, content["example"])
            whole = {**content["schema"], "components": DOCUMENT["components"]}
            jsonschema.Draft202012Validator(whole).validate(example)
            for schema in content["schema"].get("anyOf", [content["schema"]]):
                if "$ref" in schema:
                    msgspec.json.decode(json.dumps(example), type=STRUCTS[schema["$ref"].rpartition("/")[2]])


def test_the_frames_of_a_stream_are_shown() -> None:
    work = DOCUMENT["paths"]["/v0/topics/{topic}/work"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    first, heartbeat, job, error = frames(work["example"])
    assert (first, heartbeat) == (("retry: 2000", None), (HEARTBEAT, None))
    assert job[0] == "id: 2\nevent: job\n"
    assert job[1].keys() == {"topic", "$seq", "lease_id", "deadline", "$ts", "deliveries", "token", "data"}
    assert error[1]["code"] == 503
