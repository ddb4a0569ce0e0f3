"""The application. It counts calls by verb and outcome, measures how long they take, and gives each a request id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from app.base import log
from app.base.metrics import Counter, Histogram, Numbers, catalogue

OK: Final = "ok"
LEFT: Final = "client_left"
ACCESS: Final = logging.getLogger("app.access")
_VERB: Final = "holdfast.verb"
_UNTIMED: Final = {"watch", "work", "user_events_listen", "live_stream"}  # their clients decide how long they last


class Service(FastAPI):
    """FastAPI with metrics and request ids, and one await less per request. Each response has X-Request-Id.

    `access_log`: log a line for each finished request."""

    def __init__(self, numbers: Numbers, *, access_log: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._numbers = numbers
        self._access_log = access_log
        # By endpoint, another verb's name, and error code.
        self._counted: dict[tuple[Any, str | None, str | None], tuple[Counter, Histogram | None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and count it. Skips FastAPI's root path and telemetry, which this service does not use."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        began = perf_counter()
        scope["app"] = self
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        named = (log.REQUEST_ID, log.request_id(scope["headers"]))
        scope[log.ID] = named[1]

        def answer(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                scope[log.STATUS] = message["status"]
                message["headers"] = [*message["headers"], named]  # a new list: the old one may be shared
            return send(message)

        task = asyncio.current_task()
        log.UNDER_WAY[task] = scope
        failed = True
        try:
            await self.middleware_stack(scope, receive, answer)
            failed = False
        finally:
            took = perf_counter() - began
            self._count(scope, took)
            if self._access_log:
                self._log_access(scope, took)
            if failed:  # the server is about to log the exception in this task
                asyncio.get_running_loop().call_soon(log.UNDER_WAY.pop, task, None)
            else:
                log.UNDER_WAY.pop(task, None)

    def _log_access(self, scope: Scope, took: float) -> None:
        scope[log.MILLISECONDS] = round(took * 1000, 3)
        where = log.route_of(scope) or "an unknown path"
        status = scope.get(log.STATUS, "no answer")
        ACCESS.info("%s %s: %s in %.1f ms", scope["method"], where, status, took * 1000)

    def _count(self, scope: Scope, took: float) -> None:
        key = (scope.get("endpoint"), scope.get(_VERB), scope.get(log.CODE))
        counted = self._counted.get(key)
        if counted is None:
            counted = self._counted[key] = self._numbers_of(*key)
        calls, seconds = counted
        calls.add()
        if seconds is not None:
            seconds.observe(took)

    def _numbers_of(self, endpoint: Any, verb: str | None, code: str | None) -> tuple[Counter, Histogram | None]:
        dialect, name = _verb_of(endpoint)
        verb, numbers = verb or name, self._numbers
        calls = numbers.counter(catalogue.CALLS, dialect, verb, code or OK)
        return calls, None if verb in _UNTIMED else numbers.histogram(catalogue.CALL_SECONDS, dialect, verb)


def _verb_of(endpoint: Any) -> tuple[str, str]:
    """The dialect and verb of a route's function in the metrics. Other functions are pages, counted by their names;
    unknown paths and mounted applications count as "none"."""
    counted_as: tuple[str, str] | None = getattr(endpoint, "counted_as", None)
    if counted_as is not None:
        return counted_as
    if not hasattr(endpoint, "__name__"):
        return "none", "none"
    module, name = endpoint.__module__.rpartition(".")[2], endpoint.__name__
    return "pages", name if name == module else f"{module}_{name}"


def count_as(request: Request, verb: str) -> None:
    """Count this call as `verb` instead of its route's verb."""
    request.scope[_VERB] = verb


def ended_with(request: Request, code: str) -> None:
    """Record the error code that this call was answered with."""
    request.scope[log.CODE] = code
