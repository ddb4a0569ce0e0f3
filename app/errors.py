"""Every error that the service can return to a caller: its code, HTTP status, message and detail.

All dialects share this tree, and each renders errors in its own format. This module imports nothing. The first
paragraph of each docstring becomes the error's row in docs/errors.md; the text after "Detail:" fills the last column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

# The manual's page of errors, with a row for each code.
MANUAL: Final = "docs/errors.md"


class HoldfastError(Exception):
    """An internal error. The service's log has the details.

    Base class of all errors. `detail` holds JSON-ready values; `retry_after` is in seconds and sent as a header."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retry_after: ClassVar[int | None] = None

    def __init__(self, message: str, detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    @property
    def docs(self) -> str:
        """The link to the error's entry in the manual, relative to the repository."""
        return f"{MANUAL}#{self.code}"


class ConfigurationError(Exception):
    """The service can't start with this configuration. The operator sees its message as one line."""


class InvalidRequest(HoldfastError):
    """A field, a parameter or the JSON is not valid."""

    code, status = "invalid_request", 400


class InvalidSchema(HoldfastError):
    """The topic's schema is not valid or not supported."""

    code, status = "invalid_schema", 400


class BatchTooLarge(HoldfastError):
    """The call has more than 10,000 records or more than 1,000 seqs. Detail: records or seqs, max."""

    code, status = "batch_too_large", 400


class RecordTooLarge(HoldfastError):
    """The data and meta of a record exceed 1 MiB together. Or a batch exceeds the caps of a topic with discard: reject.
    Detail: record (its index, from 0), bytes, max_bytes; or records, bytes, cap_records, cap_bytes."""

    code, status = "record_too_large", 400


class Unauthorized(HoldfastError):
    """Sign-in is on, and the request has no valid key, token or password."""

    code, status = "unauthorized", 401


class Forbidden(HoldfastError):
    """The key or user lacks a scope, or has no access to this topic or its dead-letter topic.
    Detail: topic, if there is one."""

    code, status = "forbidden", 403


class NotFound(HoldfastError):
    """The path, watch, operation, schedule, key or user does not exist."""

    code, status = "not_found", 404


class TopicNotFound(HoldfastError):
    """The topic does not exist. Detail: topic."""

    code, status = "topic_not_found", 404

    def __init__(self, topic: str) -> None:
        super().__init__(f"There is no topic {topic!r}.", {"topic": topic})


class MethodNotAllowed(HoldfastError):
    """The path does not support this method."""

    code, status = "method_not_allowed", 405


class NotAcceptable(HoldfastError):
    """The Accept header of a work stream or watch excludes text/event-stream."""

    code, status = "not_acceptable", 406


class TopicExistsIncompatible(HoldfastError):
    """A PUT would change a topic's type. Detail: topic, existing_type, requested_type."""

    code, status = "topic_exists_incompatible", 409


class TopicNotEmpty(HoldfastError):
    """A DELETE with if_empty found records in the topic. Detail: topic."""

    code, status = "topic_not_empty", 409


class NotAQueue(HoldfastError):
    """The call needs a queue, and the topic is a log. Detail: topic."""

    code, status = "not_a_queue", 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is a log. This call needs a queue.", {"topic": topic})


class WatchTaken(HoldfastError):
    """Another connection has taken over the watch. Sent only as an event of a stream."""

    code, status = "watch_taken", 409


class AlreadyExists(HoldfastError):
    """The name is taken, possibly by an object that the caller can't see."""

    code, status = "already_exists", 409


class KeyNotLive(HoldfastError):
    """A revoked or expired key can't be rotated. Detail: id, state."""

    code, status = "key_not_live", 409


class KeyConflict(HoldfastError):
    """The job can't be requeued because another waiting job has its key. Detail: topic."""

    code, status = "key_conflict", 409


class NotPending(HoldfastError):
    """Only a waiting job can be changed, and this job is not waiting. Detail: topic, seq, status."""

    code, status = "not_pending", 409

    def __init__(self, topic: str, seq: int, status: str) -> None:
        super().__init__(
            f"Job {seq} of topic {topic!r} is {status}. Only a waiting job can be changed.",
            {"topic": topic, "seq": seq, "status": status},
        )


class Draining(HoldfastError):
    """The queue is draining and accepts no new jobs. Detail: topic."""

    code, status = "draining", 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is draining. It accepts no new jobs until you resume it.", {"topic": topic})


class PayloadTooLarge(HoldfastError):
    """The body is larger than HOLDFAST_MAX_BODY_BYTES. Detail: max_bytes."""

    code, status = "payload_too_large", 413


class UnsupportedMediaType(HoldfastError):
    """The route does not accept the media type of the body."""

    code, status = "unsupported_media_type", 415


class TopicFull(HoldfastError):
    """The batch does not fit into a topic with discard: reject.
    Detail: cap_records, cap_bytes, head_seq, earliest_seq."""

    code, status = "topic_full", 422


class SchemaViolation(HoldfastError):
    """A payload does not match the topic's schema. Detail: topic, record (its index in the batch, from 0), path (a JSON
    Pointer, RFC 6901), fault."""

    code, status = "schema_violation", 422

    def __init__(self, topic: str, place: int, size: int, path: str, fault: str) -> None:
        which = "The payload" if size == 1 else f"Payload {place}"
        where = f", at {path}" if path else ""
        super().__init__(
            f"{which} does not match the schema of topic {topic!r}{where}: {fault}",
            {"topic": topic, "record": place, "path": path, "fault": fault},
        )


class NotReplayable(HoldfastError):
    """The topic is not replayable, so it keeps no completed jobs."""

    code, status = "not_replayable", 422

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic!r} is not replayable: it keeps no completed jobs.", {"topic": topic})


