"""Decides how to settle a job from what its handler returned or raised."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from holdfast._wire import encode
from holdfast._worker.payloads import plain

DAY_SECONDS: Final = 86_400  # the service's limit of a pause
MAX_ERROR_BYTES: Final = 8_000  # the service's limit is 8,192


class Retry(Exception):
    """Return the job to the queue and retry it `after` seconds; default: the handler's `retry` or the topic's backoff.
    Return or raise it in a handler."""

    def __init__(self, after: float | timedelta | None = None, reason: str | None = None) -> None:
        super().__init__(after, reason)
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds < math.inf:
            raise ValueError(f"after must be 0 seconds or more, not {after}")
        self.after = seconds
        self.reason = reason


class Dead(Exception):
    """Fail the job for good, without retries. It becomes a dead letter if the topic has them. Return or raise it in a
    handler."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Result:
    """Complete the job with a result, which `topic.result(seq)` returns. The value can be any JSON value, dataclass,
    pydantic model or msgspec struct. Return it from a handler."""

    value: Any


# How a job is settled. `release` is a nack whose delivery does not count. `uncommitted` is a nack of a job that its
# handler completes in a transaction: it has an effect only if that was rolled back.
Verb = Literal["ack", "nack", "fail", "release", "uncommitted"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How to settle a job. Jobs with equal verdicts are settled in one request."""

    verb: Verb
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with `detail`: a result or an error."""

    verdict: Verdict
    detail: Any = None


ACK: Final = Verdict("ack")
FAIL: Final = Verdict("fail")
RELEASE: Final = Verdict("release")


def judged(value: Any, retry: Sequence[float] | None, deliveries: int) -> Judged:
    """Judge a handler's value or exception. `retry`: seconds before each retry, None: the topic's backoff.
    `deliveries`: of the job, including this one."""
    try:
        return _judged(value, retry, deliveries)
    except Exception as error:  # from the handler's own classes, such as a __str__ that raises
        kind = type(value).__name__
        return _failed(f"{kind}, whose text can't be read: {type(error).__name__}", retry, deliveries)


def _judged(value: Any, retry: Sequence[float] | None, deliveries: int) -> Judged:  # noqa: PLR0911 - one for each kind
    match value:
        case Judged():
            return value
        case Result():
            try:
                encode(result := plain(value.value))
            except (TypeError, ValueError, RecursionError) as error:
                return _failed(f"the result can't be encoded as JSON: {error}", retry, deliveries)
            return Judged(ACK, result)
        case Dead():
            return Judged(FAIL, why(value.reason))
        case Retry(after=float() | int() as seconds):
            return Judged(Verdict("nack", _rounded(seconds)), why(value.reason))
        case Retry():
            return _failed(value.reason, retry, deliveries)
        case BaseException():
            return _failed(f"{type(value).__name__}: {value}", retry, deliveries)
        case type() if issubclass(value, (Retry, Dead)):
            return _failed(
                f"TypeError: the handler returned the class {value.__name__}, not an instance", retry, deliveries
            )
        case _ if _unrun(value):
            if inspect.iscoroutine(value) or inspect.isgenerator(value):
                value.close()
            reason = f"TypeError: the handler returned a {type(value).__name__}, which never ran: await it"
            return _failed(reason, retry, deliveries)
        case _:
            return Judged(ACK)


def _rounded(seconds: float) -> int:
    """A pause in ms, rounded up to two digits, so that many jobs have the same one and share a request."""
    ms = round(min(seconds, DAY_SECONDS) * 1000)
    step: int = 10 ** max(0, len(str(ms)) - 2)
    return -(-ms // step) * step


def _unrun(value: Any) -> bool:
    return inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)


def unless_committed(judged: Judged) -> Judged:
    """How to settle a job whose handler has called holdfast.sql.complete. It is already completed if that was
    committed."""
    verdict = judged.verdict
    match verdict.verb:
        case "ack":
            return Judged(
                Verdict("uncommitted"), "the handler completed the job in a transaction that was not committed"
            )
        case "nack":
            return Judged(Verdict("uncommitted", verdict.delay_ms), judged.detail)
        case _:
            return judged


def _failed(reason: str | None, retry: Sequence[float] | None, deliveries: int) -> Judged:
    if retry is None:
        return Judged(Verdict("nack"), why(reason))
    if deliveries > len(retry):
        return Judged(FAIL, why(reason))
    return Judged(Verdict("nack", round(retry[deliveries - 1] * 1000)), why(reason))


def why(reason: str | None) -> str | None:
    """Truncate a reason to the service's limit and replace U+0000."""
    if reason is None:
        return None
    return reason.replace("\0", "\ufffd").encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore")
