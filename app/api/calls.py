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

from app import log
from app.metrics import catalogue
from app.metrics.numbers import Counter, Histogram, Numbers

OK: Final = "ok"
LEFT: Final = "client_left"
ACCESS: Final = logging.getLogger("app.access")
_VERB: Final = "holdfast.verb"
# Modules whose functions are verbs by themselves; the others' are named with their module.
_VERBS: Final = {"claims", "diffs", "enqueues", "settlements", "records", "watches", "work"}
# By module of the routes that do not say by themselves what they are counted as: dialect, and name.
_NAMED: Final = {
    "app.api.direct": ("none", "direct"),
    "app.api.health": ("none", "health"),
    "app.api.ingest": ("none", "ingest"),
    "app.api.messages.about": ("messages", "about"),
    "app.api.messages.archive": ("messages", "archive"),
    "app.api.messages.by_key": ("messages", "by_key"),
    "app.api.messages.claims": ("messages", "claims"),
    "app.api.messages.enqueues": ("messages", "enqueues"),
    "app.api.messages.grants": ("messages", "grants"),
    "app.api.messages.lists": ("messages", "lists"),
    "app.api.messages.login": ("messages", "login"),
    "app.api.messages.purges": ("messages", "purges"),
    "app.api.messages.reapers": ("messages", "reapers"),
    "app.api.messages.requeue": ("messages", "requeue"),
    "app.api.messages.settlements": ("messages", "settlements"),
    "app.api.messages.topic_configs": ("messages", "topic_configs"),
    "app.api.messages.topic_schemas": ("messages", "topic_schemas"),
    "app.api.messages.users": ("messages", "users"),
    "app.api.metrics": ("none", "metrics"),
    "app.api.v0.admin": ("v0", "admin"),
    "app.api.v0.audit": ("v0", "audit"),
    "app.api.v0.cancels": ("v0", "cancels"),
    "app.api.v0.claims": ("v0", "claims"),
    "app.api.v0.controls": ("v0", "controls"),
    "app.api.v0.deletions": ("v0", "deletions"),
    "app.api.v0.diffs": ("v0", "diffs"),
    "app.api.v0.explain": ("v0", "explain"),
    "app.api.v0.failures": ("v0", "failures"),
    "app.api.v0.jobs": ("v0", "jobs"),
    "app.api.v0.keys": ("v0", "keys"),
    "app.api.v0.overview": ("v0", "overview"),
    "app.api.v0.reapers": ("v0", "reapers"),
    "app.api.v0.records": ("v0", "records"),
    "app.api.v0.releases": ("v0", "releases"),
    "app.api.v0.requeue": ("v0", "requeue"),
    "app.api.v0.results": ("v0", "results"),
    "app.api.v0.saved_views": ("v0", "saved_views"),
    "app.api.v0.scale": ("v0", "scale"),
    "app.api.v0.settlements": ("v0", "settlements"),
    "app.api.v0.stats": ("v0", "stats"),
    "app.api.v0.stats_history": ("v0", "stats_history"),
    "app.api.v0.topics": ("v0", "topics"),
    "app.api.v0.user_events": ("v0", "user_events"),
    "app.api.v0.watches": ("v0", "watches"),
    "app.api.v0.work": ("v0", "work"),
}
_RENAMED: Final = {"append": "enqueue", "enqueue_batch": "enqueue", "dequeue": "claim", "ack_batch": "ack"}
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
        dialect, name = _named(endpoint)
        verb, numbers = verb or name, self._numbers
        calls = numbers.counter(catalogue.CALLS, dialect, verb, code or OK)
        return calls, None if verb in _UNTIMED else numbers.histogram(catalogue.CALL_SECONDS, dialect, verb)


def _named(endpoint: Any) -> tuple[str, str]:
    """The dialect and verb of a route's function; of None or a mounted application, for a path that nothing is at,
    none."""
    counted_as: tuple[str, str] | None = getattr(endpoint, "counted_as", None)
    if counted_as is not None:
        return counted_as
    if not hasattr(endpoint, "__name__"):
        return "none", "none"
    dialect, module = _NAMED.get(endpoint.__module__) or ("pages", endpoint.__module__.rpartition(".")[2])
    verb = _RENAMED.get(endpoint.__name__, endpoint.__name__)
    if module not in _VERBS and verb != module:
        verb = f"{module}_{verb}"
    return dialect, verb


def count_as(request: Request, verb: str) -> None:
    """Count this call as another verb than its route's."""
    request.scope[_VERB] = verb


def ended_with(request: Request, code: str) -> None:
    """Count this call as one that was answered with an error's code."""
    request.scope[log.CODE] = code
