"""How the messages dialect writes what a route gives: as it is."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from app.http.fields import encode
from app.http.messages.errors import MessagesError
from app.http.route import Dialect


def _write(given: msgspec.Struct, status: int, _began: float) -> Response:
    return Response(encode(given), status, media_type="application/json")


MESSAGES: Final = Dialect("messages", MessagesError, _write, lambda struct: struct)
