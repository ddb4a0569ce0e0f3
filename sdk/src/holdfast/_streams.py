"""Streams of server-sent events."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast import errors
from holdfast._sse import Frame, Frames
from holdfast._wire import Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """A stream as a value. `read` makes an item from an event, or None if the event has none. A stream without events
    and heartbeats for `silence` seconds is dead."""

    request: Request[None]
    read: Callable[[Frame, Any], T | None]
    silence: float = 45.0

    def item(self, frame: Frame) -> T | None:
        """The item in a frame. Raises APIStatusError if the frame is an error that ends the stream."""
        try:
            body = json.loads(frame.data)
        except ValueError as error:
            raise errors.InvalidResponse(f"A frame is not JSON: {frame.data:.100}") from error
        if frame.event != "error":
            return self.read(frame, body)
        if body["code"] == 429:
            return None  # advice: the service is busy and continues later
        raise errors.status_error(body["code"], body["error"], body["message"])


class AsyncEvents(Generic[T]):
    """An open stream. It ends when the service closes it; a connection that breaks is an APIConnectionError. It does
    not connect again by itself."""

    def __init__(
        self, open_stream: Callable[[Stream[T]], AbstractAsyncContextManager[AsyncIterator[bytes]]], stream: Stream[T]
    ) -> None:
        self._open = open_stream
        self._stream = stream
        self._exit = AsyncExitStack()
        self._chunks: AsyncIterator[bytes] | None = None
        self._frames = Frames()
        self._ready: deque[Frame] = deque()

    async def __aenter__(self) -> Self:
        self._chunks = await self._exit.enter_async_context(self._open(self._stream))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._chunks is None:
            raise RuntimeError("open the stream with `async with`")
        while True:
            while self._ready:
                item = self._stream.item(self._ready.popleft())
                if item is not None:
                    return item
            self._ready.extend(self._frames.feed(await anext(self._chunks)))


class Events(Generic[T]):
    """An open stream. It ends when the service closes it; a connection that breaks is an APIConnectionError. It does
    not connect again by itself."""

    def __init__(
        self, open_stream: Callable[[Stream[T]], AbstractContextManager[Iterator[bytes]]], stream: Stream[T]
    ) -> None:
        self._open = open_stream
        self._stream = stream
        self._exit = ExitStack()
        self._chunks: Iterator[bytes] | None = None
        self._frames = Frames()
        self._ready: deque[Frame] = deque()

    def __enter__(self) -> Self:
        self._chunks = self._exit.enter_context(self._open(self._stream))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._chunks is None:
            raise RuntimeError("open the stream with `with`")
        while True:
            while self._ready:
                item = self._stream.item(self._ready.popleft())
                if item is not None:
                    return item
            self._ready.extend(self._frames.feed(next(self._chunks)))
