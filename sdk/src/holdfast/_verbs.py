"""Decorators that make one definition of a call work for both clients. The decorated method builds a request. Called on
an AsyncClient's resource it returns an awaitable, on a Client's resource the answer. docs/adr/0049."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from holdfast._paging import AsyncPages, Pages
from holdfast._streams import AsyncEvents, Events, Stream
from holdfast._transport import AsyncSender, SyncSender
from holdfast._wire import Request
from holdfast.models.page import Page

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound=AsyncSender | SyncSender)


class Resource(Generic[S]):
    """A group of calls, with the sender that sends them."""

    def __init__(self, sender: S) -> None:
        self._sender = sender


class _Described(Generic[P, R]):
    """Base class of the three descriptors. Wraps a builder, which does no I/O."""

    def __init__(self, build: Callable[Concatenate[Any, P], R]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def _bound(self, resource: Resource[Any] | None, name: str) -> Any:
        """The builder followed by a method of the resource's sender. On the class: the builder alone."""
        if resource is None:
            return self._build
        run = getattr(resource._sender, name)

        @functools.wraps(self._build)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return run(self._build(resource, *args, **kwargs))

        return call


class verb(_Described[P, Request[T]], Generic[P, T]):  # noqa: N801 - a decorator
    """A call with one answer."""

    @overload
    def __get__(self, resource: None, owner: object) -> Callable[..., Request[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncSender], owner: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, resource: Resource[SyncSender], owner: object) -> Callable[P, T]: ...
    def __get__(self, resource: Resource[Any] | None, owner: object) -> Any:
        return self._bound(resource, "send")


class listing(_Described[P, Request[Page[T]]], Generic[P, T]):  # noqa: N801
    """A paginated list: iterate over it, or request one page."""

    @overload
    def __get__(self, resource: None, owner: object) -> Callable[..., Request[Page[T]]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncSender], owner: object) -> Callable[P, AsyncPages[T]]: ...
    @overload
    def __get__(self, resource: Resource[SyncSender], owner: object) -> Callable[P, Pages[T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: object) -> Any:
        return self._bound(resource, "pages")


class stream(_Described[P, Stream[T]], Generic[P, T]):  # noqa: N801
    """A stream of events: a context manager whose value is an iterator."""

    @overload
    def __get__(self, resource: None, owner: object) -> Callable[..., Stream[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncSender], owner: object) -> Callable[P, AsyncEvents[T]]: ...
    @overload
    def __get__(self, resource: Resource[SyncSender], owner: object) -> Callable[P, Events[T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: object) -> Any:
        return self._bound(resource, "events")
