"""Every exchange of tests/exchanges, asked again: each answer is as recorded, and as the OpenAPI document says.

`make exchanges` writes the answers anew. A new line needs only its request.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import jsonschema
import pytest

from app.base.log import ID_PATTERN
from tests import examples, routes
from tests.api.dialect import Body
from tests.api.keyring import Services, client
from tests.api.recording import FOLDER, JSON, Area

if TYPE_CHECKING:
    from tests.api.conftest import Serve

# In this order; the keys are first, as they show the whole audit trail.
AREAS = (
    *("keys", "topics", "streams", "probes", "messages", "message-logs", "views", "topic-configs", "schemas"),
    *("requeues", "failures", "explanations", "controls", "jobs", "schedules", "ingestion", "user-events"),
    *("reapers", "users"),
)
# Limits, what is away, and what goes on for longer: other tests have these.
SOMETIMES = {"202", "408", "414", "429", "431", "503"}
# Somebody makes the topic at this moment, as the other type; and what is set up in another test.
ELSEWHERE = {
    ("POST", "/v0/topics/{topic}", "409"),
    *(("GET", f"/v0/topics/{{topic}}/asof{end}", "422") for end in ("", "/jobs")),
    *(("GET", path, "401") for path in ("/healthz", "/v0/health", "/readyz", "/v0/ready")),
}


class Checked:
    """Holds every answer against the document, and remembers which it has seen."""

    def __init__(self) -> None:
        self._document = routes.document()
        self._closed = copy.deepcopy(self._document)
        for schema in self._closed["components"]["schemas"].values():
            if schema.get("properties"):
                schema["additionalProperties"] = False  # an answer has no field that is not described
        self.seen: set[tuple[str, str, str]] = set()

    def check(self, response: httpx.Response, text: bytes) -> None:
        request, status = response.request, str(response.status_code)
        path = examples.route(request.url.path)
        operation = self._document["paths"][path][request.method.lower()]
        self.seen.add((request.method, path, status))
        assert status in operation["responses"], f"{request.method} {path} answered {status}, which is not described"
        assert set(operation["responses"][status].get("headers", {})) <= {"Retry-After", "X-Job-Id", "X-Request-Id"}
        assert re.fullmatch(ID_PATTERN, response.headers["x-request-id"])
        if status in {"429", "503"}:
            assert int(response.headers["retry-after"]) >= 1
        if status == "204":
            assert text == b""
            return
        content = operation["responses"][status]["content"]
        kind = response.headers["content-type"].partition(";")[0]
        assert kind in content
        if kind == JSON:
            _validate(self._closed, content[kind]["schema"], text)
        if response.is_success and request.headers.get("content-type") == JSON:
            _validate(self._document, operation["requestBody"]["content"][JSON]["schema"], request.content)

    def unseen(self) -> set[tuple[str, str, str]]:
        """Answers that are described, but for those that other tests have."""
        described = {
            (method.upper(), path, status)
            for path, methods in self._document["paths"].items()
            for method, one in methods.items()
            for status in one["responses"]
        }
        return {answer for answer in described - self.seen if answer[2] not in SOMETIMES}


def _validate(document: Body, schema: Body, text: bytes) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(json.loads(text))


@pytest.fixture
async def http(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with keys, small bodies, and a database of its own."""
    services = await Services.make(serve, new_database)
    async with client(await services.start(api_keys="k,low:delete:nothing.", max_body_bytes=2_000)) as http:
        yield http


async def frames(pieces: AsyncIterator[bytes], line: str) -> bytes:
    """As much of a stream as its line has, without heartbeats."""
    seen = b""
    async for piece in pieces:
        seen = (seen + piece).replace(b": hb\n\n", b"")
        if seen.count(b"\n\n") >= max(1, line.count(r"\n\n")):
            break
    return seen


async def test_real_answers_are_as_it_says(http: httpx.AsyncClient) -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(AREAS)
    checked = Checked()
    for name in AREAS:
        area = Area(name)
        read = list[AsyncIterator[bytes]]()
        async with contextlib.AsyncExitStack() as streams:  # open until the area's end: what they hold stays theirs
            for line in area.lines:
                method, path, headers, body = area.request(line)
                request = http.build_request(method, path, headers=headers, content=body)
                response = await http.send(request, stream=True)
                streams.push_async_callback(response.aclose)
                streaming = response.headers.get("content-type", "").startswith("text/event-stream")
                pieces = response.aiter_bytes()
                read.append(pieces)  # their end would be that of the stream
                text = await (frames(pieces, line) if streaming else response.aread())
                checked.check(response, text)
                area.check(line, response, text)
        area.write()
    assert checked.unseen() == ELSEWHERE