class OutsideWindow(HoldfastError):
    """The replay starts outside the topic's replay window."""

    code, status = "outside_window", 422

    def __init__(self, topic: str, window_ms: int) -> None:
        super().__init__(
            f"A replay of topic {topic!r} must start within the last {window_ms // 1000} s."
            if window_ms
            else "A replay can't start in the future.",
            {"topic": topic, "replay_window_seconds": window_ms // 1000},
        )


class TooMuchToRead(HoldfastError):
    """Reading the history takes longer than the time limit. A retry helps only if the database was busy.
    Detail: max_seconds."""

    code, status = "too_much_to_read", 422

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The history of this period is too long: reading it takes more than {seconds:.0f} s.",
            {"max_seconds": seconds},
        )


class InvalidTime(HoldfastError):
    """The time can't be parsed or is out of range."""

    code, status = "invalid_time", 422


class InvalidSchedule(HoldfastError):
    """The schedule is not valid."""

    code, status = "invalid_schedule", 422


class RequestTimeout(HoldfastError):
    """The request took too long to arrive. It had no effect. Detail: limit."""

    code, status = "request_timeout", 408


class SlowReader(HoldfastError):
    """The client reads a stream too slowly. Sent only as an event of a stream."""

    code, status = "slow_reader", 408


class UriTooLong(HoldfastError):
    """The path and query are too long. Detail: limit, max."""

    code, status = "uri_too_long", 414


class HeadersTooLarge(HoldfastError):
    """The header fields are too large. Detail: limit, max."""

    code, status = "headers_too_large", 431


class Throttled(HoldfastError):
    """A limit is reached: the queue's max_depth, or a limit on requests, streams, bytes or rates.
    Detail: limit, max; for max_depth also topic."""

    code, status, retry_after = "throttled", 429, 1


class Unavailable(HoldfastError):
    """The database can't be reached or is overloaded. The call may have taken effect. Repeat it:
    claims and settlements are safe to repeat, and so are enqueues with an idempotency key."""

    code, status, retry_after = "not_ready", 503, 1


class TooManyWaiting(Unavailable):
    """Too many calls of one verb are waiting for one topic. The call had no effect. Detail: limit, max."""

    def __init__(self, most: int) -> None:
        super().__init__("Too many calls are waiting for this topic. Try again.", {"limit": "waiting", "max": most})


class ShuttingDown(HoldfastError):
    """The service is stopping. A retry reaches the next process."""

    code, status, retry_after = "shutting_down", 503, 1
