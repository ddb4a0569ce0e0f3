"""Checks of single fields, for every dialect."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

import msgspec
from asyncpg.pgproto.pgproto import UUID
from starlette.requests import HTTPConnection, Request

from app.errors import InvalidRequest
from app.http.bounds import MAX_NAMED, MAX_NODE_BYTES
from app.kernel.model import LeaseId
from app.kernel.topics.backoff import is_suspect
from app.kernel.topics.settings import MAX_TENANT

_LEASE: Final = re.compile(r"lease_([0-9a-fA-F]{1,64})\Z")
_NO_LEASE: Final = UUID(bytes(16))  # never given out

encode: Final = msgspec.json.Encoder().encode


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
            raise InvalidRequest(
                f"{name[:80]!r} is no parameter of this route; those are {', '.join(sorted(names)) or 'none'}."
            )


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
