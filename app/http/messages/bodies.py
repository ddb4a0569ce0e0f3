"""Bodies and answers of the messages dialect. A field that is not listed is a 400."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from app.http.bounds import about


class PurgeAnswer(msgspec.Struct):
    """How many were deleted."""

    deleted: int


class MessageProgress(msgspec.Struct):
    """How far the holder of a message says it is, and since when."""

    percent: int
    at: str
    note: str | UnsetType = UNSET


class Message(msgspec.Struct, kw_only=True):
    """A message. What it does not have is left out. retry_count is of deliveries that ended without an ack: `crashes`
    of them by their deadline, `failures` otherwise; original_crashes are those of a dead letter in the topic that it
    came from. Of these three 0 is left out, and suspected_poison where it is false."""

    id: str
    topic: str
    key: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    encoding: Literal["base64"] | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    hidden: Annotated[str | UnsetType, about("Why payload and metadata are not shown.")] = UNSET
    status: Literal["pending", "processing", "failed", "expired"]
    retry_count: int
    crashes: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    suspected_poison: bool | UnsetType = UNSET
    max_retries: int
    priority: int | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    visibility_timeout: str | UnsetType = UNSET
    progress: MessageProgress | UnsetType = UNSET
    cancelled: Annotated[Literal[True] | UnsetType, about("It ends with its lease, if it has not.")] = UNSET
    lease_id: str | UnsetType = UNSET
    token: Annotated[str | UnsetType, about("For SQL: names the job and its lease.")] = UNSET
    expires_at: str | UnsetType = UNSET
    created_at: str
    updated_at: str | UnsetType = UNSET
    original_topic: str | UnsetType = UNSET
    original_crashes: int | UnsetType = UNSET
    dlq_moved_at: str | UnsetType = UNSET
