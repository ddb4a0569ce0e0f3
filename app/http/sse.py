"""What event streams have in common, of the v0 dialect and of the pages.

Why not sse-starlette (3.7): a frame takes it 25 to 60 µs, where `push` takes 6 to 9; it cuts a slow reader off without
a last frame that says so; and it can't send without an await, as `push_at_once` does.
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

SEND_SECONDS: Final = 30.0  # a reader that takes nothing for so long is gone
SLICE_BYTES: Final = 64 * 1024  # goes out at a time: one that takes this much in SEND_SECONDS is slow, and not gone
ADVICE_SECONDS: Final = 1.0
HEARTBEAT: Final = b": hb\n\n"
BEGINNING: Final = b"retry: 2000\n\n" + HEARTBEAT


class ErrorFrame(msgspec.Struct):
    """Advice where the code is 429; else why the stream ends. `topic`: of a work stream."""

    code: int
    error: str
    message: str
    topic: str | UnsetType = UNSET


class EventStream(Response, ABC):
    """A stream of events: its head, its end when the reader leaves, and what has to be done then however it ended."""

    def __init__(self) -> None:
        super().__init__(
            headers={"cache-control": "no-store", "x-accel-buffering": "no"}, media_type="text/event-stream"
        )
        del self.headers["content-length"]
        self._flow: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until `_serve` returns, which it has to do soon once the reader has left."""
        leaving = asyncio.ensure_future(gone(receive))
        self._flow = _flow(receive)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await push(send, BEGINNING)
            await self._serve(send, leaving)
        except SlowReader as error:
            if self._flow is not None:
                self._flow.resume_writing()  # behind what was not read: uvicorn would wait with it for ever
            await close(send, error_frame(error))
        except (OSError, TimeoutError):
            pass  # the reader is gone, or as good as
        finally:
            leaving.cancel()
            await asyncio.shield(asyncio.ensure_future(self._release()))

    def push_at_once(self, send: Send, frame: bytes) -> bool:
        """Send a frame where the connection takes it without a wait; False: it was not sent."""
        if self._flow is None or self._flow.write_paused or len(frame) > SLICE_BYTES:
            return False
        try:
            next(send({"type": "http.response.body", "body": frame, "more_body": True}).__await__())
        except StopIteration:
            return True
        except OSError:
            return False  # it has left: who is to send the next one is told so
        raise AssertionError("a connection that was not paused was waited for")

    @abstractmethod
    async def _serve(self, send: Send, leaving: asyncio.Future[None]) -> None:
        """What comes after the beginning. `leaving` is done when the reader has left."""

    @abstractmethod
    async def _release(self) -> None:
        """Let go of what the stream held."""


async def push(send: Send, *frames: bytes) -> None:
    """Send frames. Raises OSError for a reader that has left; SlowReader for one that takes nothing, or TimeoutError
    where it has got a part of a frame, after which it can't be told."""
    for piece, begins in _pieces(frames):
        sending = send({"type": "http.response.body", "body": piece, "more_body": True}).__await__()
        try:
            waits_for = next(sending)
        except StopIteration:
            continue  # as ever for a reader that keeps up; a timeout costs as much as all of this
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await _going_on(sending, waits_for)
        except TimeoutError:
            if not begins:
                raise
            raise SlowReader(f"Nothing was read for {SEND_SECONDS:.0f} s. Connect again.") from None


def _pieces(frames: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """What goes out at a time, and whether it begins with a frame: small ones together, a large one in slices."""
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
    """The rest of what was begun by its first step, which `waits_for` came from."""
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
    """Uvicorn's word on whether a connection takes more; None under another server."""
    return getattr(getattr(receive, "__self__", None), "flow", None)


async def close(send: Send, frame: bytes) -> None:
    """Send a last frame, and end."""
    await push(send, frame)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def gone(receive: Receive) -> None:
    """Wait until the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def error_frame(error: HoldfastError, code: int | None = None, **about: str) -> bytes:
    """An error as an event; `about` is what it is about."""
    shown = {"code": code or error.status, "error": error.code, "message": error.message, **about}
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(shown)


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
