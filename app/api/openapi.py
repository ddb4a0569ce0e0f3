"""Declares routes for OpenAPI. Schemas come from the msgspec structs that the hot routes decode with, so that nothing
is described twice; answers' structs exist for it alone, and a test holds real answers against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

_REF = "#/components/schemas/{name}"
_declared: dict[str, type[msgspec.Struct]] = {}


class ErrorBody(msgspec.Struct):
    """What went wrong. `detail` holds what it is about."""

    code: str
    message: str
    detail: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class ErrorAnswer(msgspec.Struct):
    """Every error of the v0 dialect."""

    error: ErrorBody


def path(name: str, description: str) -> dict[str, Any]:
    """A parameter in the path."""
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


def query(name: str, description: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    """A parameter in the query."""
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


TOPIC = path("topic", "The topic's name.")


def operation(
    *,
    answers: dict[int, type[msgspec.Struct]],
    errors: Sequence[int],
    body: type[msgspec.Struct] | None = None,
    body_required: bool = True,
    parameters: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """What FastAPI's `openapi_extra` needs for a route: `answers` and `errors` by status."""
    refusals = sorted({*errors, *_may_occur(errors)})
    described: dict[str, Any] = {
        "responses": {
            **{str(status): _content(answer, "Done.") for status, answer in answers.items()},
            **{str(status): _content(ErrorAnswer, _MEANING[status]) for status in refusals},
        }
    }
    if parameters:
        described["parameters"] = list(parameters)
    if body is not None:
        described["requestBody"] = {"required": body_required, "content": _content(body, "")["content"]}
    return described


def _may_occur(errors: Sequence[int]) -> set[int]:
    """What any request can be refused with, before a route has seen it or because too much is under way."""
    return {408, 414, 431, 503} | ({429} if 401 in errors else set())


def components() -> dict[str, Any]:
    """The schemas of all structs that routes have named so far, and how a request says who it is."""
    _, schemas = msgspec.json.schema_components([*_declared.values(), ErrorAnswer], ref_template=_REF)
    key = {"type": "http", "scheme": "bearer", "description": "An API key, where the service has any."}
    return {"schemas": schemas, "securitySchemes": {"key": key}}


SECURITY: list[dict[str, list[str]]] = [{"key": []}, {}]  # none is needed where the service has no keys


_MEANING = {
    400: "The request makes no sense; the message says what.",
    401: "A key is needed.",
    403: "The key may not do this.",
    404: "There is no such topic, or key.",
    406: "The client does not accept what this route answers with.",
    408: "The request took too long to arrive.",
    409: "The topic is not of the kind that this needs, or the key is not live.",
    413: "The body is too large.",
    414: "Path and query are too long.",
    415: "The body must be JSON.",
    422: "The topic is full.",
    429: "Too many: try again after Retry-After seconds.",
    431: "The header fields are too many or too large.",
    503: "Not at the moment: try again after Retry-After seconds.",
}


def _content(struct: type[msgspec.Struct], description: str) -> dict[str, Any]:
    _declared[struct.__name__] = struct
    ref = {"$ref": _REF.format(name=struct.__name__)}
    return {"description": description, "content": {"application/json": {"schema": ref}}}
