"""The v0 dialect: answers end with the performance block, which says how long they took."""

from __future__ import annotations

import functools
import time
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from app.errors import HoldfastError, Throttled, TooManyWaiting
from app.http.dialect import Dialect
from app.http.fields import encode


class Performance(msgspec.Struct, omit_defaults=True):
    """How long the answer took, in ms. fsync_ms is the part for the durable commit, including the wait for its
    group."""

    server_total_ms: float
    fsync_ms: float | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET


def answer(body: bytes, began: float, timings: bytes = b"", status: int = 200) -> Response:
    """An answer with the performance block as its last field. `body` has the other fields, without braces."""
    total = (time.perf_counter() - began) * 1000
    content = b'{%b,"performance":{"server_total_ms":%.3f%b}}' % (body, total, timings)
    return Response(content, status, media_type="application/json")


def fsync_since(began: float) -> bytes:
    """The JSON timing of a durable commit that began at `began` (time.perf_counter)."""
    return b',"fsync_ms":%.3f' % ((time.perf_counter() - began) * 1000)


def _write(given: msgspec.Struct, status: int, began: float) -> Response:
    return answer(encode(given)[1:-1], began, status=status)


@functools.cache
def _with_performance(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    if "performance" in struct.__struct_fields__:
        return struct  # it has its own block
    return msgspec.defstruct(
        struct.__name__,
        [("performance", Performance)],
        bases=(struct,),
        module=struct.__module__,
        namespace={"__doc__": struct.__doc__},
        kw_only=True,
    )


def _error_of(error: HoldfastError) -> HoldfastError:
    """The error for v0's clients: too many waiting calls is a 429, which means that the call had no effect."""
    return Throttled(error.message, error.detail) if isinstance(error, TooManyWaiting) else error


V0: Final = Dialect("v0", write=_write, gives=_with_performance, strict=True, error_of=_error_of)
