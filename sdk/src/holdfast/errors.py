"""Exceptions. An error answer of the service raises a subclass of APIStatusError, chosen by the error's code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


class HoldfastError(Exception):
    """Base class of this package's errors about the service or a job."""


class APIConnectionError(HoldfastError, ConnectionError):
    """No answer: the service can't be reached, or the connection broke. The call may have taken effect."""


class APITimeoutError(APIConnectionError, TimeoutError):
    """No answer in time. The call may have taken effect."""


class InvalidResponse(HoldfastError):
    """The answer has an unexpected format, for example a proxy's page or another version's answer."""


class APIStatusError(HoldfastError):
    """The service answered with an error.

    - code: for programs; message: for people.
    - detail: the values that the message names.
    - retry_after: in seconds; None if the answer has none.
    - request_id: the answer's X-Request-Id, which each line of the service's log about this request has; None if the
      answer has none.
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
    """400: a field, a parameter or the data is not valid, or is too large."""


class TooLarge(InvalidRequest):
    """400 or 413: the call has too many records, seqs or bytes."""


class Unauthorized(APIStatusError):
    """401: the service needs a key, and the request has none or an invalid one."""


class Forbidden(APIStatusError):
    """403: the key lacks a scope, or has no access to this topic."""


class NotFound(APIStatusError):
    """404: the job, schedule, key or operation does not exist, or is no longer stored."""


class TopicNotFound(NotFound):
    """404: the topic does not exist."""


class Conflict(APIStatusError):
    """409: the current state does not allow the call."""


class NotAQueue(Conflict):
    """409: the topic is a log. In a stream: the topic was deleted or recreated."""


class KeyConflict(Conflict):
    """409: another waiting job has this key."""


class Draining(Conflict):
    """409: the queue is draining and accepts no new jobs."""


class NotPending(Conflict):
    """409: the job is not waiting."""


class Unprocessable(APIStatusError):
    """422: the request is well-formed but can't be carried out."""


class TopicFull(Unprocessable):
    """422: the topic has no room for the batch. Nothing was written."""


class SchemaViolation(Unprocessable):
    """422: data does not match the topic's schema. `detail` has record, path and fault."""


class Throttled(APIStatusError):
    """429: a limit is reached, such as the key's requests or the topic's max_depth. The call had no effect."""


class Unavailable(APIStatusError):
    """503: the service is stopping or overloaded, or can't reach its database."""


class InternalError(APIStatusError):
    """5xx: an internal error of the service or of a proxy."""


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
    """Make the error for an answer. Its class depends on the code, or on the status for an unknown code."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (InternalError if status >= 500 else APIStatusError)
    return kind(message, status=status, code=code, detail=detail, retry_after=retry_after, request_id=request_id)


class ObjectError(HoldfastError):
    """A job's payload can't be written to object storage or read from it: the store fails, has no such bucket or
    object, or the object was changed or is outside of this Objects' prefix and limit. docs/enqueue.md."""


class JQueueError(HoldfastError):
    """Base class of errors of the jqueue-compatible queues."""


class CASConflictError(JQueueError):
    """Never raised. Exists so that code written for jqueue can import it."""


class StorageError(JQueueError):
    """A call to the service failed. `message` says which one, `cause` is the reason."""

    def __init__(self, message: str, cause: BaseException) -> None:
        super().__init__(f"{message}: {cause}")
        self.message = message
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageError, (self.message, self.cause)


class JobNotFoundError(JQueueError):
    """No worker holds a job with this id: it was completed or returned, or never existed."""

    def __init__(self, job_id: str, message: str = "") -> None:
        super().__init__(message or f"Job {job_id} is not in progress.")
        self.job_id = job_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, str(self))


class LeaseLost(JobNotFoundError):
    """The job's lease has ended. Another worker may hold the job, and this worker can no longer settle it. `reason`:
    why the lease could not be extended; None if the service reported its end."""

    def __init__(self, job_id: str, message: str = "", reason: Exception | None = None) -> None:
        super().__init__(job_id, message or f"The lease of job {job_id} has ended.")
        self.reason = reason
