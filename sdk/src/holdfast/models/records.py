"""Records to write to a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One job, or one record of a log, which has only `data`, `tag`, `node` and `meta`.

    `data` is any JSON value, or bytes. With the `content_type` application/msgpack it is any value of msgspec's.
    docs/v0.md describes the fields.
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
    """The result of a batch.

    - seqs: in the order of the records. They need not be contiguous.
    - deduped: the seqs belong to an earlier batch with the same idempotency key. Nothing was written.
    - duplicates: indexes, from 0, of records that were dropped because of their dedupe_id. Their seqs are those of the
      first jobs with the id.
    """

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
    """The topic and seq of a job. `duplicate`: the job was dropped because of its dedupe_id, and this is the first job
    with the id."""

    topic: str
    seq: int
    duplicate: bool = False
