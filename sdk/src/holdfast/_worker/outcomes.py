"""What becomes of a job, by what its handler gave or raised."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from holdfast._wire import encode
from holdfast._worker.payloads import plain

DAY_SECONDS: Final = 86_400  # the service makes no longer pause
MAX_ERROR_BYTES: Final = 8_000  # the service takes 8,192


class Retry(Exception):
    """Give the job back, to be tried again `after` so many seconds, as the handler or the topic says if absent. To be
    returned or raised."""

    def __init__(self, after: float | timedelta | None = None, reason: str | None = None) -> None:
        super().__init__(after, reason)
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds < math.inf:
            raise ValueError(f"a retry is after 0 seconds or more, and not {after}")
        self.after = seconds
        self.reason = reason


class Dead(Exception):
    """The job has failed for good: it goes to the dead letters, and is not tried again. To be returned or raised."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Result:
    """The job is done, and this, which has a JSON or is a dataclass, a model or a struct, is what came of it:
    `topic.result(seq)` has it."""

    value: Any


# How a job is settled. To release it is a nack whose delivery does not count: it was not the job's fault. `uncommitted`
# is a nack of a job that a transaction of its handler's completes: it finds nothing, unless that was rolled back.
Verb = Literal["ack", "nack", "fail", "release", "uncommitted"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a job is to be settled: what has the same one goes out in one request."""

    verb: Verb
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and what is said with it: a result, or why."""

    verdict: Verdict
    said: Any = None


ACK: Final = Verdict("ack")
FAIL: Final = Verdict("fail")
RELEASE: Final = Verdict("release")


def judged(value: Any, retry: Sequence[float] | None, deliveries: int) -> Judged:
    """What a handler's value or error means. `retry`: seconds before each new try, after which there is none; None
    leaves that to the topic. `deliveries`: how often the job was handed out, with this time."""
    try:
        return _judged(value, retry, deliveries)
    except Exception as error:  # of the handler's own classes: a __str__ that raises, a reason that is no text
        kind = type(value).__name__
        return _failed(f"{kind}, which could not be read: {type(error).__name__}", retry, deliveries)


def _judged(value: Any, retry: Sequence[float] | None, deliveries: int) -> Judged:  # noqa: PLR0911 - one for each kind
    match value:
        case Judged():
            return value
        case Result():
            try:
                encode(result := plain(value.value))
            except (TypeError, ValueError, RecursionError) as error:
                return _failed(f"its result has no JSON: {error}", retry, deliveries)
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
            return _failed(f"TypeError: it gave the class {value.__name__}, and not one of these", retry, deliveries)
        case _ if _unrun(value):
            if inspect.iscoroutine(value) or inspect.isgenerator(value):
                value.close()
            reason = f"TypeError: it gave a {type(value).__name__}, which nobody runs: await what it calls"
            return _failed(reason, retry, deliveries)
        case _:
            return Judged(ACK)


def _rounded(seconds: float) -> int:
    """A pause in ms, of two digits and noughts, up: those of many jobs are to share requests, and a request has one."""
    ms = round(min(seconds, DAY_SECONDS) * 1000)
    step: int = 10 ** max(0, len(str(ms)) - 2)
    return -(-ms // step) * step


def _unrun(value: Any) -> bool:
    return inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)


def unless_committed(judged: Judged) -> Judged:
    """What to do about a job whose handler has called holdfast.sql.complete: it is done, and nothing is to be, if that
    was committed."""
    verdict = judged.verdict
    match verdict.verb:
        case "ack":
            return Judged(Verdict("uncommitted"), "its handler completed it in a transaction that was not committed")
        case "nack":
            return Judged(Verdict("uncommitted", verdict.delay_ms), judged.said)
        case _:
            return judged


def _failed(reason: str | None, retry: Sequence[float] | None, deliveries: int) -> Judged:
    if retry is None:
        return Judged(Verdict("nack"), why(reason))
    if deliveries > len(retry):
        return Judged(FAIL, why(reason))
    return Judged(Verdict("nack", round(retry[deliveries - 1] * 1000)), why(reason))


def why(reason: str | None) -> str | None:
    """A reason as the service takes it: not too long, and without U+0000."""
    if reason is None:
        return None
    return reason.replace("\0", "\ufffd").encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore")
