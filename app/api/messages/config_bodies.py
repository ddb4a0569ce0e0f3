"""What the routes of topics' configurations take and give. What v0 has keeps its name and meaning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.api.bounds import about
from app.queue.backoff import Backoff
from app.topics.asked import Asked, Deliveries, DlqThreshold, MaxRetries, Unbounded
from app.topics.settings import PATTERN, SEVEN_DAYS_MS, TEN_YEARS_MS
from app.topics.webhook import Webhook

Seconds = Annotated[int, Meta(ge=0)]

# Two names of one thing: at most one of each pair is given.
PAIRS = (
    ("max_deliveries", "max_retries"),
    ("max_deliveries", "dlq_threshold"),
    ("ttl_ms", "message_ttl_seconds"),
    ("lease_ms", "visibility_timeout_seconds"),
    ("replay_window_ms", "replay_window_seconds"),
)


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


class TopicConfigBody(Asked, frozen=True, kw_only=True):
    """The body of a PUT. What this dialect has a name for is all replaced: null or absent is the default, the service's
    where it has one. The rest is v0's: absent leaves it as it is, null is v0's default. on_exhausted goes with
    max_deliveries. A setting that is not listed is a 400."""

    RULES: ClassVar[dict[str, Any]] = {
        "allOf": [
            *({"not": {"allOf": [_given(one), _given(other)]}} for one, other in PAIRS),
            {"anyOf": [{"not": _given("on_exhausted")}, _given("max_deliveries")]},
        ]
    }
    topic: Annotated[str | None, about("The name in the path, as answers have it.")] = None
    max_retries: MaxRetries = None
    dlq_threshold: DlqThreshold = None
    message_ttl_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS // 1000)] | None, about("How long a job lives; 0: for ever.")
    ] = None
    visibility_timeout_seconds: Annotated[
        Seconds | None, about("Length of a lease, clamped to 0.1 to 86400 seconds.")
    ] = None
    replay_window_seconds: Annotated[
        Seconds | None,
        about(
            "How long those are kept, clamped to ten years; 0: for ever. Dropped unless replayable is true.",
            SEVEN_DAYS_MS // 1000,
        ),
    ] = None
    max_depth: Annotated[Unbounded | None, about("Most live jobs; 0: no limit.", 0)] = None
    throughput_limit: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, about("Most jobs a second that dequeues get; 0: no limit.", 0)
    ] = None
    replayable: Annotated[bool | None, about("Whether acknowledged jobs are kept for a replay.", False)] = None
    durable: Annotated[bool | None, about("true is durability fsync, false is disk.", True)] = None
    type: Annotated[Literal["log", "queue"] | None, about("A queue, also if absent; log is refused.")] = None
    lease_ms: Annotated[Unbounded | None, about("In place of visibility_timeout_seconds, clamped as that is.")] = None
    ttl_ms: Annotated[Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, about("In place of message_ttl_seconds.")] = (
        None
    )
    replay_window_ms: Annotated[Unbounded | None, about("In place of replay_window_seconds, clamped as that is.")] = (
        None
    )
    dead_letter: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})] | None,
        about("Where dead letters go: another topic. null: <topic>.dlq."),
    ] = None
    on_exhausted: Annotated[
        Literal["redeliver", "fail", "dead_letter"] | None,
        about("With max_deliveries: what becomes of a job whose deliveries are spent. null: dead_letter."),
    ] = None
    max_deliveries: Annotated[
        Deliveries | None,
        about("v0's word, in place of max_retries and dlq_threshold: most deliveries of a job; 0: no limit."),
    ] = None


class TopicConfig(msgspec.Struct, kw_only=True):
    """What was chosen for a topic. What was left to the service is not there; nor is a limit that there is not. Of two
    names of one thing the second stands where the first can't say it: ttl_ms for what is no whole second, durability
    for a class that is neither fsync nor disk, max_deliveries for a topic that v0 has configured. The whole can be PUT
    again, and changes nothing."""

    topic: str
    replayable: bool
    durable: bool
    max_retries: int | UnsetType = UNSET
    dlq_threshold: int | UnsetType = UNSET
    message_ttl_seconds: int | UnsetType = UNSET
    max_depth: int | UnsetType = UNSET
    throughput_limit: int | UnsetType = UNSET
    replay_window_seconds: int | UnsetType = UNSET
    visibility_timeout_seconds: int | UnsetType = UNSET
    max_deliveries: int | UnsetType = UNSET
    on_exhausted: str | UnsetType = UNSET
    dead_letter: str | UnsetType = UNSET
    ttl_ms: int | UnsetType = UNSET
    lease_ms: int | UnsetType = UNSET
    replay_window_ms: int | UnsetType = UNSET
    durability: str | UnsetType = UNSET
    claim_jitter_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    idempotency_window_ms: int
    result_ttl_ms: int
    event_ttl_ms: int
    dead_ttl_ms: int
    dedupe_window_ms: int
    priority: int | UnsetType = UNSET
    tenant_weights: dict[str, int] | UnsetType = UNSET
    tenant_limits: dict[str, int] | UnsetType = UNSET
    auto_priority: bool
    priority_order: str
    retry_order: str
    aging_ms: int
    wait_goal_ms: int
    accepts: list[str]
    ingest: str
    user_events: bool
    auto_create: bool
    dedupe_node: bool
    leases_durable: bool
    backoff: Backoff | UnsetType = UNSET
    webhook: Webhook | UnsetType = UNSET


class TopicConfigs(msgspec.Struct):
    """A page of configurations by topic; `next_cursor` is absent on the last one."""

    items: list[TopicConfig]
    next_cursor: str | UnsetType = UNSET
