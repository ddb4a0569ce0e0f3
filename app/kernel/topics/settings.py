"""The settings of a topic. Each is declared once, as a field of `Chosen`, and is a column of holdfast.topics.

From the declarations follow what PUTs take and answers show in both dialects, the statements of store.py, the admin
page, and by `make reference` two tables of the manual and the SDK's TopicConfig. The column is written by hand, and
tests/topics/test_settings.py compares it. ADR 0074.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from app.kernel.topics.backoff import AskedBackoff, Backoff
from app.kernel.topics.declarations import Card, Flag, Setting, declarations
from app.kernel.topics.webhooks import AskedWebhook, Webhook

PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
MOST_OF_NAME: Final = 255
NAME: Final = re.compile(PATTERN.replace("$", r"\Z"))
TEN_YEARS_MS: Final = 315_360_000_000
SEVEN_DAYS_MS: Final = 604_800_000
FOURTEEN_DAYS_MS: Final = 1_209_600_000
ONE_DAY_MS: Final = 86_400_000
BIGINT_MAX: Final = 2**63 - 1
MOST_DELIVERIES: Final = 10_000
DEAD_LETTERS: Final = ".dlq"  # ends the names of dead-letter topics of the messages dialect

MAX_TENANT: Final = 128  # characters
MOST_TENANTS: Final = 1_000  # in one setting

MOST_TYPES: Final = 32  # media types that /in accepts for a topic
MEDIA_TYPE: Final = "^[!#$&^_.+A-Za-z0-9-]{1,120}/[!#$&^_.+A-Za-z0-9-]{1,120}$"
ACCEPTS: Final = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain")

MediaType = Annotated[str, Meta(pattern=MEDIA_TYPE[:-1] + r"\Z", extra_json_schema={"pattern": MEDIA_TYPE})]
Ingest = Literal["key", "public"]
Tenant = Annotated[str, Meta(min_length=1, max_length=MAX_TENANT, pattern=r"^[^\u0000]*$")]


class TopicType(Enum):
    LOG = "log"
    QUEUE = "queue"


class Durability(Enum):
    """With fsync, an answer waits until its commit is flushed. The other three don't wait, and are the same."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class Exhaustion(Enum):
    """What happens to a job with no deliveries left."""

    REDELIVER = "redeliver"
    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


def media_types(asked: Sequence[str]) -> tuple[str, ...]:
    """Each media type once, in lower case."""
    return tuple(dict.fromkeys(one.lower() for one in asked))


def tenants_of(least: int, most: int) -> Any:
    """The type of a setting that has a number for each of several tenants."""
    return Annotated[dict[Tenant, Annotated[int, Meta(ge=least, le=most)]], Meta(max_length=MOST_TENANTS)]


