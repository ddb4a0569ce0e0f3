"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from holdfast._wire import Request
from holdfast.models.page import Page

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """A paginated list. `async for` iterates over all items; `page()` requests one page."""

    def __init__(
        self, send: Callable[[Request[Page[T]]], Coroutine[Any, Any, Page[T]]], first: Request[Page[T]]
    ) -> None:
        self._send = send
        self._first = first

    async def page(self) -> Page[T]:
        """The first page, or the one that the `cursor` of the call leads to."""
        return await self._send(self._first)

    async def __aiter__(self) -> AsyncIterator[T]:
        page = await self.page()
        while True:
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            page = await self._send(self._first.with_params(cursor=page.next_cursor))


class Pages(Generic[T]):
    """A paginated list. `for` iterates over all items; `page()` requests one page."""

    def __init__(self, send: Callable[[Request[Page[T]]], Page[T]], first: Request[Page[T]]) -> None:
        self._send = send
        self._first = first

    def page(self) -> Page[T]:
        """The first page, or the one that the `cursor` of the call leads to."""
        return self._send(self._first)

    def __iter__(self) -> Iterator[T]:
        page = self.page()
        while True:
            yield from page.items
            if page.next_cursor is None:
                return
            page = self._send(self._first.with_params(cursor=page.next_cursor))
