"""The messages dialect: answers without additions, and flat errors."""

from __future__ import annotations

from typing import Final

import msgspec

from app.errors import HoldfastError
from app.http.dialect import Dialect


class MessagesError(msgspec.Struct):
    """An error of the messages dialect: a message for people, a code for programs, and a link to the manual."""

    error: str
    code: str
    docs: str


def _write_error(error: HoldfastError) -> bytes:
    return msgspec.json.encode(MessagesError(error.message, error.code, error.docs))


MESSAGES: Final = Dialect("messages", MessagesError, write_error=_write_error, one_tag=True)
