"""Every error that a caller can be answered with: a code, an HTTP status, a message and what it is about.

One tree for all edges; each dialect renders it with one function of its own. Imports nothing. The first paragraph of a
docstring, and what follows "Detail:" in it, is the error's row in docs/errors.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class HoldfastError(Exception):
    """A fault of the service; its log says which.

    The root of all others. `detail` holds JSON-ready values; `retry_after` is in seconds, sent as a header."""

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
    """A field, a parameter or the JSON makes no sense."""

    code, status = "invalid_request", 400


class InvalidSchema(HoldfastError):
    """A topic's schema is none that can be used."""

    code, status = "invalid_schema", 400


class BatchTooLarge(HoldfastError):
    """More than 10,000 records, or more than 1,000 seqs. Detail: records or seqs, max."""

    code, status = "batch_too_large", 400


class RecordTooLarge(HoldfastError):
    """Data and meta of a record are more than 1 MiB together; or a batch is larger than the caps of a topic that
    refuses. Detail: record (its place, from 0), bytes, max_bytes; or records, bytes, cap_records, cap_bytes."""

    code, status = "record_too_large", 400


class Unauthorized(HoldfastError):
    """Sign-in is on, and this request has no key, token or password that counts."""

    code, status = "unauthorized", 401


class Forbidden(HoldfastError):
    """The key or user lacks a scope, or is not for this topic or its dead-letter topic.
    Detail: topic, where it is about one."""

    code, status = "forbidden", 403


class NotFound(HoldfastError):
    """There is no such path, watch, operation, schedule, key or user."""

    code, status = "not_found", 404


class TopicNotFound(HoldfastError):
    """There is no such topic. Detail: topic."""

    code, status = "topic_not_found", 404

    def __init__(self, topic: str) -> None:
        super().__init__(f"There is no topic {topic!r}.", {"topic": topic})


class MethodNotAllowed(HoldfastError):
    """The path has no such method."""

    code, status = "method_not_allowed", 405


class NotAcceptable(HoldfastError):
    """The Accept of a work stream or watch excludes events."""

    code, status = "not_acceptable", 406


class TopicExistsIncompatible(HoldfastError):
    """A PUT would change a topic's type. Detail: topic, existing_type, requested_type."""

    code, status = "topic_exists_incompatible", 409


class TopicNotEmpty(HoldfastError):
    """A DELETE with if_empty, and the topic is not empty. Detail: topic."""

    code, status = "topic_not_empty", 409


class NotAQueue(HoldfastError):
    """The topic is a log. Detail: topic."""

    code, status = "not_a_queue", 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is a log, and only a queue can do this.", {"topic": topic})


class WatchTaken(HoldfastError):
    """Another connection has taken the watch over: only in frames of streams."""

    code, status = "watch_taken", 409


class AlreadyExists(HoldfastError):
    """There is one of this name already, which may be out of the caller's reach."""

    code, status = "already_exists", 409


class KeyNotLive(HoldfastError):
    """A key that was revoked or has expired can't be rotated. Detail: id, state."""

    code, status = "key_not_live", 409


class KeyConflict(HoldfastError):
    """A requeue of a job whose key one that waits has. Detail: topic."""

    code, status = "key_conflict", 409


class NotPending(HoldfastError):
    """A change of a job that does not wait. Detail: topic, seq, status."""

    code, status = "not_pending", 409

    def __init__(self, topic: str, seq: int, status: str) -> None:
        super().__init__(
            f"Job {seq} of topic {topic!r} is {status}: only one that waits can be changed.",
            {"topic": topic, "seq": seq, "status": status},
        )


class Draining(HoldfastError):
    """An enqueue to a queue that is drained. Detail: topic."""

    code, status = "draining", 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is drained: it takes no more jobs until it is resumed.", {"topic": topic})


class PayloadTooLarge(HoldfastError):
    """The body is larger than HOLDFAST_MAX_BODY_BYTES. Detail: max_bytes."""

    code, status = "payload_too_large", 413


class UnsupportedMediaType(HoldfastError):
    """A body of a media type that the route does not take."""

    code, status = "unsupported_media_type", 415


class TopicFull(HoldfastError):
    """A topic with discard: reject has no room for the batch.
    Detail: cap_records, cap_bytes, head_seq, earliest_seq."""

    code, status = "topic_full", 422


class SchemaViolation(HoldfastError):
    """A payload does not fit the topic's schema. Detail: topic, record (its place in the batch, from 0), path (a JSON
    Pointer, RFC 6901), fault."""

    code, status = "schema_violation", 422

    def __init__(self, topic: str, place: int, size: int, path: str, fault: str) -> None:
        which = "The payload" if size == 1 else f"Payload {place}"
        where = f", at {path}" if path else ""
        super().__init__(
            f"{which} does not fit the schema of topic {topic!r}{where}: {fault}",
            {"topic": topic, "record": place, "path": path, "fault": fault},
        )


class NotReplayable(HoldfastError):
    """A replay of a topic of which nothing is kept."""

    code, status = "not_replayable", 422

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is not replayable: nothing of it is kept.", {"topic": topic})


class OutsideWindow(HoldfastError):
    """A replay from a time that is not within the topic's window."""

    code, status = "outside_window", 422

    def __init__(self, topic: str, window_ms: int) -> None:
        super().__init__(
            f"Topic {topic!r} can be replayed from a time within the last {window_ms // 1000} s."
            if window_ms
            else "A topic can't be replayed from a time in the future.",
            {"topic": topic, "replay_window_seconds": window_ms // 1000},
        )


class TooMuchToRead(HoldfastError):
    """Reading what has happened takes longer than it may; trying again helps only where the database had much else
    to do. Detail: max_seconds."""

    code, status = "too_much_to_read", 422

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"So much has happened in that time that reading it takes longer than {seconds:.0f} s.",
            {"max_seconds": seconds},
        )


class InvalidTime(HoldfastError):
    """A time that can't be read, or lies where it makes no sense."""

    code, status = "invalid_time", 422


class InvalidSchedule(HoldfastError):
    """A schedule that makes no sense."""

    code, status = "invalid_schedule", 422


class RequestTimeout(HoldfastError):
    """The request took too long to come; nothing of it was done. Detail: limit."""

    code, status = "request_timeout", 408


class SlowReader(HoldfastError):
    """The client reads a stream too slowly: only in frames of streams."""

    code, status = "slow_reader", 408


class UriTooLong(HoldfastError):
    """Path and query are longer than they may be. Detail: limit, max."""

    code, status = "uri_too_long", 414


class HeadersTooLarge(HoldfastError):
    """The header fields are longer than they may be. Detail: limit, max."""

    code, status = "headers_too_large", 431


class Throttled(HoldfastError):
    """A queue holds as many jobs as its max_depth allows, or would with this batch; or a limit on requests, streams,
    bytes or rates. Detail: limit, max; of max_depth, topic."""

    code, status, retry_after = "throttled", 429, 1


class Unavailable(HoldfastError):
    """The database can't be reached, or too much is waiting for it. What was asked for may have happened:
    a caller that needs to know repeats it, and a job's verbs are safe to repeat."""

    code, status, retry_after = "not_ready", 503, 1


class TooManyWaiting(Unavailable):
    """As many calls wait for one verb of one topic as may. Nothing of this one was done. Detail: limit, max."""

    def __init__(self, most: int) -> None:
        super().__init__("Too many calls are waiting for this topic. Try again.", {"limit": "waiting", "max": most})


class ShuttingDown(HoldfastError):
    """The service is stopping. Trying again finds the next process."""

    code, status, retry_after = "shutting_down", 503, 1
