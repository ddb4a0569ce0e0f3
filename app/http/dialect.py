"""What dialects have in common: how each writes what a route gives, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.responses import Response

from app.errors import HoldfastError
from app.http.fields import encode


class ErrorBody(msgspec.Struct):
    """What went wrong. `detail` holds what it is about."""

    code: str
    message: str
    detail: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class ErrorAnswer(msgspec.Struct):
    """Every error of the v0 dialect."""

    error: ErrorBody


def write_as_is(answer: msgspec.Struct, status: int, _began: float) -> Response:
    """An answer as JSON, and nothing besides."""
    return Response(encode(answer), status, media_type="application/json")


def write_error(error: HoldfastError) -> bytes:
    """Its envelope: {"error": {"code", "message", "detail"}}."""
    body = ErrorBody(error.code, error.message)
    if error.detail:
        body.detail = dict(error.detail)
    return msgspec.json.encode(ErrorAnswer(body))


class Dialect(msgspec.Struct, frozen=True):
    """How one dialect writes. `write`: an answer, given its status and when the call began; `gives`: what it looks like
    then. `error`: what an error looks like; `write_error` writes it, once `error_of` has made it the one that the
    dialect's clients know. `strict`: a parameter of the query that a route does not have is refused. `one_tag`: OpenAPI
    has its routes under its own name, not under their features'."""

    name: str
    error: type[msgspec.Struct] = ErrorAnswer
    write: Callable[[msgspec.Struct, int, float], Response] = write_as_is
    gives: Callable[[type[msgspec.Struct]], type[msgspec.Struct]] = lambda struct: struct
    write_error: Callable[[HoldfastError], bytes] = write_error
    error_of: Callable[[HoldfastError], HoldfastError] = lambda error: error
    strict: bool = False
    one_tag: bool = False


PLAIN: Final = Dialect("none")  # for routes that are of neither dialect
