"""The application, which counts its calls: how many, by verb and how they ended, and how long they took; and which
gives each an id, by which its lines in the log are found."""

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
_UNTIMED: Final = {"watch", "work", "user_events_listen", "live_stream"}  # as long as their clients like


class Service(FastAPI):
    """FastAPI, with one await less than its own way to the routes and a count around it. Each answer has the id of its
    request in X-Request-Id. `access_log`: each request has a line in the log when it has ended."""

    def __init__(self, numbers: Numbers, *, access_log: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._numbers = numbers
        self._access_log = access_log
        # By endpoint, another verb's name, and error code.
        self._counted: dict[tuple[Any, str | None, str | None], tuple[Counter, Histogram | None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, and count. FastAPI's own adds a root path and telemetry, which this service has none of."""
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
                message["headers"] = [*message["headers"], named]  # a new list: the old one may be another's, too
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
                self._tell(scope, took)
            if failed:  # the server logs that in a moment, in this same task
                asyncio.get_running_loop().call_soon(log.UNDER_WAY.pop, task, None)
            else:
                log.UNDER_WAY.pop(task, None)

    def _tell(self, scope: Scope, took: float) -> None:
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
    """The dialect and verb that a route's function says it is counted as; of other functions, which are pages, their
    names; none for a path that nothing is at, or a mounted application."""
    counted_as: tuple[str, str] | None = getattr(endpoint, "counted_as", None)
    if counted_as is not None:
        return counted_as
    if not hasattr(endpoint, "__name__"):
        return "none", "none"
    module, name = endpoint.__module__.rpartition(".")[2], endpoint.__name__
    return "pages", name if name == module else f"{module}_{name}"


def count_as(request: Request, verb: str) -> None:
    """Count this call as another verb than its route's."""
    request.scope[_VERB] = verb


def ended_with(request: Request, code: str) -> None:
    """Count this call as one that was answered with an error's code."""
    request.scope[log.CODE] = code
