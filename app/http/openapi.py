"""Declares routes for OpenAPI. Schemas come from the msgspec structs that the hot routes decode with, so that nothing
is described twice; answers' structs exist for it alone, and a test holds real answers against them."""

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
STRUCTS: Final[dict[str, type[msgspec.Struct]]] = {}  # that routes have named, by name


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
    "description": "The request's id: the caller's X-Request-Id, if that can be one, else a new one. The service's log "
    "has it in each line about this request.",
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
    """What FastAPI's `openapi_extra` needs for a route: `answers` and `errors` by status; an answer without a body is
    None. `error`: how the dialect shows errors. Of several bodies any will do. `open_to_all`: it never needs a key."""
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
    """An answer that is a stream of server-sent events; `frames` is one of each kind, as they are sent, and `kinds`
    what their data is, by their names, where those are known."""
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
    """What any request can be refused with, before a route has seen it or because too much is under way."""
    return {408, 414, 431, 503} | ({429} if 401 in errors else set())


def components() -> dict[str, Any]:
    """The schemas of all structs that routes have named so far, and how a request says who it is."""
    _, schemas = msgspec.json.schema_components(list(STRUCTS.values()), ref_template=_REF)
    _show_defaults(schemas)
    for name, schema in schemas.items():
        schema.update(getattr(STRUCTS.get(name), "RULES", {}))  # what its fields' types can't say
    key = {"type": "http", "scheme": "bearer", "description": "An API key, or a user's token, where there are any."}
    user = {"type": "http", "scheme": "basic", "description": "A user's name and password, where there are users."}
    ways = {"key": key, "user": user}
    return {"schemas": schemas, "headers": {"X-Request-Id": REQUEST_ID}, "securitySchemes": ways}


def add_request_ids(document: dict[str, Any]) -> None:
    """Each answer has the id of its request."""
    for item in document["paths"].values():
        for described in item.values():
            for answer in described["responses"].values():
                named = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
                answer["headers"] = answer.get("headers", {}) | named


def add_examples(document: dict[str, Any]) -> None:
    """Give each operation its request and answers of examples.json, which were taken from a real run."""
    kept = json.loads(Path(__file__).with_name("examples.json").read_text())
    for path, item in document["paths"].items():
        for method, described in item.items():
            example = kept.get(f"{method.upper()} {path}", {})
            if "request" in example:
                described["requestBody"]["content"][_JSON]["example"] = example["request"]
            for status, answer in example.get("answers", {}).items():
                described["responses"][status]["content"][_JSON]["example"] = answer


def add_links(document: dict[str, Any]) -> None:
    """Say what can be done with what is answered: a job on its way from an enqueue to its end, in both dialects."""
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
# By path and statuses of a POST: what follows, by its name: method, path, and what it takes from the answer.
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


# None is needed where the service has neither keys nor users.
SECURITY: list[dict[str, list[str]]] = [{"key": []}, {"user": []}, {}]


_MEANING = {
    400: "The request makes no sense; the message says what.",
    401: "Sign-in is needed, or failed.",
    403: "The key or user may not do this.",
    404: "There is no such topic, schedule, key or user.",
    406: "The client does not accept what this route answers with.",
    408: "The request took too long to arrive.",
    409: "The topic is not of the kind that this needs, the key is not live, or there is one already.",
    413: "The body is too large.",
    414: "Path and query are too long.",
    415: "The body must be JSON.",
    422: "The topic is full or can't do this, or what is given does not fit its schema or makes no sense.",
    429: "Too many: try again after Retry-After seconds.",
    431: "The header fields are too many or too large.",
    503: "Not at the moment: try again after Retry-After seconds.",
}
_TRY_AGAIN = {429, 503}


_DONE = {200: "Done.", 201: "Done, and made.", 202: "Under way.", 204: "Done."}


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
    """Absent and null mean the same: what they mean, where that is a value, and not that null is what is absent."""
    if isinstance(schema, dict):
        if schema.get("default", 0) is None:
            del schema["default"]
        if "x-default" in schema:
            schema["default"] = schema.pop("x-default")
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            _show_defaults(part)
