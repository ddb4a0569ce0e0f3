"""What the v0 dialect's event streams have in common."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Send

from app.api.v0.fields import encode
from app.errors import HoldfastError, NotAcceptable

SEND_SECONDS: Final = 30.0  # a reader that takes nothing for so long is gone
SLICE_BYTES: Final = 64 * 1024  # goes out at a time: one that takes this much in SEND_SECONDS is slow, and not gone
ADVICE_SECONDS: Final = 1.0
HEARTBEAT: Final = b": hb\n\n"
BEGINNING: Final = b"retry: 2000\n\n" + HEARTBEAT


class EventStream(Response):
    """The head of a stream of events; what follows is a subclass's."""

    def __init__(self) -> None:
        super().__init__(
            headers={"cache-control": "no-store", "x-accel-buffering": "no"}, media_type="text/event-stream"
        )
        del self.headers["content-length"]


async def push(send: Send, frames: bytes) -> None:
    """Send whole frames. Raises TimeoutError for a reader that takes nothing, OSError for one that has left."""
    for start in range(0, len(frames), SLICE_BYTES):
        piece = frames[start : start + SLICE_BYTES]
        async with asyncio.timeout(SEND_SECONDS):
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def gone(receive: Receive) -> None:
    """Wait until the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def error_frame(error: HoldfastError, code: int | None = None, **about: str) -> bytes:
    """An error as an event; `about` is what it is about."""
    shown = {"code": code or error.status, "error": error.code, "message": error.message, **about}
    return b"event: error\ndata: %b\n\n" % encode(shown)


def one_line(json: bytes) -> bytes:
    """JSON without line ends. Only white space between tokens can hold them: what was sent to the service must not end
    a frame's line."""
    return json.replace(b"\r", b" ").replace(b"\n", b" ")


def must_accept_events(accept: str | None) -> None:
    """Raises NotAcceptable for a client that does not take events."""
    if accept is None:
        return
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not kinds & {"text/event-stream", "text/*", "*/*"}:
        raise NotAcceptable("This route answers with text/event-stream.")
