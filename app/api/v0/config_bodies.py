"""What the v0 routes show of a topic's configuration. docs/semantics.md, section 24."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from app.queue.backoff import Backoff
from app.topics.webhook import Webhook


class ResolvedConfig(msgspec.Struct):
    """A topic's configuration, defaults filled in and clamps applied."""

    type: str
    durable: bool
    durability: str
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    on_exhausted: str
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    idempotency_window_ms: int
    dedupe_window_ms: int
    priority: int | None
    auto_priority: bool
    max_depth: int
    throughput_limit: int
    priority_order: str
    retry_order: str
    aging_ms: int
    wait_goal_ms: int
    tenant_weights: dict[str, int]
    tenant_limits: dict[str, int]
    replayable: bool
    replay_window_ms: int
    result_ttl_ms: int
    event_ttl_ms: int
    dead_ttl_ms: int
    accepts: list[str]
    ingest: str
    user_events: bool
    auto_create: bool
    dedupe_node: bool
    leases_durable: bool
    backoff: Backoff | None
    webhook: Webhook | UnsetType = UNSET
    schema: dict[str, Any] | list[Any] | str | bool | UnsetType = UNSET
    schema_format: Literal["json_schema", "avro"] | UnsetType = UNSET
