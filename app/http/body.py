"""Reading a request's body: bounded, JSON, of the shape that the route takes."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from app.errors import BatchTooLarge, InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from app.http.context import context_of
from app.http.payloads import MAX_DEPTH, has_nul
from app.http.quota import SMALL_BYTES

T = TypeVar("T")
Read_co = TypeVar("Read_co", covariant=True)


class BodyDecoder(Protocol[Read_co]):
    """What msgspec's decoders have. Raises msgspec.DecodeError, of which ValidationError is one."""

    def decode(self, body: bytes, /) -> Read_co: ...


class _Element(msgspec.Struct, gc=False, frozen=True):
    """An object of which nothing is kept."""


class Few(Generic[T]):
    """A decoder of a body with a list of `most` objects at most. msgspec looks at a list's length once it has all of
    it, and objects of a few bytes take thirty times as much by then: so they are counted before they are made."""

    def __init__(self, kind: type[T], field: str, most: int) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._counter = msgspec.json.Decoder(msgspec.defstruct("_Counted", [(field, list[_Element], [])]))
        self._field, self._most = field, most

    def decode(self, body: bytes, /) -> T:
        """Raises as a decoder does; BatchTooLarge."""
        if body.count(b"{") > self._most:
            count = len(getattr(self._counter.decode(body), self._field))
            if count > self._most:
                detail = {self._field: count, "max": self._most}
                raise BatchTooLarge(f"At most {self._most} {self._field} a call.", detail)
        return self._decoder.decode(body)


async def read_json(
    request: Request, decoder: BodyDecoder[T], limit: int, *, empty: bytes = b"", nul: bool = False
) -> T:
    """The decode_json body; `empty` stands in for none. With `nul` it may have U+0000, and the route sees to where.

    Raises UnsupportedMediaType (for compressed ones, too), PayloadTooLarge (without keeping more than `limit` bytes),
    Throttled (too many bytes of bodies are held by all requests together) and InvalidRequest.
    """
    body = await read_bytes(request, limit)
    if not body and empty:
        return decoder.decode(empty)
    kind = request.headers.get("content-type", "")
    if kind != "application/json" and kind.partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("The body must be JSON: content-type: application/json.")
    try:
        return decode_json(body, decoder, "The body", nul=nul)
    except InvalidRequest:
        must_be_plain(request)  # looked at last: what is compressed is no JSON
        raise


def must_be_plain(request: Request) -> None:
    """Refuse a body that is compressed. Raises UnsupportedMediaType."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMediaType(f"The body is compressed (content-encoding: {encoding[:80]}). Send it as it is.")


def decode_json(body: bytes, decoder: BodyDecoder[T], what: str, *, nul: bool = False) -> T:
    """JSON, decode_json. Raises InvalidRequest, which begins with `what`; with `nul`, not for U+0000."""
    if not body:
        raise InvalidRequest(f"{what} is empty.")
    try:
        if not body.isascii():
            body.decode()
        if not nul and has_nul(body):
            raise InvalidRequest(f"{what} has a NUL character (U+0000), which can't be stored.")
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{what} is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise InvalidRequest(f"{what} is nested too deeply; {MAX_DEPTH} levels are the most.") from None
    except msgspec.ValidationError as error:
        words = str(error)[:1_000]  # it has the name of an unknown field in full
        unknown = words.startswith("Object contains unknown field ")
        hint = ": check its spelling, or leave it out" if unknown else ""
        raise InvalidRequest(f"{words}{hint}.") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{what} is not JSON: {error}.") from None


async def read_bytes(request: Request, limit: int) -> bytes:
    """The body as it came. Raises PayloadTooLarge (without keeping more than `limit` bytes), Throttled."""
    length = request.headers.get("content-length")
    if length is not None and length.isdigit() and (declared := int(length)) > SMALL_BYTES:
        if declared > limit:
            raise _too_large(limit)
        # It would end in a refusal: rather before it is sent than after.
        context_of(request).quota.must_have_room(declared)
    message = await request.receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body") and len(body) <= limit:
        if len(body) > SMALL_BYTES:
            context_of(request).quota.take_bytes(request.scope, len(body))
        return body
    quota, counted = context_of(request).quota, 0
    whole = bytearray(body)  # one buffer: thousands of chunks would leave the heap in pieces
    while message.get("more_body") or message["type"] == "http.disconnect":
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if len(whole) > limit:
            raise _too_large(limit)
        if len(whole) > SMALL_BYTES:
            quota.take_bytes(request.scope, len(whole) - counted)
            counted = len(whole)
        message = await request.receive()
        whole += message.get("body", b"")
    if len(whole) > limit:
        raise _too_large(limit)
    if len(whole) > SMALL_BYTES:
        quota.take_bytes(request.scope, len(whole) - counted)
    return bytes(whole)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes.", {"max_bytes": limit})
