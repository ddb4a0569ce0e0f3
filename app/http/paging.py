"""Pages of a list: how many entries, and where the next page begins."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request

from app.errors import InvalidRequest
from app.http.bounds import NO_NUL
from app.http.fields import encode
from app.http.openapi import query
from app.kernel.topics.policy import check_name

T = TypeVar("T")

PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": 100})
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")
CURSOR: Final = query("cursor", "next_cursor of the page before.", {"type": "string"})


def page_size(request: Request, default: int = 100) -> int:
    """How many entries are asked for. Raises InvalidRequest."""
    given = request.query_params.get("page_size", str(default))
    if _WHOLE.match(given) is None:
        raise InvalidRequest("page_size must be a whole number.")
    return min(max(int(given), 1), 1000)


def prefix(of: str) -> dict[str, object]:
    """The description of the parameter that `prefix_in` reads; `of`: what the list holds."""
    return query("prefix", f"Only {of} whose names start with this.", {"type": "string", "pattern": NO_NUL})


def prefix_in(request: Request) -> str:
    """What names start with; "" for all. Raises InvalidRequest."""
    given = request.query_params.get("prefix", "")
    if "\0" in given:
        raise InvalidRequest("prefix has a NUL character.")
    return given


def cursor_to(place: Mapping[str, object]) -> str:
    """A cursor that a client can only hand back."""
    return base64.urlsafe_b64encode(encode(place)).decode()


def cursor_of(request: Request, kind: type[T]) -> T | None:
    """The place that the request's cursor names; None for none. Raises InvalidRequest."""
    cursor = request.query_params.get("cursor", "")
    if not cursor:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise foreign_cursor() from None


def name_after(request: Request) -> str:
    """The topic or schedule that the request's cursor names; "" for none. Raises InvalidRequest."""
    place = cursor_of(request, dict[str, str])
    try:
        return "" if place is None else check_name(place["after"])
    except (KeyError, InvalidRequest):
        raise foreign_cursor() from None


def foreign_cursor() -> InvalidRequest:
    """The refusal of a cursor that is none."""
    return InvalidRequest("cursor is none that a list has answered.")
