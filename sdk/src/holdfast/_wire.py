"""Requests and answers as values. Nothing here does I/O: the shells of _transport.py send one and hand in the other."""

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

# For what goes through all that a topic holds before it is answered: as long as the service itself takes at most.
ALL_MS: Final = 600_000

UNAUTHORIZED: Final = 401


class Repeat(Enum):
    """When a request may be sent once more."""

    SAFE = "safe"  # whatever has become of it: twice is as good as once
    IF_REFUSED = "if refused"  # only if it is certain that nothing was done


@dataclass(frozen=True, slots=True)
class Reply:
    """A success. `repeated`: an earlier try may have been carried out, too, and its answer was lost."""

    status: int
    body: Any
    repeated: bool = False


class Upload(Protocol):
    """What has to be in object storage before a request is sent."""

    def put(self) -> None: ...
    async def put_async(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One call. `wait_ms` is for how long the service may think before it answers, by what was asked of it."""

    method: str
    path: str
    read: Callable[[Reply], T]
    params: Mapping[str, Param] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeat: Repeat = Repeat.SAFE
    wait_ms: int = 0
    text: bool = False  # the answer is no JSON
    uploads: Sequence[Upload] = ()

    def with_params(self, **params: Param) -> Request[T]:
        return replace(self, params={**self.params, **params})

    def read_by(self, read: Callable[[Reply], U]) -> Request[U]:
        """The same call, whose answer is read in another way."""
        return replace(self, read=read)  # type: ignore[arg-type,return-value]

    def query(self) -> list[tuple[str, Primitive]]:
        """Its parameters as they stand in the URL: without those that are None; a list is repeated."""
        pairs: list[tuple[str, Primitive]] = []
        for name, value in self.params.items():
            values = value if isinstance(value, list) else [value]
            pairs += [(name, str(one).lower() if isinstance(one, bool) else one) for one in values if one is not None]
        return pairs


def reads(kind: type[U], **known: Any) -> Callable[[Reply], U]:
    """The answer is one object of this kind; `known` are fields that are not in it."""
    return lambda reply: read(kind, reply.body, **known)


def reads_page(kind: type[U], items: str, **known: Any) -> Callable[[Reply], Page[U]]:
    """The answer is a page of a list, whose items it has under this name."""
    return lambda reply: page_of(kind, items, reply.body, **known)


def path(*parts: str | int) -> str:
    """A path below /v0: what is not a name of the API's is quoted."""
    return "/v0/" + "/".join(quote(str(part), safe="") for part in parts)


def said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something: None is what the service takes for absent."""
    return {name: value for name, value in fields.items() if value is not None}


def encode(value: Any) -> bytes:
    """JSON. Raises TypeError or ValueError for what has no JSON, NaN and infinities among it."""
    options: dict[str, Any] = {"separators": (",", ":"), "default": _encode_other, "check_circular": False}
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **options).encode()
    except RecursionError:
        raise TypeError(TOO_DEEP) from None


TOO_DEEP: Final = "The value can't be sent: a list or an object in it contains itself, or it is nested too deeply."


def _encode_other(value: Any) -> Any:
    if isinstance(value, datetime) or hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"A {type(value).__name__} has no JSON: {value!r:.100}")


def failure(status: int, headers: Mapping[str, str], content: bytes, sent: str = "") -> errors.APIStatusError:
    """The error of an answer that is none of 2xx. `headers` knows names in any case. `sent` says of a 401 what the
    request had for a key."""
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
    """Retry-After in seconds. As a date it is not read: the service gives seconds, and clocks differ."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None


def refused(error: errors.APIStatusError) -> bool:
    """Whether an error says that nothing was done, and that another try may do better."""
    if isinstance(error, errors.Throttled) or error.status == 408:
        return True
    return error.status == 503 and (error.code == "shutting_down" or "limit" in error.detail)
