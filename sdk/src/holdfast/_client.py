"""The clients: AsyncClient and Client."""

from __future__ import annotations

import base64
import os
import platform
import secrets
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Final, Self, TypeAlias
from urllib.parse import unquote, urlsplit

import httpx

from holdfast._attempts import Options
from holdfast._objects import Objects
from holdfast._resources.admin import Admin
from holdfast._resources.health import Health
from holdfast._resources.keys import Keys
from holdfast._resources.operations import Operations
from holdfast._resources.saved_views import SavedViews
from holdfast._resources.schedules import Schedules
from holdfast._resources.topic import AllTopics, Topic
from holdfast._resources.users import Users
from holdfast._resources.watches import Watches
from holdfast._transport import LIMITS, Account, AsyncSender, SyncSender
from holdfast._verbs import S

DEFAULT_URL: Final = "http://127.0.0.1:8080"

_PATIENCE: Final = Options()

AsyncTopic: TypeAlias = Topic[AsyncSender]
SyncTopic: TypeAlias = Topic[SyncSender]


class _Resources(Health[S]):
    """The resources of both clients."""

    def topic(self, name: str) -> Topic[S]:
        """A topic, by name. Makes no call."""
        return Topic(self._sender, name)

    @cached_property
    def topics(self) -> AllTopics[S]:
        """All topics."""
        return AllTopics(self._sender)

    @cached_property
    def schedules(self) -> Schedules[S]:
        """Schedules, which enqueue jobs at set times."""
        return Schedules(self._sender)

    @cached_property
    def keys(self) -> Keys[S]:
        """API keys."""
        return Keys(self._sender)

    @cached_property
    def saved_views(self) -> SavedViews[S]:
        """Saved views of the admin pages."""
        return SavedViews(self._sender)

    @cached_property
    def operations(self) -> Operations[S]:
        """Requeues and cancels of many jobs, which run in the background."""
        return Operations(self._sender)

    @cached_property
    def users(self) -> Users[S]:
        """Events for users of the application."""
        return Users(self._sender)

    @cached_property
    def watches(self) -> Watches[S]:
        """Watches: records of several topics over one stream."""
        return Watches(self._sender)

    @cached_property
    def admin(self) -> Admin[S]:
        """Calls for operators: audit trail, reapers, vacuum horizon."""
        return Admin(self._sender)

    @property
    def account(self) -> Account:
        """The service's address, the credentials and the node."""
        return self._sender.account

    @property
    def options(self) -> Options:
        """The client's timeouts and retries."""
        return self._sender.options


class AsyncClient(_Resources[AsyncSender]):
    """A client for asyncio. It keeps connections open: make one, use it everywhere, and close it at the end.

    - base_url: the service's address. Default: HOLDFAST_URL, or http://127.0.0.1:8080.
    - api_key: default HOLDFAST_API_KEY.
    - timeout: seconds for a call with all retries, in addition to the call's `wait_ms`.
    - attempt_timeout: seconds for one attempt, in addition to the call's `wait_ms`.
    - retries: most attempts after the first.
    - node: the worker's name in claims. Default: made from the host and process.
    - http: your own httpx.AsyncClient, for proxies or certificates. The client does not close it.
    - objects: object storage for large payloads.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = _PATIENCE.timeout,
        attempt_timeout: float = _PATIENCE.attempt_timeout,
        retries: int = _PATIENCE.retries,
        node: str | None = None,
        http: httpx.AsyncClient | None = None,
        objects: Objects | None = None,
    ) -> None:
        options = Options(timeout=timeout, attempt_timeout=attempt_timeout, retries=retries)
        self._owns_http = http is None
        account = account_of(base_url, api_key, node)
        super().__init__(AsyncSender(http or httpx.AsyncClient(limits=LIMITS), account, options, objects))

    def with_options(
        self, *, timeout: float | None = None, attempt_timeout: float | None = None, retries: int | None = None
    ) -> AsyncClient:
        """The same client over the same connections, more or less patient. Closing it closes nothing."""
        options = changed(self.options, timeout, attempt_timeout, retries)
        client = AsyncClient.__new__(AsyncClient)
        client._owns_http = False
        Health.__init__(client, AsyncSender(self._sender.http, self._sender.account, options, self._sender.objects))
        return client

    async def aclose(self) -> None:
        """Close its connections."""
        if self._owns_http:
            await self._sender.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class Client(_Resources[SyncSender]):
    """A synchronous client. Threads may share it. The arguments are those of AsyncClient, `http` is an httpx.Client."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = _PATIENCE.timeout,
        attempt_timeout: float = _PATIENCE.attempt_timeout,
        retries: int = _PATIENCE.retries,
        node: str | None = None,
        http: httpx.Client | None = None,
        objects: Objects | None = None,
    ) -> None:
        options = Options(timeout=timeout, attempt_timeout=attempt_timeout, retries=retries)
        self._owns_http = http is None
        account = account_of(base_url, api_key, node)
        super().__init__(SyncSender(http or httpx.Client(limits=LIMITS), account, options, objects))

    def with_options(
        self, *, timeout: float | None = None, attempt_timeout: float | None = None, retries: int | None = None
    ) -> Client:
        """The same client over the same connections, more or less patient. Closing it closes nothing."""
        options = changed(self.options, timeout, attempt_timeout, retries)
        client = Client.__new__(Client)
        client._owns_http = False
        Health.__init__(client, SyncSender(self._sender.http, self._sender.account, options, self._sender.objects))
        return client

    def close(self) -> None:
        """Close its connections."""
        if self._owns_http:
            self._sender.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def account_of(base_url: str | None, api_key: str | None, node: str | None) -> Account:
    """The service's address, the credentials and the node. A user and password in the address become a header and are
    removed from the address, so that logs don't show them. Raises ValueError for a malformed address."""
    url = (base_url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL).rstrip("/")
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and httpx.URL(url).host != ""
    except (ValueError, httpx.InvalidURL):  # not chained: the message may have the password
        known = False
    if not known:
        address = url.rpartition("@")[2]
        raise ValueError(f"the service's address must be http://host:port or https://…, not {address!r}")
    login, at, host = parts.netloc.rpartition("@")
    key = api_key or os.environ.get("HOLDFAST_API_KEY")
    named = node or f"{platform.node()[:80]}-{os.getpid()}-{secrets.token_hex(3)}"
    return Account(parts._replace(netloc=host).geturl(), _authorization(login if at else None, key), named)


def _authorization(login: str | None, key: str | None) -> str | None:
    if login is not None:
        user, _, password = login.partition(":")
        return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return f"Bearer {key}" if key else None


def client_of(account: Account, objects: Objects | None) -> AsyncClient:
    """Make a client with its own connections."""
    client = AsyncClient.__new__(AsyncClient)
    client._owns_http = True
    Health.__init__(client, AsyncSender(httpx.AsyncClient(limits=LIMITS), account, _PATIENCE, objects))
    return client


def changed(options: Options, timeout: float | None, attempt_timeout: float | None, retries: int | None) -> Options:
    """Copy options, replacing those that are not None."""
    given = {"timeout": timeout, "attempt_timeout": attempt_timeout, "retries": retries}
    return replace(options, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
