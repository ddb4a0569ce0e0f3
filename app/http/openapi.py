"""Declares routes for OpenAPI. Schemas come from the msgspec structs that decode the bodies. The structs of answers
exist only for OpenAPI; a test checks real answers against them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from app.base.log import ID_PATTERN
from app.kernel.topics.settings import PATTERN

_JSON: Final = "application/json"
_REF = "#/components/schemas/{name}"
STRUCTS: Final[dict[str, type[msgspec.Struct]]] = {}  # used by routes, by name


def path(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter in the path."""
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def query(name: str, description: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    """A parameter in the query."""
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter in a request's header."""
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


NAME: Final = {"type": "string", "pattern": PATTERN}
TOPIC: Final = {**path("topic", "The topic's name.", NAME), "example": "mail"}
RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "Seconds to wait before the next try.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}

REQUEST_ID: Final = {
    "description": "The request's id: the caller's X-Request-Id if it is valid, else a new one. Each line of the "
    "service's log about this request has it.",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{ID_PATTERN}$"},
}


def operation(
    *,
    answers: Mapping[int, type[msgspec.Struct] | None],
    errors: Sequence[int],
    error: type[msgspec.Struct],
    body: type[msgspec.Struct] | Sequence[type[msgspec.Struct]],
    body_required: bool,
    parameters: Sequence[dict[str, Any]],
    open_to_all: bool,
) -> dict[str, Any]:
    """A route's `openapi_extra` for FastAPI.

    - answers: structs by status; None for an answer without a body.
    - errors: statuses; `error` is the dialect's struct for them.
    - body: the accepted structs.
    - open_to_all: the route never needs a key.
    """
    refusals = sorted({*errors, *_may_occur(errors)})
    described: dict[str, Any] = {
        "responses": {
            **{str(status): _answer_of(status, answer) for status, answer in answers.items()},
            **{str(status): _error(status, error) for status in refusals},
        }
    }
    if parameters:
        described["parameters"] = list(parameters)
    bodies = [body] if isinstance(body, type) else body
    if bodies:
        schemas = [_reference(one) for one in bodies]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        described["requestBody"] = {"required": body_required, "content": {_JSON: {"schema": schema}}}
    if open_to_all:
        described["security"] = []
    return described


def events(description: str, frames: str, kinds: Mapping[str, type[msgspec.Struct]] | None = None) -> dict[str, Any]:
    """A response that is a stream of server-sent events. `frames` is an example with one event of each kind; `kinds`
    maps names of events to the structs of their data."""
    json_text = {"type": "string", "contentMediaType": _JSON}
    schema: dict[str, Any] = {
        "description": "One event; its data is JSON.",
        "type": "object",
        "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": json_text},
        "required": ["event", "data"],
    }
    if kinds:
        schema["oneOf"] = [
            {"properties": {"event": {"const": name}, "data": {**json_text, "contentSchema": _reference(struct)}}}
            for name, struct in kinds.items()
        ]
    return {"description": description, "content": {"text/event-stream": {"schema": schema, "example": frames}}}


def _may_occur(errors: Sequence[int]) -> set[int]:
    """Statuses of errors that any request can get, before it reaches a route or because of overload."""
    return {408, 414, 431, 503} | ({429} if 401 in errors else set())


def components() -> dict[str, Any]:
    """The schemas of all structs that routes have used so far, and the security schemes."""
    _, schemas = msgspec.json.schema_components(list(STRUCTS.values()), ref_template=_REF)
    _show_defaults(schemas)
    for name, schema in schemas.items():
        schema.update(getattr(STRUCTS.get(name), "RULES", {}))  # rules that types can't express
    key = {"type": "http", "scheme": "bearer", "description": "An API key or a user's token."}
    user = {"type": "http", "scheme": "basic", "description": "A user's name and password."}
    ways = {"key": key, "user": user}
    return {"schemas": schemas, "headers": {"X-Request-Id": REQUEST_ID}, "securitySchemes": ways}


def add_request_ids(document: dict[str, Any]) -> None:
    """Add the header X-Request-Id to each answer."""
    for item in document["paths"].values():
        for described in item.values():
            for answer in described["responses"].values():
                named = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
                answer["headers"] = answer.get("headers", {}) | named


def add_examples(document: dict[str, Any]) -> None:
    """Add examples of requests and answers from examples.json, which was recorded from a real run."""
    kept = json.loads(Path(__file__).with_name("examples.json").read_text())
    for path, item in document["paths"].items():
        for method, described in item.items():
            example = kept.get(f"{method.upper()} {path}", {})
            if "request" in example:
                described["requestBody"]["content"][_JSON]["example"] = example["request"]
            for status, answer in example.get("answers", {}).items():
                described["responses"][status]["content"][_JSON]["example"] = answer


