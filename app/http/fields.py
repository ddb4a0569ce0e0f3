"""Reads and checks path and query parameters, cursors and single body fields, for all dialects."""

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
_NO_LEASE: Final = UUID(bytes(16))  # never issued

encode: Final = msgspec.json.Encoder().encode
SEQ: Final = path("seq", "The job's seq.", {"type": "integer", "minimum": 1, "maximum": BIGINT_MAX})
_SEQ: Final = re.compile(r"[0-9]{1,19}\Z")
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")
T = TypeVar("T")

PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": 100})
CURSOR: Final = query("cursor", "next_cursor of the previous page.", {"type": "string"})


def topic_in(request: Request) -> str:
    """The topic in the path. Raises InvalidRequest for a name with an encoded slash."""
    raw: bytes = request.scope.get("raw_path", b"")
    if b"%" in raw and b"%2f" in raw.lower():
        raise InvalidRequest("A topic's name can't have a '/'.")
    name: str = request.path_params["topic"]
    return name


def check_text(value: str, field: str, most: int) -> str:
    """The value, if it has at most `most` bytes. Raises InvalidRequest."""
    if len(value) > most or (len(value) * 4 > most and len(value.encode()) > most):
        raise InvalidRequest(f"{field} is longer than {most} bytes.")
    return value


def check_node(node: str) -> str:
    """The worker's name, if valid. Raises InvalidRequest."""
    if not node:
        raise InvalidRequest("node must not be empty. It names the worker that holds the lease.")
    return check_text(node, "node", MAX_NODE_BYTES)


def check_tenants(names: list[str]) -> list[str]:
    """The tenants, if valid. Raises InvalidRequest."""
    if not 1 <= len(names) <= MAX_NAMED:
        raise InvalidRequest(f"tenants must have 1 to {MAX_NAMED} names.")
    for name in names:
        if not 1 <= len(name) <= MAX_TENANT or "\0" in name:
            raise InvalidRequest(f"A tenant's name must have 1 to {MAX_TENANT} characters and no NUL.")
    return names


def known_parameters(request: HTTPConnection, names: Collection[str]) -> None:
    """Raises InvalidRequest for an unknown query parameter."""
    for name in request.query_params:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise InvalidRequest(f"This route has no parameter {name[:80]!r}; it takes {known}.")


def flag(request: Request, name: str, *, default: bool) -> bool:
    """A boolean query parameter: "true" or "false". Raises InvalidRequest for other values."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if given not in {"true", "false"}:
        raise InvalidRequest(f"{name} must be true or false.")
    return given == "true"


def lease_of(token: str) -> LeaseId | None:
    """The database's id of a lease; None for "", which means no fence. A well-formed id that was never issued matches
    no lease. Raises InvalidRequest for a malformed id.
    """
    if not token:
        return None
    match = _LEASE.match(token)
    if match is None:
        raise InvalidRequest(f"{token[:80]!r} is not a lease id. Lease ids have the form lease_<hex>.")
    digits = match.group(1)
    return UUID(digits.zfill(32)) if len(digits) <= 32 else _NO_LEASE


def time_of(text: str, what: str) -> datetime:
    """Parse an RFC 3339 time with an offset. Returns it in UTC. Raises InvalidRequest; its message begins with
    `what`."""
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
    """JSON fields on a job's past deliveries, with a trailing comma; b"" if there were none."""
    if not ended and not original_crashes:
        return b""
    failures = ended - crashes
    return b"%b%b%b" % (
        b'"crashes":%d,' % crashes if crashes else b"",
        b'"failures":%d,' % failures if failures else b"",
        b'"suspected_poison":true,' if is_suspect(crashes, original_crashes) else b"",
    )


def whole(given: Mapping[str, str], name: str, default: int) -> int:
    """A whole number from parameters. Raises InvalidRequest."""
    text = given.get(name)
    if text is None:
        return default
    if _WHOLE.match(text) is None:
        raise InvalidRequest(f"{name} must be a whole number.")
    return int(text)


def seq_in(request: Request) -> Seq:
    """The seq in the path. Raises InvalidRequest."""
    given: str = request.path_params["seq"]
    if _SEQ.match(given) is None or not 0 < int(given) <= BIGINT_MAX:
        raise InvalidRequest("A job's seq must be a whole number, 1 or more.")
    return Seq(int(given))


def page_size(request: Request, default: int = 100) -> int:
    """The requested page size, clamped to 1 to 1000. Raises InvalidRequest."""
    return min(max(whole(request.query_params, "page_size", default), 1), 1000)


def prefix(of: str) -> dict[str, object]:
    """The OpenAPI parameter that `prefix_in` reads. `of` names the list's entries."""
    return query("prefix", f"Only {of} whose names start with this.", {"type": "string", "pattern": NO_NUL})


def prefix_in(request: Request) -> str:
    """The prefix parameter; "" for all names. Raises InvalidRequest."""
    given = request.query_params.get("prefix", "")
    if "\0" in given:
        raise InvalidRequest("prefix must not have a NUL character.")
    return given


def cursor_to(place: Mapping[str, object]) -> str:
    """Encode a place in a list as an opaque cursor."""
    return base64.urlsafe_b64encode(encode(place)).decode()


def cursor_of(request: Request, kind: type[T]) -> T | None:
    """The place that the request's cursor names; None without a cursor. Raises InvalidRequest."""
    cursor = request.query_params.get("cursor", "")
    if not cursor:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise foreign_cursor() from None


def name_after(request: Request) -> str:
    """The name in the request's cursor; "" without a cursor. Raises InvalidRequest."""
    place = cursor_of(request, dict[str, str])
    try:
        return "" if place is None else check_name(place["after"])
    except (KeyError, InvalidRequest):
        raise foreign_cursor() from None


def foreign_cursor() -> InvalidRequest:
    """The error for a malformed cursor."""
    return InvalidRequest("cursor is not valid. Use next_cursor of the previous page.")
