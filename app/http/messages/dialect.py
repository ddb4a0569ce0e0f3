"""The messages dialect: what a route gives is written as it is, and an error as a text with its name."""

from __future__ import annotations

from typing import Final

import msgspec

from app.errors import HoldfastError
from app.http.dialect import Dialect


class MessagesError(msgspec.Struct):
    """Every error of the messages dialect: what went wrong, for people, and its name, for programs."""

    error: str
    code: str


def _write_error(error: HoldfastError) -> bytes:
    """{"error": text, "code": name}"""
    return msgspec.json.encode(MessagesError(error.message, error.code))


MESSAGES: Final = Dialect("messages", MessagesError, write_error=_write_error, one_tag=True)