def add_links(document: dict[str, Any]) -> None:
    """Add links from answers to the next calls of a job's life, in both dialects."""
    for (path, statuses), links in _LINKS.items():
        for status in statuses:
            described = document["paths"][path]["post"]["responses"][status]
            described["links"] = {
                name: {"operationId": document["paths"][target][method]["operationId"], **given}
                for name, (method, target, given) in links.items()
            }


_T: Final = "/v0/topics/{topic}"
_M: Final = "/api/messages"
_OF_TOPIC: Final = {"topic": "$request.path.topic"}
_HELD: Final = {
    "node": "$request.body#/node",
    "seqs": ["$response.body#/claimed/0/$seq"],
    "lease_ids": ["$response.body#/claimed/0/lease_id"],
}
_OF_MESSAGE: Final = {"parameters": {"id": "$response.body#/id"}}
_DEQUEUED: Final = {"parameters": {"id": "$response.body#/messages/0/id"}}
# By path and statuses of a POST: links by name, each with method, path and the values taken from the answer.
_LINKS: Final[Mapping[tuple[str, tuple[str, ...]], Mapping[str, tuple[str, str, dict[str, Any]]]]] = {
    (_T, ("200", "201")): {
        "claim": ("post", f"{_T}/claim", {"parameters": _OF_TOPIC, "requestBody": {"node": "worker", "max": 1}}),
        "job": ("get", f"{_T}/jobs/{{seq}}", {"parameters": _OF_TOPIC | {"seq": "$response.body#/first_seq"}}),
    },
    (f"{_T}/claim", ("200",)): {
        "ack": ("post", f"{_T}/ack", {"parameters": _OF_TOPIC, "requestBody": _HELD}),
        "nack": ("post", f"{_T}/nack", {"parameters": _OF_TOPIC, "requestBody": _HELD}),
        "extend": ("post", f"{_T}/extend", {"parameters": _OF_TOPIC, "requestBody": {**_HELD, "lease_ms": 30_000}}),
    },
    (_M, ("201",)): {
        "message": ("get", f"{_M}/{{id}}", _OF_MESSAGE),
        "dequeue": ("post", f"{_M}/dequeue", {"requestBody": {"topic": "$request.body#/topic"}}),
    },
    (f"{_M}/dequeue", ("200",)): {
        "ack": ("post", f"{_M}/{{id}}/ack", {**_DEQUEUED, "requestBody": {}}),
        "extend": ("post", f"{_M}/{{id}}/extend", {**_DEQUEUED, "requestBody": {}}),
    },
}


# {}: a service without keys and users needs no sign-in.
SECURITY: list[dict[str, list[str]]] = [{"key": []}, {"user": []}, {}]


_MEANING = {
    400: "The request is not valid. The message says why.",
    401: "Sign-in is needed, or failed.",
    403: "The key or user has no permission for this call.",
    404: "The topic, schedule, key or user does not exist.",
    406: "The client does not accept the media type of this route.",
    408: "The request took too long to arrive.",
    409: "The topic has the wrong type, the key is not live, or the name is taken.",
    413: "The body is too large.",
    414: "Path and query are too long.",
    415: "The body must be JSON.",
    422: "The topic is full or can't do this, a payload does not match its schema, or a value is not valid.",
    429: "A limit is reached. Try again after Retry-After seconds.",
    431: "The header fields are too many or too large.",
    503: "Not available right now. Try again after Retry-After seconds.",
}
_TRY_AGAIN = {429, 503}


_DONE = {200: "Done.", 201: "Created.", 202: "Started.", 204: "Done."}


def _answer_of(status: int, answer: type[msgspec.Struct] | None) -> dict[str, Any]:
    return {"description": _DONE[status]} if answer is None else _answer(_reference(answer), _DONE[status])


def _reference(struct: type[msgspec.Struct]) -> dict[str, str]:
    assert STRUCTS.setdefault(struct.__name__, struct) is struct, f"{struct.__name__} is the name of two"
    return {"$ref": _REF.format(name=struct.__name__)}


def _answer(schema: dict[str, str], description: str) -> dict[str, Any]:
    return {"description": description, "content": {_JSON: {"schema": schema}}}


def _error(status: int, shown: type[msgspec.Struct]) -> dict[str, Any]:
    described = _answer(_reference(shown), _MEANING[status])
    if status in _TRY_AGAIN:
        described["headers"] = RETRY_AFTER
    return described


def _show_defaults(schema: Any) -> None:
    """Replace "default": null, since absent and null mean the same, by the default's actual value if there is one."""
    if isinstance(schema, dict):
        if schema.get("default", 0) is None:
            del schema["default"]
        if "x-default" in schema:
            schema["default"] = schema.pop("x-default")
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            _show_defaults(part)