LEASE: Final = (100, ONE_DAY_MS)
TIME: Final = (0, TEN_YEARS_MS)
WINDOW: Final = (0, SEVEN_DAYS_MS)
COUNT: Final = (0, BIGINT_MAX)


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The stored settings of a topic.

    None for lease_ms, ttl_ms, max_retries or dlq_threshold is the service's default. If max_deliveries is None,
    max_retries and dlq_threshold are in effect and on_exhausted is not. configured: the topic was configured; otherwise
    its first message created it.
    """

    type: Annotated[TopicType, Setting("Fixed when the topic is created. Jobs need a queue.", Card.STORAGE)] = (
        TopicType.LOG
    )
    durability: Annotated[
        Durability,
        Setting(
            "With fsync, answers wait until their commit is flushed to disk. Overrides durable.",
            Card.STORAGE,
            logs=True,
            usual="from `durable`",
            flag=Flag("durable", Durability.FSYNC, Durability.DISK),
            replaced=True,
            see="section 12",
        ),
    ] = Durability.DISK
    lease_ms: Annotated[
        int | None,
        Setting(
            "How long a lease lasts if the claim does not say.",
            Card.DELIVERIES,
            clamp=LEASE,
            seconds="visibility_timeout_seconds",
            replaced=True,
        ),
    ] = None
    claim_jitter_ms: Annotated[
        int, Setting("How long a claim waits for others.", Card.DELIVERIES, clamp=(0, 5_000), see="section 16")
    ] = 0
    max_deliveries: Annotated[
        int | None,
        Setting(
            "Most deliveries of a job; 0: no limit. Needs an on_exhausted other than redeliver.",
            Card.DELIVERIES,
            bounds=(0, MOST_DELIVERIES),
            see="section 2",
        ),
    ] = None
    max_retries: Annotated[
        int | None,
        Setting(
            "Most deliveries of a job. 0: one delivery, and the job does not become a dead letter.",
            Card.DELIVERIES,
            bounds=(0, MOST_DELIVERIES),
            v0=False,
            replaced=True,
        ),
    ] = None
    dlq_threshold: Annotated[
        int | None,
        Setting(
            "The number of deliveries after which a job becomes a dead letter, if max_retries allows that many; "
            "0: never. Absent: the topic's own max_retries, if it has one.",
            Card.DELIVERIES,
            usual="the topic's own `max_retries`",
            bounds=(0, MOST_DELIVERIES),
            v0=False,
            replaced=True,
        ),
    ] = None
    dead_letter: Annotated[
        str | None,
        Setting(
            "The topic for jobs with no deliveries left. A log gets records. It is created if it does not exist.",
            Card.DELIVERIES,
            takes=Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})],
            see="section 2",
        ),
    ] = None
    on_exhausted: Annotated[
        Exhaustion,
        Setting(
            "What happens to a job with no deliveries left. Absent: dead_letter if one is named, else redeliver.",
            Card.DELIVERIES,
            usual="from `dead_letter`",
            see="section 2",
        ),
    ] = Exhaustion.REDELIVER
    ttl_ms: Annotated[
        int | None,
        Setting(
            "How long a job or record lives; 0: for ever.",
            Card.KEPT,
            bounds=TIME,
            logs=True,
            seconds="message_ttl_seconds",
            replaced=True,
            see="section 10",
        ),
    ] = None
    cap_records: Annotated[
        int,
        Setting(
            "Most records of a log, or live jobs of a queue; 0: no limit.",
            Card.LIMITS,
            clamp=COUNT,
            logs=True,
            see="section 11",
        ),
    ] = 0
    cap_bytes: Annotated[
        int,
        Setting(
            "Most bytes of data and meta in a log, or of data in a queue; 0: no limit.",
            Card.LIMITS,
            clamp=COUNT,
            logs=True,
            see="section 11",
        ),
    ] = 0
    discard: Annotated[
        Literal["old", "reject"],
        Setting("What a full topic does: delete the oldest, or refuse.", Card.LIMITS, logs=True, see="section 11"),
    ] = "old"
    idempotency_window_ms: Annotated[
        int,
        Setting(
            "How long a batch's key is remembered; 0: not at all.", Card.KEPT, bounds=WINDOW, logs=True, see="section 8"
        ),
    ] = 120_000
    dedupe_window_ms: Annotated[
        int,
        Setting("How long a job's dedupe_id is remembered; 0: not at all.", Card.KEPT, bounds=WINDOW, see="section 8"),
    ] = 300_000
    priority: Annotated[
        int | None,
        Setting(
            "Shown as effective_priority, clamped to ±1000. It has no effect on claims.",
            bounds=(-(2**31), 2**31 - 1),
            logs=True,
        ),
    ] = None
    auto_priority: Annotated[
        bool,
        Setting("Without priority, effective_priority is 500 after a read, halved every 30 s; false: 0.", logs=True),
    ] = True
    max_depth: Annotated[
        int,
        Setting("Most live jobs of a queue; 0: no limit.", Card.LIMITS, clamp=COUNT, see="section 11", replaced=True),
    ] = 0
    throughput_limit: Annotated[
        int,
        Setting(
            "Most jobs that claims get per second; 0: no limit.",
            Card.LIMITS,
            bounds=(0, 2**31 - 1),
            see="section 11",
            replaced=True,
        ),
    ] = 0
    priority_order: Annotated[
        Literal["highest_first", "lowest_first"],
        Setting("Which jobs are claimed first: high or low priority.", Card.ORDER, see="section 4"),
    ] = "highest_first"
    retry_order: Annotated[
        Literal["front", "back"],
        Setting(
            "Where a job goes when it is due again: to the front or the back of its priority.",
            Card.ORDER,
            see="section 4",
        ),
    ] = "front"
    aging_ms: Annotated[
        int,
        Setting(
            "A waiting job counts as one priority higher after each such time; 0: never.",
            Card.ORDER,
            bounds=TIME,
            see="section 4",
        ),
    ] = 0
    wait_goal_ms: Annotated[
        int,
        Setting(
            "How long a job may wait, ready or blocked by its group, before its queue counts as late; 0: never. It has "
            "no effect on claims.",
            Card.ORDER,
            bounds=TIME,
            see="[How topics are](admin.md#how-topics-are-in-one-answer)",
        ),
    ] = 60_000
    tenant_weights: Annotated[
        dict[str, int],
        Setting(
            "Each tenant's weight in claims that name no tenant; 1 for tenants that are not listed.",
            Card.ORDER,
            takes=tenants_of(1, 1_000),
            see="section 5",
        ),
    ] = {}
    tenant_limits: Annotated[
        dict[str, int],
        Setting(
            "Most jobs in flight per tenant; no limit for tenants that are not listed.",
            Card.LIMITS,
            takes=tenants_of(1, 2**31 - 1),
            see="section 5",
        ),
    ] = {}
    replayable: Annotated[bool, Setting("Whether completed jobs are kept for a replay.", Card.KEPT, replaced=True)] = (
        False
    )
    replay_window_ms: Annotated[
        int,
        Setting(
            "How long completed jobs are kept for a replay; 0: for ever.",
            Card.KEPT,
            clamp=TIME,
            seconds="replay_window_seconds",
            replaced=True,
        ),
    ] = SEVEN_DAYS_MS
    result_ttl_ms: Annotated[
        int,
        Setting(
            "How long the results of completed jobs are kept; 0: for ever.", Card.KEPT, bounds=TIME, see="section 20"
        ),
    ] = ONE_DAY_MS
    event_ttl_ms: Annotated[
        int,
        Setting("How long the events of jobs are shown; 0: for ever.", Card.KEPT, bounds=TIME, see="section 20"),
    ] = SEVEN_DAYS_MS
    dead_ttl_ms: Annotated[
        int,
        Setting(
            "How long dead letters, and failed and expired jobs, are kept; 0: for ever.",
            Card.KEPT,
            bounds=TIME,
            see="section 20",
        ),
    ] = FOURTEEN_DAYS_MS
    accepts: Annotated[
        tuple[str, ...],
        Setting(
            "The media types that /in accepts.",
            Card.INGESTION,
            takes=Annotated[list[MediaType], Meta(min_length=1, max_length=MOST_TYPES)],
            stores=media_types,
            see="[webhooks.md](webhooks.md#ingestion)",
        ),
    ] = ACCEPTS  # lower case
    ingest: Annotated[
        Ingest,
        Setting(
            "The senders that /in accepts: only keys that can write, or anyone.",
            Card.INGESTION,
            see="[webhooks.md](webhooks.md#ingestion)",
        ),
    ] = "key"
    user_events: Annotated[
        bool,
        Setting(
            "Whether users get events when their jobs end: completed, failed, dead_lettered.",
            Card.INGESTION,
            see="[webhooks.md](webhooks.md#user-events)",
        ),
    ] = False
    auto_create: Annotated[
        bool,
        Setting(
            "In the config of an append, false creates no topic. The append's `create` overrides it.",
            Card.INGESTION,
            logs=True,
        ),
    ] = True
    dedupe_node: Annotated[bool, Setting("Whether a reader can exclude nodes.", Card.INGESTION, logs=True)] = True
    leases_durable: Annotated[
        bool,
        Setting("Leases always survive a restart. false is refused.", only=(True, None), logs=True, see="section 12"),
    ] = True
    backoff: Annotated[
        Backoff | None,
        Setting(
            "How long a job waits after it was returned without a delay. Absent: no wait.",
            Card.DELIVERIES,
            takes=AskedBackoff,
            see="[retries.md](retries.md#backoff)",
        ),
    ] = None
    webhook: Annotated[
        Webhook | None,
        Setting(
            "Where to send an HTTP request when a job ends. Absent: nowhere.",
            Card.INGESTION,
            takes=AskedWebhook,
            see="[webhooks.md](webhooks.md)",
        ),
    ] = None
    configured: bool = True

    @property
    def durable(self) -> bool:
        """Whether an answer waits until its commit is flushed."""
        return self.durability is Durability.FSYNC


FIELDS: Final = Chosen.__struct_fields__


class Config(Chosen, frozen=True, kw_only=True):
    """A full configuration, with every default filled in and every clamp applied. Its defaults are v0's."""

    lease_ms: int = 30_000
    max_deliveries: int = 0
    ttl_ms: int = 0


DECLARED: Final = declarations(Chosen, Config)
OBJECTS: Final = tuple(name for name, one in DECLARED.items() if one.is_json)
