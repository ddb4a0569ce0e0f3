"""Options of an enqueue in both dialects: fields of a job, and the idempotency key of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from app.errors import InvalidRequest
from app.http import sight
from app.http.bounds import MAX_KEY_BYTES
from app.http.fields import time_of
from app.http.openapi import header
from app.kernel.topics.policy import check_groups
from app.kernel.topics.webhooks import check_url

if TYPE_CHECKING:
    from starlette.requests import Request

    from app.base.keys import Key
    from app.kernel.model import Batch


IDEMPOTENCY_KEY: Final = header(
    "Idempotency-Key",
    f"Same as idempotency_key in the body, which takes precedence. 1 to {MAX_KEY_BYTES} bytes.",
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_BYTES},
)


class JobOptions(Protocol):
    """A job's options, not yet checked."""

    priority: int | None
    run_at: str | None
    max_deliveries: int | None
    tenant: str | None
    key: str | None
    group: str | None
    webhook: str | None
    dedupe_id: str | None


def columns_of(records: Sequence[JobOptions], where: str = "") -> dict[str, list[Any]]:
    """Turn the options into columns of a batch. Raises InvalidRequest; its message begins with `where`, in which {}
    stands for the record's index, from 0."""
    return {
        "priorities": [record.priority for record in records],
        "run_ats": [
            None if record.run_at is None else time_of(record.run_at, f"{where.format(i)}run_at")
            for i, record in enumerate(records)
        ],
        "max_deliveries": [record.max_deliveries for record in records],
        "tenants": [record.tenant for record in records],
        "keys": [record.key for record in records],
        "groups": [record.group for record in records],
        "webhooks": [
            None if record.webhook is None else check_url(record.webhook, f"{where.format(i)}webhook")
            for i, record in enumerate(records)
        ],
        "dedupe_ids": [record.dedupe_id for record in records],
    }


def admit_jobs(key: Key | None, topic: str, batch: Batch) -> None:
    """Check that a key may enqueue these jobs, and assign them to the key's tenant. Runs before a missing topic is
    created. Raises InvalidRequest, Forbidden."""
    check_groups(topic, batch)
    sight.keep_to_tenant(key, batch)


def idempotency_key(request: Request, by: Key | None, given: str | None) -> str | None:
    """The call's idempotency key, separate for each tenant. `given`, from the body, takes precedence over the header.
    Raises InvalidRequest."""
    sent = request.headers.get("idempotency-key")
    for key in (given, sent):
        if key is not None and (not 0 < len(key.encode()) <= MAX_KEY_BYTES or "\0" in key):
            raise InvalidRequest(f"An idempotency key must have 1 to {MAX_KEY_BYTES} bytes and no NUL (U+0000).")
    return sight.batch_key(by, sent if given is None else given)
