"""Every error that a caller can be answered with: a code, an HTTP status, a message and what it is about.

One tree for all edges; each dialect renders it with one function of its own. Imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class HoldfastError(Exception):
    """The root. `detail` holds JSON-ready values; `retry_after` is in seconds, sent as a header."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retry_after: ClassVar[int | None] = None

    def __init__(self, message: str, detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class ConfigurationError(Exception):
    """The service can't start like this. Its text is the one line that the operator reads."""


class InvalidRequest(HoldfastError):
    code, status = "invalid_request", 400


class InvalidSchema(HoldfastError):
    code, status = "invalid_schema", 400


class BatchTooLarge(HoldfastError):
    code, status = "batch_too_large", 400


class RecordTooLarge(HoldfastError):
    code, status = "record_too_large", 400


class Unauthorized(HoldfastError):
    code, status = "unauthorized", 401


class Forbidden(HoldfastError):
    code, status = "forbidden", 403


class NotFound(HoldfastError):
    code, status = "not_found", 404


class TopicNotFound(HoldfastError):
    code, status = "topic_not_found", 404

    def __init__(self, topic: str) -> None:
        super().__init__(f"There is no topic {topic!r}.", {"topic": topic})


class MethodNotAllowed(HoldfastError):
    code, status = "method_not_allowed", 405


class NotAcceptable(HoldfastError):
    code, status = "not_acceptable", 406


class TopicExistsIncompatible(HoldfastError):
    code, status = "topic_exists_incompatible", 409


class TopicNotEmpty(HoldfastError):
    code, status = "topic_not_empty", 409


class NotAQueue(HoldfastError):
    code, status = "not_a_queue", 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is a log, and only a queue can do this.", {"topic": topic})


class WatchTaken(HoldfastError):
    code, status = "watch_taken", 409


class AlreadyExists(HoldfastError):
    code, status = "already_exists", 409


class KeyNotLive(HoldfastError):
    code, status = "key_not_live", 409


class KeyConflict(HoldfastError):
    code, status = "key_conflict", 409


class NotPending(HoldfastError):
    code, status = "not_pending", 409

    def __init__(self, topic: str, seq: int, status: str) -> None:
        super().__init__(
            f"Job {seq} of topic {topic!r} is {status}: only one that waits can be changed.",
            {"topic": topic, "seq": seq, "status": status},
        )


class Draining(HoldfastError):
    code, status = "draining", 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is drained: it takes no more jobs until it is resumed.", {"topic": topic})


class PayloadTooLarge(HoldfastError):
    code, status = "payload_too_large", 413


class UnsupportedMediaType(HoldfastError):
    code, status = "unsupported_media_type", 415


class TopicFull(HoldfastError):
    code, status = "topic_full", 422


class SchemaViolation(HoldfastError):
    """`place` is the payload's in its batch of `size`, from 0; `path` a JSON Pointer (RFC 6901) to the fault in it."""

    code, status = "schema_violation", 422

    def __init__(self, topic: str, place: int, size: int, path: str, fault: str) -> None:
        which = "The payload" if size == 1 else f"Payload {place}"
        where = f", at {path}" if path else ""
        super().__init__(
            f"{which} does not fit the schema of topic {topic!r}{where}: {fault}",
            {"topic": topic, "record": place, "path": path, "fault": fault},
        )


class NotReplayable(HoldfastError):
    code, status = "not_replayable", 422

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is not replayable: nothing of it is kept.", {"topic": topic})


class OutsideWindow(HoldfastError):
    code, status = "outside_window", 422

    def __init__(self, topic: str, window_ms: int) -> None:
        super().__init__(
            f"Topic {topic!r} can be replayed from a time within the last {window_ms // 1000} s."
            if window_ms
            else "A topic can't be replayed from a time in the future.",
            {"topic": topic, "replay_window_seconds": window_ms // 1000},
        )


class TooMuchToRead(HoldfastError):
    """Trying again helps only where the database had much else to do."""

    code, status = "too_much_to_read", 422

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"So much has happened in that time that reading it takes longer than {seconds:.0f} s.",
            {"max_seconds": seconds},
        )


class InvalidTime(HoldfastError):
    code, status = "invalid_time", 422


class InvalidSchedule(HoldfastError):
    code, status = "invalid_schedule", 422


class RequestTimeout(HoldfastError):
    code, status = "request_timeout", 408


class SlowReader(HoldfastError):
    code, status = "slow_reader", 408


class UriTooLong(HoldfastError):
    code, status = "uri_too_long", 414


class HeadersTooLarge(HoldfastError):
    code, status = "headers_too_large", 431


class Throttled(HoldfastError):
    code, status, retry_after = "throttled", 429, 1


class Unavailable(HoldfastError):
    """The database can't be reached, or too much is waiting for it. What was asked for may have happened:
    a caller that needs to know repeats it, and a job's verbs are safe to repeat."""

    code, status, retry_after = "not_ready", 503, 1


class TooManyWaiting(Unavailable):
    """As many calls wait for one verb of one topic as may. Nothing of this one was done."""

    def __init__(self, most: int) -> None:
        super().__init__("Too many calls are waiting for this topic. Try again.", {"limit": "waiting", "max": most})


class ShuttingDown(HoldfastError):
    code, status, retry_after = "shutting_down", 503, 1
