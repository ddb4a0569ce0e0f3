"""Streams of server-sent events."""

from __future__ import annotations

import json
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
    """A stream as a value. `read` makes an item of an event's name, data and id, None where there is none in it. One
    that says nothing for `silence` seconds, not even a heartbeat, is dead."""

    request: Request[None]
    read: Callable[[Frame, Any], T | None]
    silence: float = 45.0

    def item(self, frame: Frame) -> T | None:
        """What a frame says. Raises an APIStatusError where it is the last word of the service."""
        body = json.loads(frame.data)
        if frame.event != "error":
            return self.read(frame, body)
        if body["code"] == 429:
            return None  # advice: the service could not look just now, and goes on
        raise errors.status_error(body["code"], body["error"], body.get("message", "The stream has ended."))


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

    async def __aenter__(self) -> Self:
        self._chunks = await self._exit.enter_async_context(self._open(self._stream))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def __aiter__(self) -> AsyncIterator[T]:
        if self._chunks is None:
            raise RuntimeError("a stream is opened by `async with`")
        frames = Frames()
        async for chunk in self._chunks:
            for frame in frames.feed(chunk):
                item = self._stream.item(frame)
                if item is not None:
                    yield item


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

    def __enter__(self) -> Self:
        self._chunks = self._exit.enter_context(self._open(self._stream))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    def __iter__(self) -> Iterator[T]:
        if self._chunks is None:
            raise RuntimeError("a stream is opened by `with`")
        frames = Frames()
        for chunk in self._chunks:
            for frame in frames.feed(chunk):
                item = self._stream.item(frame)
                if item is not None:
                    yield item
