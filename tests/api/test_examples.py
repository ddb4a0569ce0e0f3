"""Every field is described. The description's examples are real ones: tests/test_manual.py takes them from a run, and
here they fit what routes decode with and what they answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import jsonschema
import msgspec
import pytest

from app.http.openapi import STRUCTS
from tests.api.dialect import Body
from tests.api.events import HEARTBEAT
from tests.examples import FILE
from tests.manual import frames
from tests.settings import completed, newer

if TYPE_CHECKING:
    from tests.conftest import Running

JSON = "application/json"


@pytest.fixture(scope="module")
def document(service: Running) -> Body:
    found: Body = service.app.openapi()
    return found


def contents(document: Body) -> Iterator[tuple[str, Body]]:
    """What goes in, and what comes out well, of each operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if "requestBody" in operation:
                yield f"{method} {path}", operation["requestBody"]["content"]
            answers = operation["responses"].items()
            done = [answer for status, answer in answers if status < "300" and "content" in answer]
            if not done:
                continue
            shown = [answer for answer in done if any("example" in kind for kind in answer["content"].values())]
            yield f"{method} {path} {done[0]['description']}", (shown or done)[0]["content"]


def test_every_field_of_a_v0_request_says_what_it_is_for(document: Body) -> None:
    """Itself, or by what it refers to."""
    schemas, reached = document["components"]["schemas"], set()
    left = [
        operation["requestBody"]
        for path, item in document["paths"].items()
        for operation in item.values()
        if path.startswith("/v0/") and "requestBody" in operation
    ]
    while left:
        for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(left.pop())):
            if name not in reached:
                reached.add(name)
                left.append(schemas[name])
    assert reached >= {"WatchBody", "WatchFrom", "DiffBody", "Record", "AskedInFull"}
    without = [
        f"{name}.{field}"
        for name in sorted(reached)
        for field, shown in schemas[name].get("properties", {}).items()
        if not re.search(r'"description"|"\$ref"', json.dumps(shown))
    ]
    assert without == []
    watch = schemas["WatchBody"]["properties"]
    defaults = {"limit": 256, "max_batch_bytes": 262_144, "heartbeat_ms": 15_000, "include_tags": False}
    assert {name: watch[name]["default"] for name in defaults} == defaults


def test_every_number_and_list_that_is_sent_has_a_bound(document: Body) -> None:
    """In its schema, or in words: what is clamped may be sent as it is."""
    schemas, unbounded, reached = document["components"]["schemas"], [], set[str]()

    def look(schema: Body, where: str, words: str) -> None:
        words += schema.get("description", "")
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name not in reached:
                reached.add(name)
                look(schemas[name], name, "")
        whole = (
            {"minimum", "maximum"} <= schema.keys()
            or "clamped" in words.lower()
            or "no limit" in words.lower()
            or "seq" in where
        )
        listed = {"maxItems", "prefixItems"} & schema.keys() or {"enum", "const"} & schema.get("items", {}).keys()
        if (schema.get("type") == "integer" and not whole) or (
            schema.get("type") == "array" and not listed and not re.search(r"[Oo]ne for each|up to|\d to \d", words)
        ):
            unbounded.append(where)
        for one in (
            schema.get("oneOf") or schema.get("anyOf") or ()
        ):  # the one is more than the type, where there are both
            look(one, where, words)
        for name, one in schema.get("properties", {}).items():
            look(one, f"{where}.{name}", "")
        if isinstance(schema.get("items"), dict):
            look(schema["items"], f"{where}[]", words)

    for path, item in document["paths"].items():
        for method, operation in item.items():
            for parameter in operation.get("parameters", ()):
                look(parameter["schema"], f"{method} {path} {parameter['name']}", parameter["description"])
            for kind in operation.get("requestBody", {}).get("content", {}).values():
                look(kind["schema"], f"{method} {path}", "")
    assert len(reached) > 20
    assert unbounded == []


def test_every_body_and_every_answer_has_an_example(document: Body) -> None:
    without = [
        where
        for where, content in contents(document)
        if not any("example" in kind for kind in content.values()) and set(content) != {"text/plain"}
    ]
    assert without == []


def test_what_is_sent_decodes_as_the_route_decodes_it(document: Body) -> None:
    seen = 0
    for item in document["paths"].values():
        for operation in item.values():
            if "requestBody" not in operation:
                continue
            content = operation["requestBody"]["content"][JSON]
            if content["schema"] == {}:  # any JSON, and not decoded
                continue
            text = json.dumps(content["example"])
            for schema in content["schema"].get("anyOf", [content["schema"]]):
                msgspec.json.decode(text, type=STRUCTS[schema["$ref"].rpartition("/")[2]])
                seen += 1
    assert seen > 8


def test_every_example_fits_its_schema(document: Body) -> None:
    """And its struct: JSON Schema takes 5.0 for an integer, and a client's decoder does not."""
    later = newer(FILE.read_text())
    for item in document["paths"].values():
        for operation in item.values():
            parts = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in (part["content"][JSON] for part in parts if JSON in part.get("content", ())):
                if "example" in content:
                    whole = {**content["schema"], "components": document["components"]}
                    example = completed(later, content["example"])
                    jsonschema.Draft202012Validator(whole).validate(example)
                    if "$ref" in content["schema"]:
                        struct = STRUCTS[content["schema"]["$ref"].rpartition("/")[2]]
                        msgspec.json.decode(json.dumps(example), type=struct)


def test_the_frames_of_a_stream_are_shown(document: Body) -> None:
    work = document["paths"]["/v0/topics/{topic}/work"]["get"]["responses"]["200"]["content"]["text/event-stream"]
    first, heartbeat, job, error = frames(work["example"])
    assert (first, heartbeat) == (("retry: 2000", None), (HEARTBEAT, None))
    assert job[0] == "id: 2\nevent: job\n"
    assert job[1].keys() == {"topic", "$seq", "lease_id", "deadline", "$ts", "deliveries", "token", "data"}
    assert error[1]["code"] == 503


def test_who_is_to_come_again_is_told_when(document: Body) -> None:
    for item in document["paths"].values():
        for operation in item.values():
            for status, answer in operation["responses"].items():
                assert ("Retry-After" in answer.get("headers", {})) == (status in {"429", "503"})
