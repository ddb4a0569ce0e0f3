"""How the v0 dialect shows an error."""

from __future__ import annotations

import msgspec

from app.api.openapi import ErrorAnswer, ErrorBody
from app.errors import HoldfastError


def render(error: HoldfastError) -> bytes:
    """Its envelope: {"error": {"code", "message", "detail"}}."""
    body = ErrorBody(error.code, error.message)
    if error.detail:
        body.detail = dict(error.detail)
    return msgspec.json.encode(ErrorAnswer(body))
