"""Handlers, and the queue that they are declared on."""

from __future__ import annotations

import asyncio
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, overload

from holdfast._client import AsyncClient, account_of, client_of
from holdfast._objects import Objects
from holdfast._transport import AsyncSender
from holdfast._worker import cron
from holdfast._worker.context import Target
from holdfast._worker.outcomes import DAY_SECONDS
from holdfast._worker.payloads import Decoder, Encoder, decoder
from holdfast._worker.running import async_context, user_id
from holdfast.models.schedules import Missed

F = TypeVar("F", bound=Callable[..., Any])

MAX_CONCURRENCY: Final = 1_000
TIMEOUT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """When jobs come by the clock: a cron expression of five fields, what they carry, and what becomes of times that
    nobody was there for. docs/schedules.md."""

    cron: str
    data: Any = None
    time_zone: str | None = None
    missed: Missed | None = None

    def __post_init__(self) -> None:
        cron.check(self.cron)
        if self.time_zone is not None:
            cron.check_zone(self.time_zone)
        if self.missed not in (None, *typing.get_args(Missed)):
            raise ValueError(f"missed is 'skip', 'once' or 'all', and not {self.missed!r:.100}")


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a job that is suspected to kill its workers is run: in a process of its own, which may take `memory_mb` more
    than it starts with, and `seconds`. One that kills this process as well, or takes longer, is a dead letter."""

    memory_mb: int = 512
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.memory_mb < 1 or not self.seconds > 0:
            raise ValueError("an isolated job has 1 MB at least, and more than 0 seconds")


@dataclass(frozen=True, slots=True)
class Handler:
    """What runs the jobs of a topic, and how. `runs`: in the event loop, in threads, or in processes."""

    function: Callable[..., Any]
    topic: str
    concurrency: int
    timeout: float
    retry: tuple[float, ...] | None
    schedule: Schedule | None
    isolate: Isolation | None
    runs: Literal["async", "thread", "process"]
    wants_context: bool
    decode: Decoder


class Queue:
    """Handlers, and topics to push to, of one service. Making one asks nothing of the service.

    `base_url` and `api_key` as AsyncClient has them. `encode` makes JSON, text or bytes of pushed objects that are none
    of those that are known: dataclasses, pydantic's models, msgspec's structs, dates, UUIDs. `objects`: where
    large payloads are put, and handlers' come from."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        encode: Encoder | None = None,
        objects: Objects | None = None,
    ) -> None:
        self.account = account_of(base_url, api_key, None)
        self.objects = objects
        self.encode = encode
        self.handlers: dict[str, Handler] = {}
        self._client: tuple[asyncio.AbstractEventLoop, AsyncClient] | None = None

    @overload
    def handler(self, topic: F) -> F: ...

    @overload
    def handler(
        self,
        topic: str | None = None,
        *,
        concurrency: int = 10,
        timeout: float = TIMEOUT_SECONDS,
        retry: Sequence[float] | None = None,
        schedule: str | Schedule | None = None,
        pool: Literal["thread", "process"] = "thread",
        isolate: Isolation | None = None,
    ) -> Callable[[F], F]: ...

    def handler(
        self,
        topic: str | Callable[..., Any] | None = None,
        *,
        concurrency: int = 10,
        timeout: float = TIMEOUT_SECONDS,
        retry: Sequence[float] | None = None,
        schedule: str | Schedule | None = None,
        pool: Literal["thread", "process"] = "thread",
        isolate: Isolation | None = None,
    ) -> Callable[..., Any]:
        """Declare a function, which stays as it is, as what runs the jobs of a topic: `handler(payload)` or
        `handler(payload, context)`. The payload is what the first parameter's type hint says. Without a topic, as in
        `@queue.handler` without brackets, the topic has the function's name.

        An async function runs in the worker's event loop, and `concurrency` of them at once; another in a `pool` of so
        many threads or processes. `timeout`: seconds until a job is given up, and returned. `retry`: seconds before
        each new try of a job that failed, after which it is a dead letter; as the topic says if absent. `schedule`: a
        cron expression, or a Schedule, which the worker puts. `isolate`: how suspected poison pills are run."""
        if not isinstance(concurrency, int):
            raise TypeError(f"concurrency is a whole number, and not {concurrency!r:.100}")
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency is 1 to {MAX_CONCURRENCY}, and not {concurrency}")
        if not timeout > 0:
            raise ValueError("a timeout is more than 0 seconds")
        if pool not in ("thread", "process"):
            raise ValueError(f"a pool is 'thread' or 'process', and not {pool!r}")
        if not isinstance(isolate, Isolation | None):
            raise TypeError(f"isolate is an Isolation, and not {isolate!r:.100}")
        if isinstance(topic, str):
            self._must_be_free(topic)
        pauses = pauses_of(retry)
        scheduled = Schedule(schedule) if isinstance(schedule, str) else schedule

        def declare(function: F) -> F:
            name = topic if isinstance(topic, str) else function.__name__
            self._must_be_free(name)
            wants_context, hint = parameters(function)
            self.handlers[name] = Handler(
                function,
                name,
                concurrency,
                timeout,
                pauses,
                scheduled,
                isolate,
                "async" if inspect.iscoroutinefunction(function) else pool,
                wants_context,
                decoder(hint),
            )
            return function

        return declare(topic) if callable(topic) else declare

    def _must_be_free(self, topic: str) -> None:
        if topic in self.handlers:
            raise ValueError(
                f"topic {topic!r} already has a handler, the function {self.handlers[topic].function.__qualname__}"
            )

    @property
    def client(self) -> AsyncClient:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            self._client = loop, client_of(self.account, self.objects)
        return self._client[1]

    def get(self, topic: str) -> Target[AsyncSender]:
        """A topic to push to: `await queue.get("mail").group("ada").push(letter)`. What is pushed while a job is worked
        on is for the user whom that is for."""
        return Target(self.client._sender, topic, self.encode, user_id=user_id())

    @staticmethod
    def self() -> Target[AsyncSender]:
        """The topic that the job came from which an async handler works on, to push to: for functions that it calls,
        which have no context. A sync one has `sync_context().self()`. Raises RuntimeError outside a handler."""
        return async_context().self()

    async def aclose(self) -> None:
        """Close its connections."""
        if self._client is not None:
            await self._client[1].aclose()
            self._client = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def pauses_of(retry: Any) -> tuple[float, ...] | None:
    """The seconds before each new try. Raises TypeError or ValueError for what is no list of them."""
    if retry is None:
        return None
    if not isinstance(retry, Sequence) or not all(type(pause) in (int, float) for pause in retry):
        raise TypeError(f"retry is the seconds before each new try, as in (1, 10, 60), and not {retry!r:.100}")
    if not all(0 <= pause <= DAY_SECONDS for pause in retry):
        raise ValueError(f"the pauses of retry are 0 to {DAY_SECONDS} seconds, and not {retry!r:.100}")
    return tuple(retry)


