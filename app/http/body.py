"""Reads request bodies: checks their size and decodes JSON."""

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
    """The interface of msgspec's decoders. Raises msgspec.DecodeError."""

    def decode(self, body: bytes, /) -> Read_co: ...


class _Element(msgspec.Struct, gc=False, frozen=True):
    """An object whose content is dropped."""


class Few(Generic[T]):
    """A decoder of a body with a list of at most `most` objects.

    msgspec checks a list's length after it has built all objects, which take 30 times the memory of their JSON. This
    decoder counts them first."""

    def __init__(self, kind: type[T], field: str, most: int) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._counter = msgspec.json.Decoder(msgspec.defstruct("_Counted", [(field, list[_Element], [])]))
        self._field, self._most = field, most

    def decode(self, body: bytes, /) -> T:
        """Raises msgspec.DecodeError, BatchTooLarge."""
        if body.count(b"{") > self._most:
            count = len(getattr(self._counter.decode(body), self._field))
            if count > self._most:
                detail = {self._field: count, "max": self._most}
                raise BatchTooLarge(f"A call can have at most {self._most} {self._field}.", detail)
        return self._decoder.decode(body)


async def read_json(
    request: Request, decoder: BodyDecoder[T], limit: int, *, empty: bytes = b"", nul: bool = False
) -> T:
    """Read and decode a JSON body of at most `limit` bytes. `empty` replaces an empty body. `nul` allows U+0000, which
    the route then has to check.

    Raises UnsupportedMediaType (also for compressed bodies), PayloadTooLarge, Throttled (the process buffers too many
    bytes) and InvalidRequest.
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
        must_be_plain(request)  # checked last: a compressed body is not JSON
        raise


def must_be_plain(request: Request) -> None:
    """Raises UnsupportedMediaType for a compressed body."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMediaType(f"The body is compressed (content-encoding: {encoding[:80]}). Send it uncompressed.")


def decode_json(body: bytes, decoder: BodyDecoder[T], what: str, *, nul: bool = False) -> T:
    """Decode JSON. `nul` allows U+0000. Raises InvalidRequest; its message begins with `what`."""
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
        raise InvalidRequest(f"{what} is nested too deeply. The limit is {MAX_DEPTH} levels.") from None
    except msgspec.ValidationError as error:
        words = str(error)[:1_000]  # names an unknown field in full
        unknown = words.startswith("Object contains unknown field ")
        hint = ": check its spelling, or leave it out" if unknown else ""
        raise InvalidRequest(f"{words}{hint}.") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{what} is not JSON: {error}.") from None


async def read_bytes(request: Request, limit: int) -> bytes:
    """Read the body. Keeps no more than `limit` bytes. Raises PayloadTooLarge, Throttled."""
    length = request.headers.get("content-length")
    if length is not None and length.isdigit() and (declared := int(length)) > SMALL_BYTES:
        if declared > limit:
            raise _too_large(limit)
        # Refuse before the client sends the body.
        context_of(request).quota.must_have_room(declared)
    message = await request.receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body") and len(body) <= limit:
        if len(body) > SMALL_BYTES:
            context_of(request).quota.take_bytes(request.scope, len(body))
        return body
    quota, counted = context_of(request).quota, 0
    whole = bytearray(body)  # one buffer: thousands of chunks would fragment the heap
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
