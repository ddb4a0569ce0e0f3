"""Dialects: how each one writes answers and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.responses import Response

from app.errors import HoldfastError
from app.http.fields import encode


class ErrorBody(msgspec.Struct):
    """An error's code and message. `docs` links to its entry in the manual; `detail` has the values that it names."""

    code: str
    message: str
    docs: str
    detail: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class ErrorAnswer(msgspec.Struct):
    """An error of the v0 dialect."""

    error: ErrorBody


def write_as_is(answer: msgspec.Struct, status: int, _began: float) -> Response:
    """The answer as JSON, without additions."""
    return Response(encode(answer), status, media_type="application/json")


def write_error(error: HoldfastError) -> bytes:
    """The error as JSON: {"error": {"code", "message", "docs", "detail"}}."""
    body = ErrorBody(error.code, error.message, error.docs)
    if error.detail:
        body.detail = dict(error.detail)
    return msgspec.json.encode(ErrorAnswer(body))


class Dialect(msgspec.Struct, frozen=True):
    """How one dialect writes answers and errors.

    - error: the struct of its errors.
    - write: writes an answer, given its status and when the call began (time.perf_counter).
    - gives: the struct that `write` produces from an answer's struct.
    - write_error: writes an error after `error_of` has translated it for the dialect's clients.
    - strict: routes refuse unknown query parameters.
    - one_tag: in OpenAPI its routes are tagged with the dialect's name, not with their features'.
    """

    name: str
    error: type[msgspec.Struct] = ErrorAnswer
    write: Callable[[msgspec.Struct, int, float], Response] = write_as_is
    gives: Callable[[type[msgspec.Struct]], type[msgspec.Struct]] = lambda struct: struct
    write_error: Callable[[HoldfastError], bytes] = write_error
    error_of: Callable[[HoldfastError], HoldfastError] = lambda error: error
    strict: bool = False
    one_tag: bool = False


PLAIN: Final = Dialect("none")  # for routes outside both dialects