def parameters(function: Callable[..., Any]) -> tuple[bool, Any]:
    """Whether a handler takes the context, and the type hint of its payload. Raises TypeError for what is none."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is a generator, which calling it does not run")
    try:
        every = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise TypeError(f"{function!r} does not say which parameters it takes: wrap it in a function") from error
    for parameter in every:
        if parameter.kind is parameter.KEYWORD_ONLY and (
            parameter.default is parameter.empty or parameter.name in {"context", "ctx"}
        ):
            raise TypeError(
                f"{function.__qualname__} takes {parameter.name} by keyword alone: a handler is called as "
                "handler(payload, context)"
            )
    positional = [
        parameter
        for parameter in every
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in positional if parameter.default is parameter.empty]
    if not positional or len(required) > 2:
        raise TypeError(
            f"{function.__qualname__} must take a payload, and may take a context after it: a handler is called as "
            "handler(payload, context)"
        )
    # Only the payload's: the context's may be imported for type checkers alone.
    payload = types.SimpleNamespace(__annotations__={"payload": positional[0].annotation})
    # A built-in function has no globals, and no annotations that could need them.
    names = getattr(inspect.unwrap(function), "__globals__", {})
    hints = typing.get_type_hints(payload, names, include_extras=True)
    return len(positional) > 1, hints["payload"]
