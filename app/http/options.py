"""What a job can be asked to have, beside its payload: fields that records of both dialects have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from app.http import tenancy
from app.http.fields import time_of
from app.kernel.topics.policy import check_groups
from app.kernel.topics.webhooks import check_url

if TYPE_CHECKING:
    from app.base.keys import Key
    from app.kernel.model import Batch


class JobOptions(Protocol):
    """The fields, as they came."""

    priority: int | None
    run_at: str | None
    max_deliveries: int | None
    tenant: str | None
    key: str | None
    group: str | None
    webhook: str | None
    dedupe_id: str | None


def columns_of(records: Sequence[JobOptions], where: str = "") -> dict[str, list[Any]]:
    """The columns of a batch that have them. Raises InvalidRequest: `where` comes first in its message, with the
    record's place, from 0, for {}."""
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


def enqueued_by(key: Key | None, topic: str, batch: Batch) -> None:
    """Look whether a key may put these jobs into a queue of this name, and make them its tenant's: before a topic that
    is absent is made for them. Raises InvalidRequest and Forbidden."""
    check_groups(topic, batch)
    tenancy.enqueued_by(key, batch)
