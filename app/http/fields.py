"""What requests name in path and query, pages of a list among it, and single fields of bodies: read and checked, for
every dialect."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec
from asyncpg.pgproto.pgproto import UUID
from starlette.requests import HTTPConnection, Request

from app.errors import InvalidRequest
from app.http.bounds import MAX_NAMED, MAX_NODE_BYTES, NO_NUL
from app.http.openapi import path, query
from app.kernel.model import LeaseId, Seq
from app.kernel.topics.backoff import is_suspect
from app.kernel.topics.policy import check_name
from app.kernel.topics.settings import BIGINT_MAX, MAX_TENANT

_LEASE: Final = re.compile(r"lease_([0-9a-fA-F]{1,64})\Z")
_NO_LEASE: Final = UUID(bytes(16))  # never given out

encode: Final = msgspec.json.Encoder().encode
SEQ: Final = path("seq", "The job's seq.", {"type": "integer", "minimum": 1, "maximum": BIGINT_MAX})
_SEQ: Final = re.compile(r"[0-9]{1,19}\Z")
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")
T = TypeVar("T")

PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": 100})
CURSOR: Final = query("cursor", "next_cursor of the page before.", {"type": "string"})


def topic_in(request: Request) -> str:
    """The topic that a request's path names. Raises InvalidRequest for a name with a slash, which servers decode."""
    raw: bytes = request.scope.get("raw_path", b"")
    if b"%" in raw and b"%2f" in raw.lower():
        raise InvalidRequest("A topic's name can't have a '/'.")
    name: str = request.path_params["topic"]
    return name


def check_text(value: str, field: str, most: int) -> str:
    """A text of at most so many bytes. Raises InvalidRequest."""
    if len(value) > most or (len(value) * 4 > most and len(value.encode()) > most):
        raise InvalidRequest(f"{field} is longer than {most} bytes.")
    return value


def check_node(node: str) -> str:
    """A worker's name. Raises InvalidRequest."""
    if not node:
        raise InvalidRequest("node must not be empty: it is who holds the lease.")
    return check_text(node, "node", MAX_NODE_BYTES)


def check_tenants(names: list[str]) -> list[str]:
    """The tenants that a query names. Raises InvalidRequest."""
    if not 1 <= len(names) <= MAX_NAMED:
        raise InvalidRequest(f"tenants must name 1 to {MAX_NAMED} of them.")
    for name in names:
        if not 1 <= len(name) <= MAX_TENANT or "\0" in name:
            raise InvalidRequest(f"A tenant's name has 1 to {MAX_TENANT} characters, and no NUL.")
    return names


def known_parameters(request: HTTPConnection, names: Collection[str]) -> None:
    """Refuse a parameter of the query that the route doesn't have. Raises InvalidRequest."""
    for name in request.query_params:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise InvalidRequest(f"This route has no parameter {name[:80]!r}; it takes {known}.")


def flag(request: Request, name: str, *, default: bool) -> bool:
    """A parameter of the query that is true or false. Raises InvalidRequest: `?if_empty=1` must not delete."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if given not in {"true", "false"}:
        raise InvalidRequest(f"{name} must be true or false.")
    return given == "true"


def lease_of(token: str) -> LeaseId | None:
    """A lease id as the database knows it; "" is no fence: None. One that was never given out fits no lease.

    Raises InvalidRequest for what is no lease id at all.
    """
    if not token:
        return None
    match = _LEASE.match(token)
    if match is None:
        raise InvalidRequest(f"{token[:80]!r} is no lease id: those are lease_<hex>.")
    digits = match.group(1)
    return UUID(digits.zfill(32)) if len(digits) <= 32 else _NO_LEASE


def time_of(text: str, what: str) -> datetime:
    """An RFC 3339 time with its offset. Raises InvalidRequest, which begins with `what`."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError("it has no time zone")
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{what} must be an RFC 3339 time with its offset, such as 2026-01-31T09:00:00Z."
        ) from None


def history(ended: int, crashes: int, original_crashes: int | None) -> bytes:
    """What became of a job's deliveries that have ended, with a comma behind; nothing of a job that has none."""
    if not ended and not original_crashes:
        return b""
    failures = ended - crashes
    return b"%b%b%b" % (
        b'"crashes":%d,' % crashes if crashes else b"",
        b'"failures":%d,' % failures if failures else b"",
        b'"suspected_poison":true,' if is_suspect(crashes, original_crashes) else b"",
    )


def whole(given: Mapping[str, str], name: str, default: int) -> int:
    """A whole number. Raises InvalidRequest."""
    text = given.get(name)
    if text is None:
        return default
    if _WHOLE.match(text) is None:
        raise InvalidRequest(f"{name} must be a whole number.")
    return int(text)


def seq_in(request: Request) -> Seq:
    """The seq that a request's path names. Raises InvalidRequest."""
    given: str = request.path_params["seq"]
    if _SEQ.match(given) is None or not 0 < int(given) <= BIGINT_MAX:
        raise InvalidRequest("A job's seq is a whole number from 1 on.")
    return Seq(int(given))


def page_size(request: Request, default: int = 100) -> int:
    """How many entries are asked for. Raises InvalidRequest."""
    return min(max(whole(request.query_params, "page_size", default), 1), 1000)


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
