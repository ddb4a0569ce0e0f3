"""Requests and answers as values. Does no I/O: _transport.py sends them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from holdfast import errors
from holdfast._decode import page_of, read
from holdfast.models.page import Page

T = TypeVar("T")
U = TypeVar("U")

Primitive = str | int | float | bool | None
Param = str | int | float | bool | list[str] | None

# Timeout of calls that process all jobs of a topic: the service's own limit.
ALL_MS: Final = 600_000

UNAUTHORIZED: Final = 401


class Repeat(Enum):
    """When a request may be repeated."""

    SAFE = "safe"  # always: it is idempotent
    IF_REFUSED = "if refused"  # only if it certainly had no effect


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful answer. `repeated`: an earlier attempt whose answer was lost may have taken effect."""

    status: int
    body: Any
    repeated: bool = False


class Upload(Protocol):
    """An object to write before the request is sent."""

    def put(self) -> None: ...
    async def put_async(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One call. `wait_ms`: how long the service may wait before it answers."""

    method: str
    path: str
    read: Callable[[Reply], T]
    params: Mapping[str, Param] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeat: Repeat = Repeat.SAFE
    wait_ms: int = 0
    text: bool = False  # the answer is text, not JSON
    uploads: Sequence[Upload] = ()

    def with_params(self, **params: Param) -> Request[T]:
        return replace(self, params={**self.params, **params})

    def read_by(self, read: Callable[[Reply], U]) -> Request[U]:
        """The same call with another decoder."""
        return replace(self, read=read)  # type: ignore[arg-type,return-value]

    def query(self) -> list[tuple[str, Primitive]]:
        """The query parameters. Skips None and repeats the values of a list."""
        pairs: list[tuple[str, Primitive]] = []
        for name, value in self.params.items():
            values = value if isinstance(value, list) else [value]
            pairs += [(name, str(one).lower() if isinstance(one, bool) else one) for one in values if one is not None]
        return pairs


def reads(kind: type[U], **known: Any) -> Callable[[Reply], U]:
    """A decoder of one object. `known`: values of fields that are not in the answer."""
    return lambda reply: read(kind, reply.body, **known)


def reads_page(kind: type[U], items: str, **known: Any) -> Callable[[Reply], Page[U]]:
    """A decoder of a page. `items`: the field with its items."""
    return lambda reply: page_of(kind, items, reply.body, **known)


def path(*parts: str | int) -> str:
    """A path under /v0, quoted."""
    return "/v0/" + "/".join(quote(str(part), safe="") for part in parts)


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the fields, leaving out None, which means absent."""
    return {name: value for name, value in fields.items() if value is not None}


def encode(value: Any) -> bytes:
    """Encode as JSON. Raises TypeError or ValueError for other values, including NaN and infinities."""
    options: dict[str, Any] = {"separators": (",", ":"), "default": _encode_other, "check_circular": False}
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **options).encode()
    except RecursionError:
        raise TypeError(TOO_DEEP) from None


TOO_DEEP: Final = "The value can't be sent: a list or an object in it contains itself, or it is nested too deeply."


def _encode_other(value: Any) -> Any:
    if isinstance(value, datetime) or hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"A {type(value).__name__} can't be encoded as JSON: {value!r:.100}")


def failure(status: int, headers: Mapping[str, str], content: bytes, sent: str = "") -> errors.APIStatusError:
    """Make the error for an answer that is not 2xx. `headers` must be case-insensitive. `sent` describes the
    credentials and is added to the message of a 401."""
    code, message, detail = "", content[:200].decode(errors="replace").strip(), None
    try:
        error = json.loads(content)["error"]
        code, message, detail = error["code"], error["message"], error.get("detail")
    except (ValueError, KeyError, TypeError):
        pass  # a proxy's page
    message = message or "no message"
    return errors.status_error(
        status,
        code,
        f"{message.rstrip('.')}. {sent}" if status == UNAUTHORIZED and sent else message,
        detail=detail,
        retry_after=_seconds(headers.get("retry-after")),
        request_id=headers.get("x-request-id"),
    )


def _seconds(retry_after: str | None) -> float | None:
    """Parse Retry-After in seconds. Dates are ignored: the service sends seconds, and clocks differ."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None


def refused(error: errors.APIStatusError) -> bool:
    """Whether an error means that the call had no effect and may be retried."""
    if isinstance(error, errors.Throttled) or error.status == 408:
        return True
    return error.status == 503 and (error.code == "shutting_down" or "limit" in error.detail)
