"""The last pieces of an answer in v0: how long it took."""

from __future__ import annotations

import time

from starlette.responses import Response


def answer(body: bytes, began: float, timings: bytes = b"", status: int = 200) -> Response:
    """An answer whose last field is the performance block. `body` is its other fields, without braces."""
    total = (time.perf_counter() - began) * 1000
    content = b'{%b,"performance":{"server_total_ms":%.3f%b}}' % (body, total, timings)
    return Response(content, status, media_type="application/json")


def fsync_since(began: float) -> bytes:
    """The timing of a durable commit that was asked for at `began`."""
    return b',"fsync_ms":%.3f' % ((time.perf_counter() - began) * 1000)
