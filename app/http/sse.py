"""Event streams of the v0 dialect and of the pages.

Not sse-starlette (3.7): it takes 25 to 60 µs for a frame, `push` takes 6 to 9. It disconnects a slow reader without a
last error frame. It can't send without an await, as `push_at_once` does.
"""

from __future__ import annotations

import asyncio
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.errors import HoldfastError, NotAcceptable, SlowReader

SEND_SECONDS: Final = 30.0  # a reader that reads nothing for so long is disconnected
SLICE_BYTES: Final = 64 * 1024  # sent at a time: a reader that takes this much in SEND_SECONDS stays connected
ADVICE_SECONDS: Final = 1.0
HEARTBEAT: Final = b": hb\n\n"
BEGINNING: Final = b"retry: 2000\n\n" + HEARTBEAT


class ErrorFrame(msgspec.Struct):
    """Advice if the code is 429, else the reason why the stream ends. `topic` is set in work streams."""

    code: int
    error: str
    message: str
    topic: str | UnsetType = UNSET


class EventStream(Response, ABC):
    """A response that streams events until the reader disconnects or `_serve` returns. Then it calls `_release`."""

    def __init__(self) -> None:
        super().__init__(
            headers={"cache-control": "no-store", "x-accel-buffering": "no"}, media_type="text/event-stream"
        )
        del self.headers["content-length"]
        self._flow: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events. `_serve` must return soon after the reader has disconnected."""
        leaving = asyncio.ensure_future(wait_for_disconnect(receive))
        self._flow = _flow(receive)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await push(send, BEGINNING)
            await self._serve(send, leaving)
        except SlowReader as error:
            if self._flow is not None:
                self._flow.resume_writing()  # or uvicorn would wait forever until the unread frames are read
            await close(send, error_frame(error))
        except (OSError, TimeoutError):
            pass  # the reader is gone, or reads nothing
        finally:
            leaving.cancel()
            await asyncio.shield(asyncio.ensure_future(self._release()))

    def push_at_once(self, send: Send, frame: bytes) -> bool:
        """Send a frame if that needs no wait. Returns whether it was sent."""
        if self._flow is None or self._flow.write_paused or len(frame) > SLICE_BYTES:
            return False
        try:
            next(send({"type": "http.response.body", "body": frame, "more_body": True}).__await__())
        except StopIteration:
            return True
        except OSError:
            return False  # the reader is gone: the next `push` raises
        raise AssertionError("waited for a connection that was not paused")

    @abstractmethod
    async def _serve(self, send: Send, leaving: asyncio.Future[None]) -> None:
        """Send the stream's events. `leaving` is done when the reader has disconnected."""

    @abstractmethod
    async def _release(self) -> None:
        """Release the stream's resources."""


async def push(send: Send, *frames: bytes) -> None:
    """Send frames. Raises OSError if the reader has disconnected, SlowReader if it reads nothing, and TimeoutError if
    it stopped in the middle of a frame, where no error frame can follow."""
    for piece, begins in _pieces(frames):
        sending = send({"type": "http.response.body", "body": piece, "more_body": True}).__await__()
        try:
            waits_for = next(sending)
        except StopIteration:
            continue  # the usual case, without the cost of a timeout
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await _going_on(sending, waits_for)
        except TimeoutError:
            if not begins:
                raise
            raise SlowReader(f"The client read nothing for {SEND_SECONDS:.0f} s. Connect again.") from None


def _pieces(frames: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Join small frames and slice large ones. Yields each piece, and whether it begins a frame."""
    held: list[bytes] = []
    size = 0
    for frame in frames:
        if held and size + len(frame) > SLICE_BYTES:
            yield b"".join(held), True
            held, size = [], 0
        if len(frame) > SLICE_BYTES:
            for start in range(0, len(frame), SLICE_BYTES):
                yield frame[start : start + SLICE_BYTES], start == 0
        else:
            held.append(frame)
            size += len(frame)
    if held:
        yield b"".join(held), True


@types.coroutine
def _going_on(step: Generator[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Continue a coroutine whose first step yielded `waits_for`."""
    ended = False
    while not ended:
        try:
            answer = yield waits_for
        except BaseException as error:
            resume: Callable[[], Any] = partial(step.throw, error)
        else:
            resume = partial(step.send, answer)
        try:
            waits_for = resume()
        except StopIteration:
            ended = True


def _flow(receive: Receive) -> Any:
    """Uvicorn's flow control of the connection; None under another server."""
    return getattr(getattr(receive, "__self__", None), "flow", None)


async def close(send: Send, frame: bytes) -> None:
    """Send a last frame and end the response."""
    await push(send, frame)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the reader has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def error_frame(error: HoldfastError, code: int | None = None, **about: str) -> bytes:
    """An error as an event with the additional fields `about`."""
    data = {"code": code or error.status, "error": error.code, "message": error.message, **about}
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(data)


def one_line(json: bytes) -> bytes:
    """Remove line ends from JSON. A client's JSON may have them between tokens, and they would end a frame's line."""
    return json.replace(b"\r", b" ").replace(b"\n", b" ")


def must_accept_events(accept: str | None) -> None:
    """Raises NotAcceptable if the Accept header excludes text/event-stream."""
    if accept is None:
        return
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not kinds & {"text/event-stream", "text/*", "*/*"}:
        raise NotAcceptable("This route answers with text/event-stream.")
