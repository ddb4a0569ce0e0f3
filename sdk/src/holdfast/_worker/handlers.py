"""Queue, on which handlers are declared."""

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
    """When a schedule enqueues jobs: a cron expression of five fields, the jobs' data, the IANA time zone, and what to
    do about missed times. docs/schedules.md."""

    cron: str
    data: Any = None
    time_zone: str | None = None
    missed: Missed | None = None

    def __post_init__(self) -> None:
        cron.check(self.cron)
        if self.time_zone is not None:
            cron.check_zone(self.time_zone)
        if self.missed not in (None, *typing.get_args(Missed)):
            raise ValueError(f"missed must be 'skip', 'once' or 'all', not {self.missed!r:.100}")


@dataclass(frozen=True, slots=True)
class Isolation:
    """Runs a job that is suspected of killing workers in a separate process, with limits: `memory_mb` of additional
    memory, and `seconds`. If the process dies or takes longer, the job fails."""

    memory_mb: int = 512
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.memory_mb < 1 or not self.seconds > 0:
            raise ValueError("an isolated job needs memory_mb of at least 1 and seconds of more than 0")


@dataclass(frozen=True, slots=True)
class Handler:
    """The handler of a topic and its options. `runs`: in the event loop, in threads, or in processes."""

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
    """Declares handlers of a service's topics, and pushes jobs to them. Making one makes no call.

    - base_url, api_key: as in AsyncClient.
    - encode: converts pushed objects to JSON, text or bytes. Not needed for dataclasses, pydantic models, msgspec
      structs, dates and UUIDs.
    - objects: object storage for large payloads.
    """

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
        """Decorate a function as the handler of a topic. It is called as `handler(payload)` or
        `handler(payload, context)`. The payload is converted to the type hint of the first parameter. The function
        itself stays unchanged.

        - topic: default: the function's name, also for `@queue.handler` without parentheses.
        - concurrency: how many jobs run at once. Async functions run in the worker's event loop, others in a `pool` of
          threads or processes.
        - timeout: seconds until a running job is interrupted and returned.
        - retry: seconds before each retry of a failed job; after the last one the job fails for good. Default: the
          topic's backoff.
        - schedule: a cron expression or a Schedule, which the worker creates.
        - isolate: how to run jobs that are suspected of killing workers.

        Raises TypeError or ValueError for invalid arguments, and ValueError if the topic already has a handler."""
        if not isinstance(concurrency, int):
            raise TypeError(f"concurrency must be a whole number, not {concurrency!r:.100}")
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency must be 1 to {MAX_CONCURRENCY}, not {concurrency}")
        if not timeout > 0:
            raise ValueError("timeout must be more than 0 seconds")
        if pool not in ("thread", "process"):
            raise ValueError(f"pool must be 'thread' or 'process', not {pool!r}")
        if not isinstance(isolate, Isolation | None):
            raise TypeError(f"isolate must be an Isolation, not {isolate!r:.100}")
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
        """A topic to push jobs to: `await queue.get("mail").group("ada").push(letter)`. Inside a handler, the pushed
        jobs are for the user of the handler's job."""
        return Target(self.client._sender, topic, self.encode, user_id=user_id())

    @staticmethod
    def self() -> Target[AsyncSender]:
        """The topic of the current job, to push jobs to. For functions without a context that an async handler calls;
        sync handlers use `sync_context().self()`. Raises RuntimeError outside of a handler."""
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
    """Check `retry`, the seconds before each retry. Raises TypeError or ValueError."""
    if retry is None:
        return None
    if not isinstance(retry, Sequence) or not all(type(pause) in (int, float) for pause in retry):
        raise TypeError(f"retry must be the seconds before each retry, such as (1, 10, 60), not {retry!r:.100}")
    if not all(0 <= pause <= DAY_SECONDS for pause in retry):
        raise ValueError(f"the pauses of retry must be 0 to {DAY_SECONDS} seconds, not {retry!r:.100}")
    return tuple(retry)


def parameters(function: Callable[..., Any]) -> tuple[bool, Any]:
    """Whether a handler takes the context, and the type hint of its payload. Raises TypeError if it can't be a
    handler."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is a generator: a call would not run it")
    try:
        every = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise TypeError(f"{function!r} has no signature: wrap it in a function") from error
    for parameter in every:
        if parameter.kind is parameter.KEYWORD_ONLY and (
            parameter.default is parameter.empty or parameter.name in {"context", "ctx"}
        ):
            raise TypeError(
                f"{function.__qualname__} takes {parameter.name} as a keyword only: a handler is called as "
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
    # Resolve only the payload's hint: the context's type may be imported only for type checkers.
    payload = types.SimpleNamespace(__annotations__={"payload": positional[0].annotation})
    # A built-in function has no globals and no annotations.
    names = getattr(inspect.unwrap(function), "__globals__", {})
    hints = typing.get_type_hints(payload, names, include_extras=True)
    return len(positional) > 1, hints["payload"]
