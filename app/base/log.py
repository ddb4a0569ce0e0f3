"""Logging: one line an event on stderr, as text or as JSON, with the time in UTC and the request that it is about.

What callers send is in no line: no payloads, secrets, lease ids, headers or query strings.
docs/operations/monitoring.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final, Literal

Scope = MutableMapping[str, Any]
Format = Literal["text", "json"]

REQUEST_ID: Final = b"x-request-id"
ID_PATTERN: Final = r"[A-Za-z0-9._-]{1,128}"  # what is taken of a caller
TOPIC_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}"  # as app.kernel.topics.settings has it
# In a request's scope: its id, what is known of it by now, and the event loop's clock when it came.
ID: Final = "holdfast.request_id"
KEY: Final = "holdfast.key_id"
TOPIC: Final = "holdfast.topic"
STATUS: Final = "holdfast.status"
CODE: Final = "holdfast.code"
MILLISECONDS: Final = "holdfast.duration_ms"

# The keys of a line of JSON, in this order; those after `message` stand only where there is something to say.
FIELDS: Final = (
    "time", "level", "logger", "message", "worker", "request_id", "key_id", "topic", "route", "method", "status",
    "code", "duration_ms", "trace_id", "span_id", "exception",
)  # fmt: skip

_ID: Final = re.compile(ID_PATTERN.encode()).fullmatch
_TOPIC: Final = re.compile(TOPIC_PATTERN).fullmatch
_TRACE: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
# What could end a line, or change what a terminal shows of others.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029",
}  # fmt: skip
_MOST: Final = 8_000  # characters of a message
_MOST_CHAINED: Final = 10  # causes of an exception that are shown
_WITHHELD: Final = "(what it says is left out: it may quote data)"
_bits: Final = random.getrandbits  # ids need not be unguessable

# Requests under way, by the task that serves them. Not a context variable: tasks and timers that a request starts keep
# a copy of its context, and serve others as well, or live on.
UNDER_WAY: Final[dict[asyncio.Task[Any] | None, Scope]] = {}


def configure(level: str, form: Format = "text", worker: int | None = None) -> None:
    """Send all loggers of the process to stderr. `worker`: which one this is, where several write to one stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(worker) if form == "json" else TextLines(worker))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # A lost connection is answered with 503 and said once, where it is met; asyncpg adds a traceback for each.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    # A form that is none is answered with 400: who sends many writes no lines here.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    if form == "json":
        sys.excepthook = _uncaught


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The caller's X-Request-Id if it can be one, else a new one: 32 hexadecimal digits."""
    for name, value in headers:
        if name == REQUEST_ID:
            if _ID(value):
                return value
            break
    return b"%032x" % _bits(128)


def route_of(scope: Mapping[str, Any]) -> str:
    """The template of a request's route, such as /v0/topics/{topic}; empty for a path that nothing is at."""
    route = scope.get("route")
    return "" if route is None else f"{scope.get('root_path', '')}{route.path}"


class TextLines(logging.Formatter):
    """Lines for people. None can be forged: control characters are escaped, and tracebacks are indented."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._speaker = "" if worker is None else f"[worker {worker}] "

    def format(self, record: logging.LogRecord) -> str:
        line = (
            f"{_time(record)} {record.levelname} {self._speaker}{record.name}: {_message(record).translate(_CONTROLS)}"
        )
        about = _request()
        told = [f"{name}={about[name]}" for name in ("request_id", "topic", "key_id") if name in about]
        fault = _exception(record)
        return " ".join((line, *told)) + "".join(f"\n  {part}" for part in fault.split("\n") if part)


class JsonLines(logging.Formatter):
    """Lines for programs: one JSON object each, in ASCII, whatever is in it."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker: dict[str, Any] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": _message(record)} | self._worker | _request()
        fault = _exception(record)
        if fault:
            line["exception"] = fault
        return json.dumps(line)


def as_line(logger: logging.Logger, message: str) -> str:
    """What `logger` would write of this, for what is not said on stderr."""
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, message, (), None)
    return logging.getLogger().handlers[0].format(record)


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage().strip()
    except Exception:  # or logging would print its arguments
        text = f"{record.msg} (with arguments that don't fit)"
    if record.name == "asyncio":
        # What follows is the callback with its arguments, or the task with its exception.
        text = text.partition("\n")[0].partition("(")[0].rstrip()
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def _request() -> dict[str, Any]:
    """What is known of the request that this task serves; nothing elsewhere."""
    try:
        scope = UNDER_WAY.get(asyncio.current_task())
    except RuntimeError:
        return {}
    if scope is None:
        return {}
    key = scope.get(KEY)  # an app.base.keys.Key
    topic = scope.get(TOPIC) or scope.get("path_params", {}).get("topic") or ""
    trace = next((_TRACE.fullmatch(value) for name, value in scope["headers"] if name == b"traceparent"), None)
    known = {
        "request_id": scope[ID].decode(),
        "key_id": None if key is None else key.label,
        "topic": topic if _TOPIC(topic) else None,
        "route": route_of(scope) or None,
        "method": scope["method"],
        "status": scope.get(STATUS),
        "code": scope.get(CODE),
        "duration_ms": scope.get(MILLISECONDS),
        "trace_id": trace and trace[1].decode(),
        "span_id": trace and trace[2].decode(),
    }
    return {name: value for name, value in known.items() if value is not None}


def _exception(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error: BaseException | None = record.exc_info[1]
    told: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(told) < _MOST_CHAINED:
        seen.add(id(error))
        told.append(_one(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\nwhich came of it:\n".join(reversed(told))


def _one(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__))
    text = f"Traceback (most recent call last):\n{frames}{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, BaseExceptionGroup):
        parts = [_one(part) for part in error.exceptions[:_MOST_CHAINED]]
        return "\nand:\n".join((text, *parts))
    return f"{text}: {_said(error)}".rstrip(": ")


def _said(error: BaseException) -> str:
    """The text of an exception, unless it may quote what it choked on. PostgreSQL puts rows into the detail of its
    errors, and values into those of class 22; asyncpg and Python put them into every ValueError and KeyError."""
    state = getattr(error, "sqlstate", None)
    if isinstance(error, ValueError | LookupError) or (state or "").startswith("22"):
        return _WITHHELD
    text = str(error.args[0]) if state and error.args else str(error)
    return text[:_MOST].translate(_CONTROLS)


def _uncaught(_kind: type[BaseException], error: BaseException, _traceback: object) -> None:
    logging.getLogger("app").critical("The process ends by a fault", exc_info=error)
