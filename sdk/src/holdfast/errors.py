"""One tree of errors. What the service refuses is an APIStatusError; its class says the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


class HoldfastError(Exception):
    """Whatever this package raises about the service or about a job."""


class APIConnectionError(HoldfastError, ConnectionError):
    """No answer came: the service can't be reached, or the connection broke. What was asked for may have happened."""


class APITimeoutError(APIConnectionError, TimeoutError):
    """No answer came in time. What was asked for may have happened."""


class InvalidResponse(HoldfastError):
    """An answer that is none of this service's: a proxy's page, or a service of another version."""


class APIStatusError(HoldfastError):
    """The service said no.

    `code` is for programs, `message` for people. `retry_after` is in seconds, None where the service does not say.
    `request_id` is the answer's X-Request-Id: the service's log has it in each line about this request. None where
    something between sets none.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "",
        detail: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}" if code else f"{status}: {message}")
        self.message = message
        self.status = status
        self.code = code
        self.detail: Mapping[str, Any] = detail or {}
        self.retry_after = retry_after
        self.request_id = request_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.message, {name: getattr(self, name) for name in _FIELDS})


_FIELDS = ("status", "code", "detail", "retry_after", "request_id")


def _remade(kind: type[APIStatusError], message: str, fields: dict[str, Any]) -> APIStatusError:
    return kind(message, **fields)


class InvalidRequest(APIStatusError):
    """400: a field, a parameter or the data makes no sense, or is too large."""


class TooLarge(InvalidRequest):
    """400 or 413: more records, more seqs or more bytes than a call may have."""


class Unauthorized(APIStatusError):
    """401: the service wants a key, and this one is none of its."""


class Forbidden(APIStatusError):
    """403: the key lacks a scope, or is not for this topic."""


class NotFound(APIStatusError):
    """404: there is no such job, schedule, key or operation, or nothing is kept of it."""


class TopicNotFound(NotFound):
    """404: there is no such topic."""


class Conflict(APIStatusError):
    """409: what there is does not allow it."""


class NotAQueue(Conflict):
    """409: the topic is a log. In a stream: it was deleted or made anew."""


class KeyConflict(Conflict):
    """409: another job of this key waits."""


class Draining(Conflict):
    """409: the queue is drained, and takes nothing in."""


class NotPending(Conflict):
    """409: the job does not wait."""


class Unprocessable(APIStatusError):
    """422: understood, and not possible."""


class TopicFull(Unprocessable):
    """422: no room for the batch; nothing of it was written."""


class SchemaViolation(Unprocessable):
    """422: data does not fit the topic's schema; `detail` has record, path and fault."""


class Throttled(APIStatusError):
    """429: a limit of this key's, or of the topic's depth. Nothing was done."""


class Unavailable(APIStatusError):
    """503: the service is stopping, has too much to do, or its database is away."""


class InternalError(APIStatusError):
    """5xx: a fault of the service, or of a proxy before it."""


_BY_CODE: Final[Mapping[str, type[APIStatusError]]] = {
    "invalid_request": InvalidRequest,
    "invalid_schema": InvalidRequest,
    "batch_too_large": TooLarge,
    "record_too_large": TooLarge,
    "payload_too_large": TooLarge,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "topic_not_found": TopicNotFound,
    "already_exists": Conflict,
    "key_not_live": Conflict,
    "watch_taken": Conflict,
    "topic_exists_incompatible": Conflict,
    "topic_not_empty": Conflict,
    "not_a_queue": NotAQueue,
    "key_conflict": KeyConflict,
    "draining": Draining,
    "not_pending": NotPending,
    "invalid_schedule": Unprocessable,
    "too_much_to_read": Unprocessable,
    "topic_full": TopicFull,
    "schema_violation": SchemaViolation,
    "throttled": Throttled,
    "not_ready": Unavailable,
    "shutting_down": Unavailable,
    "internal": InternalError,
}
_BY_STATUS: Final[Mapping[int, type[APIStatusError]]] = {
    **{400: InvalidRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 413: TooLarge},
    **{422: Unprocessable, 429: Throttled, 503: Unavailable},
}


def status_error(
    status: int,
    code: str,
    message: str,
    *,
    detail: Mapping[str, Any] | None = None,
    retry_after: float | None = None,
    request_id: str | None = None,
) -> APIStatusError:
    """The error of an answer: by its code, else by its status."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (InternalError if status >= 500 else APIStatusError)
    return kind(message, status=status, code=code, detail=detail, retry_after=retry_after, request_id=request_id)


class ObjectError(HoldfastError):
    """The payload of a job can't be put into object storage or read from there: the store fails or has no such bucket,
    or the object is gone, is not what was put there, or is none that this Objects reads. docs/enqueue.md."""


class JQueueError(HoldfastError):
    """What the queues of jqueue's shape raise."""


class CASConflictError(JQueueError):
    """For importers only: nothing here is compared and set, so it is never raised."""


class StorageError(JQueueError):
    """The service could not be asked, or refused: `message` says what was tried, `cause` why it failed."""

    def __init__(self, message: str, cause: BaseException) -> None:
        super().__init__(f"{message}: {cause}")
        self.message = message
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageError, (self.message, self.cause)


class JobNotFoundError(JQueueError):
    """Nobody holds a job of this id: it is done, was returned, or never was."""

    def __init__(self, job_id: str, message: str = "") -> None:
        super().__init__(message or f"Job {job_id} is not in progress.")
        self.job_id = job_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, str(self))


class LeaseLost(JobNotFoundError):
    """The lease of a job has ended: somebody else may have it, and what its holder does no longer counts. `reason` is
    why it could not be extended, None where the service says that it has ended."""

    def __init__(self, job_id: str, message: str = "", reason: Exception | None = None) -> None:
        super().__init__(job_id, message or f"The lease of job {job_id} has ended.")
        self.reason = reason
