"""Errors as AWS names them: a name in the JSON protocol, and an older code in the query protocol where there is one."""

from __future__ import annotations

from typing import Final

from app import errors
from app.errors import HoldfastError

# JSON names that have another code in the query protocol, which boto3 puts into its errors in both.
OLD_CODES: Final = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
    "PurgeQueueInProgress": "AWS.SimpleQueueService.PurgeQueueInProgress",
    "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
    "TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": "AWS.SimpleQueueService.BatchRequestTooLong",
    "InvalidBatchEntryId": "AWS.SimpleQueueService.InvalidBatchEntryId",
}


class SqsFault(Exception):
    """An error of AWS. `name` is that of the JSON protocol."""

    def __init__(self, name: str, message: str, status: int = 400, *, whole: bool = False) -> None:
        """`whole`: it refuses the whole batch that has it, not only its entry."""
        super().__init__(message)
        self.name = name
        self.whole = whole
        self.message = message
        self.status = status

    @property
    def code(self) -> str:
        """The code in the query protocol."""
        return OLD_CODES.get(self.name, self.name)

    @property
    def sender(self) -> bool:
        """Whether the caller is at fault."""
        return self.status < 500


def invalid(message: str) -> SqsFault:
    """A parameter has a value that it can't have."""
    return SqsFault("InvalidParameterValue", message)


def bad_value(value: object, parameter: str, reason: str) -> SqsFault:
    """A parameter's value that it can't have, as AWS says it."""
    return invalid(f"Value {str(value)[:200]} for parameter {parameter} is invalid. Reason: {reason}")


def invalid_attribute(name: str, value: str | None = None) -> SqsFault:
    """An attribute of a queue that can't be, or has a value that it can't have."""
    if value is None:
        return SqsFault("InvalidAttributeName", f"Unknown Attribute {name}.")
    return SqsFault("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def missing(parameter: str) -> SqsFault:
    """A parameter that is required."""
    return SqsFault("MissingParameter", f"The request must contain the parameter {parameter}.", whole=True)


def no_queue() -> SqsFault:
    """There is no such queue, or the key is not for it."""
    return SqsFault("QueueDoesNotExist", "The specified queue does not exist.")


_NAMES: Final[tuple[tuple[type[HoldfastError], str, int], ...]] = (
    (errors.Unauthorized, "InvalidClientTokenId", 403),
    (errors.Forbidden, "AccessDeniedException", 403),
    (errors.TopicNotFound, "QueueDoesNotExist", 400),
    (errors.NotAQueue, "QueueDoesNotExist", 400),
    (errors.RecordTooLarge, "InvalidParameterValue", 400),
    (errors.PayloadTooLarge, "InvalidParameterValue", 400),
    (errors.InvalidRequest, "InvalidParameterValue", 400),
    (errors.Draining, "UnsupportedOperation", 400),
    (errors.SchemaViolation, "InvalidMessageContents", 400),
    (errors.TopicFull, "OverLimit", 400),
    (errors.Throttled, "RequestThrottled", 400),
    (errors.Unavailable, "ServiceUnavailable", 503),
    (errors.ShuttingDown, "ServiceUnavailable", 503),
)


def fault_of(error: HoldfastError) -> SqsFault:
    """One of the service's own errors, as AWS would name it."""
    if isinstance(error, errors.TopicNotFound):
        return no_queue()
    for kind, name, status in _NAMES:
        if isinstance(error, kind):
            return SqsFault(name, error.message, status)
    return SqsFault("InternalFailure" if error.status >= 500 else "InvalidParameterValue", error.message, error.status)
