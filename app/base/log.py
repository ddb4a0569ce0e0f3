"""Logging to stderr: one line per event, as text or JSON, with the time in UTC and the request.

Lines never have payloads, secrets, lease ids, headers or query strings.
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
ID_PATTERN: Final = r"[A-Za-z0-9._-]{1,128}"  # valid ids of callers
TOPIC_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}"  # same as in app.kernel.topics.settings
# Keys in a request's scope.
ID: Final = "holdfast.request_id"
KEY: Final = "holdfast.key_id"
TOPIC: Final = "holdfast.topic"
STATUS: Final = "holdfast.status"
CODE: Final = "holdfast.code"
MILLISECONDS: Final = "holdfast.duration_ms"

# The keys of a JSON line, in this order. Keys after `message` are left out if they have no value.
FIELDS: Final = (
    "time", "level", "logger", "message", "worker", "request_id", "key_id", "topic", "route", "method", "status",
    "code", "duration_ms", "trace_id", "span_id", "exception",
)  # fmt: skip

_ID: Final = re.compile(ID_PATTERN.encode()).fullmatch
_TOPIC: Final = re.compile(TOPIC_PATTERN).fullmatch
_TRACE: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
# Characters that end a line or control a terminal.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029",
}  # fmt: skip
_MOST: Final = 8_000  # characters of a message
_MOST_CHAINED: Final = 10  # causes of an exception that are shown
_WITHHELD: Final = "(text withheld: it may quote data)"
_bits: Final = random.getrandbits  # ids may be guessable

# Running requests, by task. Not a context variable: tasks and timers that a request starts would inherit it, though
# they serve other requests as well.
UNDER_WAY: Final[dict[asyncio.Task[Any] | None, Scope]] = {}


def configure(level: str, form: Format = "text", worker: int | None = None) -> None:
    """Send all loggers to stderr. `worker`: this process's number, if several write to the same stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(worker) if form == "json" else TextLines(worker))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Lost connections are logged elsewhere; asyncpg would add a traceback for each.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    # Malformed forms are answered with 400. Callers must not be able to fill the log with them.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    if form == "json":
        sys.excepthook = _uncaught


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The caller's X-Request-Id if it is valid, else a new id of 32 hexadecimal digits."""
    for name, value in headers:
        if name == REQUEST_ID:
            if _ID(value):
                return value
            break
    return b"%032x" % _bits(128)


def route_of(scope: Mapping[str, Any]) -> str:
    """The template of a request's route, such as /v0/topics/{topic}; "" for an unknown path."""
    route = scope.get("route")
    return "" if route is None else f"{scope.get('root_path', '')}{route.path}"


class TextLines(logging.Formatter):
    """Lines for people. They can't be forged: control characters are escaped and tracebacks indented."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._speaker = "" if worker is None else f"[worker {worker}] "

    def format(self, record: logging.LogRecord) -> str:
        line = (
            f"{_time(record)} {record.levelname} {self._speaker}{record.name}: {_message(record).translate(_CONTROLS)}"
        )
        about = _request()
        parts = [f"{name}={about[name]}" for name in ("request_id", "topic", "key_id") if name in about]
        fault = _exception(record)
        return " ".join((line, *parts)) + "".join(f"\n  {part}" for part in fault.split("\n") if part)


class JsonLines(logging.Formatter):
    """Lines for programs: one JSON object each, in ASCII."""

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
    """Format a line of `logger`, for output elsewhere than stderr."""
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, message, (), None)
    return logging.getLogger().handlers[0].format(record)


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage().strip()
    except Exception:  # or logging would print the arguments
        text = f"{record.msg} (with arguments that don't match)"
    if record.name == "asyncio":
        # The rest is a callback with its arguments, or a task with its exception.
        text = text.partition("\n")[0].partition("(")[0].rstrip()
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def _request() -> dict[str, Any]:
    """Fields of the request that the current task serves; empty outside of requests."""
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
    chain: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(chain) < _MOST_CHAINED:
        seen.add(id(error))
        chain.append(_one(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\nwhich caused:\n".join(reversed(chain))


def _one(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__))
    text = f"Traceback (most recent call last):\n{frames}{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, BaseExceptionGroup):
        parts = [_one(part) for part in error.exceptions[:_MOST_CHAINED]]
        return "\nand:\n".join((text, *parts))
    return f"{text}: {_message_of(error)}".rstrip(": ")


def _message_of(error: BaseException) -> str:
    """The text of an exception, unless it may quote data. PostgreSQL quotes rows in the details of errors and values in
    errors of class 22; asyncpg and Python quote values in any ValueError and KeyError."""
    state = getattr(error, "sqlstate", None)
    if isinstance(error, ValueError | LookupError) or (state or "").startswith("22"):
        return _WITHHELD
    text = str(error.args[0]) if state and error.args else str(error)
    return text[:_MOST].translate(_CONTROLS)


def _uncaught(_kind: type[BaseException], error: BaseException, _traceback: object) -> None:
    logging.getLogger("app").critical("The process ends after an unhandled exception", exc_info=error)
