"""How the v0 dialect shows an error."""

from __future__ import annotations

import msgspec

from app.errors import HoldfastError, Throttled, TooManyWaiting
from app.http.openapi import ErrorAnswer, ErrorBody


def named(error: HoldfastError) -> HoldfastError:
    """The error as v0's clients expect it: a full queue of calls is a 429, which says that nothing was done."""
    return Throttled(error.message, error.detail) if isinstance(error, TooManyWaiting) else error


def render(error: HoldfastError) -> bytes:
    """Its envelope: {"error": {"code", "message", "detail"}}."""
    body = ErrorBody(error.code, error.message)
    if error.detail:
        body.detail = dict(error.detail)
    return msgspec.json.encode(ErrorAnswer(body))
