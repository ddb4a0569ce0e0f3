"""Sends requests over httpx, async and sync. All decisions are made elsewhere."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import httpx

from holdfast import _trace, errors
from holdfast._attempts import Attempts, Lost, Options
from holdfast._objects import Objects
from holdfast._paging import AsyncPages, Pages
from holdfast._streams import AsyncEvents, Events, Stream
from holdfast._version import __version__
from holdfast._wire import Reply, Request, failure
from holdfast.models.page import Page

T = TypeVar("T")

# Below the 75 s after which the service closes idle connections, so that no request hits a closing one.
LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=100, keepalive_expiry=60)
NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@dataclass(frozen=True, slots=True)
class Account:
    """The service's address, the Authorization header, and `node`, the worker's name in claims."""

    base_url: str
    authorization: str | None = field(repr=False)
    node: str

    @property
    def sent(self) -> str:
        """Describe the credentials, for the message of a 401."""
        if self.authorization is None:
            return "No key was sent: set HOLDFAST_API_KEY, or pass api_key."
        basic = self.authorization.startswith("Basic ")
        return f"{'A user and password were' if basic else 'An API key was'} sent and rejected."

    def built(self, request: Request[Any], seconds: float, connect_seconds: float) -> httpx.Request:
        """Make an httpx request. `seconds` is the timeout of each read and write."""
        headers = {"user-agent": f"holdfast-python/{__version__}", "accept": "application/json"}
        if self.authorization is not None:
            headers["authorization"] = self.authorization
        if request.body is not None:
            headers["content-type"] = "application/json"
        headers |= request.headers
        _trace.inject(headers)
        timeout = httpx.Timeout(seconds, connect=min(seconds, connect_seconds))
        return httpx.Request(
            request.method,
            self.base_url + request.path,
            params=request.query(),
            headers=headers,
            content=request.body,
            extensions={"timeout": timeout.as_dict()},
        )


def lost(error: httpx.RequestError | TimeoutError, url: str) -> Lost:
    """Describe an attempt that got no answer."""
    late = isinstance(error, (httpx.TimeoutException, TimeoutError))
    kind = errors.APITimeoutError if late else errors.APIConnectionError
    failed = kind(f"No answer from {url}: {type(error).__name__} {error}".rstrip())
    failed.__cause__ = error
    return Lost(failed, sent=not isinstance(error, NOT_SENT))


def answer(request: Request[T], response: httpx.Response, repeated: bool) -> T:
    """Decode a successful answer."""
    try:
        body = response.text if request.text else json.loads(response.content)
    except ValueError as error:
        raise errors.InvalidResponse(f"{request.method} {request.path}: the answer is not JSON") from error
    return request.read(Reply(response.status_code, body, repeated))


class AsyncSender:
    """Sends over an httpx.AsyncClient."""

    def __init__(
        self, http: httpx.AsyncClient, account: Account, options: Options, objects: Objects | None = None
    ) -> None:
        self.http = http
        self.account = account
        self.options = options
        self.objects = objects

    async def send(self, request: Request[T]) -> T:
        for upload in request.uploads:
            await upload.put_async()
        attempts = Attempts(request, self.options)
        response = await self._exchange(request, attempts)
        return answer(request, response, attempts.repeated)

    def pages(self, first: Request[Page[T]]) -> AsyncPages[T]:
        return AsyncPages(self.send, first)

    def events(self, stream: Stream[T]) -> AsyncEvents[T]:
        return AsyncEvents(self._open, stream)

    @asynccontextmanager
    async def _open(self, stream: Stream[Any]) -> AsyncIterator[AsyncIterator[bytes]]:
        response = await self._exchange(stream.request, Attempts(stream.request, self.options), stream.silence)
        try:
            yield self._chunks(response, stream.silence)
        finally:
            await response.aclose()

    async def _chunks(self, response: httpx.Response, silence: float) -> AsyncIterator[bytes]:
        chunks = response.aiter_bytes()
        try:
            while True:
                async with asyncio.timeout(silence):
                    chunk = await anext(chunks)
                yield chunk
        except StopAsyncIteration:
            return
        except (httpx.RequestError, TimeoutError) as error:
            raise lost(error, self.account.base_url).error from error

    async def _exchange(
        self, request: Request[Any], attempts: Attempts, silence: float | None = None
    ) -> httpx.Response:
        while True:
            seconds = attempts.seconds()
            try:
                # httpx limits each read. This limits all of them together.
                async with asyncio.timeout(seconds):
                    built = self.account.built(request, silence or seconds, self.options.connect_timeout)
                    response = await self.http.send(built, stream=silence is not None)
                    if not response.is_success:
                        await response.aread()
            except (httpx.RequestError, TimeoutError) as error:
                failed: Lost | errors.APIStatusError = lost(error, self.account.base_url)
            else:
                if response.is_success:
                    return response
                failed = failure(response.status_code, response.headers, response.content, self.account.sent)
            await asyncio.sleep(attempts.pause(failed))


class SyncSender:
    """Sends over an httpx.Client."""

    def __init__(self, http: httpx.Client, account: Account, options: Options, objects: Objects | None = None) -> None:
        self.http = http
        self.account = account
        self.options = options
        self.objects = objects

    def send(self, request: Request[T]) -> T:
        for upload in request.uploads:
            upload.put()
        attempts = Attempts(request, self.options)
        response = self._exchange(request, attempts)
        return answer(request, response, attempts.repeated)

    def pages(self, first: Request[Page[T]]) -> Pages[T]:
        return Pages(self.send, first)

    def events(self, stream: Stream[T]) -> Events[T]:
        return Events(self._open, stream)

    @contextmanager
    def _open(self, stream: Stream[Any]) -> Iterator[Iterator[bytes]]:
        response = self._exchange(stream.request, Attempts(stream.request, self.options), stream.silence)
        try:
            yield self._chunks(response)
        finally:
            response.close()

    def _chunks(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except httpx.RequestError as error:
            raise lost(error, self.account.base_url).error from error

    def _exchange(self, request: Request[Any], attempts: Attempts, silence: float | None = None) -> httpx.Response:
        while True:
            try:
                seconds = silence or attempts.seconds()
                built = self.account.built(request, seconds, self.options.connect_timeout)
                response = self.http.send(built, stream=silence is not None)
                if not response.is_success:
                    response.read()
            except httpx.RequestError as error:
                failed: Lost | errors.APIStatusError = lost(error, self.account.base_url)
            else:
                if response.is_success:
                    return response
                failed = failure(response.status_code, response.headers, response.content, self.account.sent)
            time.sleep(attempts.pause(failed))
