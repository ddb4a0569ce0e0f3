"""What is put into a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One job, or one record of a log, which has `data`, `tag`, `node` and `meta` only.

    `data` is anything that has a JSON, or bytes, which come back as bytes; where `content_type` is application/msgpack,
    anything that msgspec knows. docs/v0.md says what each field does.
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Mapping[str, Any] | None = None
    priority: int | None = None
    delay_ms: int | None = None
    run_at: datetime | None = None
    ttl_ms: int | None = None
    max_deliveries: int | None = None
    key: str | None = None
    content_type: str | None = None
    group: str | None = None
    dedupe_id: str | None = None
    user_id: str | None = None
    tenant: str | None = None
    webhook: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What became of a batch. `seqs` are in the order of the records; go by them, not by first and last. `deduped`: an
    earlier batch with this idempotency key was found, and these are its seqs. `duplicates`: places, from 0, of records
    that were dropped for their dedupe_id, and whose seqs are those of the jobs that were there first."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: tuple[int, ...]
    duplicates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Where a job is. `duplicate`: it was dropped for its dedupe_id, and this is the job that was there first."""

    topic: str
    seq: int
    duplicate: bool = False
