"""How the messages dialect shows an error, and describes its routes for OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.errors import HoldfastError
from app.http import openapi


class MessagesError(msgspec.Struct):
    """Every error of the messages dialect: what went wrong, for people, and its name, for programs."""

    error: str
    code: str


def write_error(error: HoldfastError) -> bytes:
    """{"error": text, "code": name}"""
    return msgspec.json.encode(MessagesError(error.message, error.code))


def operation(
    *, answers: Mapping[int, type[msgspec.Struct] | None], errors: Sequence[int], **options: Any
) -> dict[str, Any]:
    """As app.http.openapi.operation, with this dialect's errors."""
    return openapi.operation(answers=answers, errors=errors, error=MessagesError, **options)
