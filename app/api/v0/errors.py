"""How the v0 dialect shows an error."""

from __future__ import annotations

import msgspec

from app.api.openapi import ErrorAnswer, ErrorBody
from app.errors import HoldfastError, Throttled, TooManyWaiting


def named(error: HoldfastError) -> HoldfastError:
    """The error as the dialect's clients know it: a full queue of calls is a 429 to them (docs/adr/0043)."""
    return Throttled(error.message, error.detail) if isinstance(error, TooManyWaiting) else error


def render(error: HoldfastError) -> bytes:
    """Its envelope: {"error": {"code", "message", "detail"}}."""
    body = ErrorBody(error.code, error.message)
    if error.detail:
        body.detail = dict(error.detail)
    return msgspec.json.encode(ErrorAnswer(body))
