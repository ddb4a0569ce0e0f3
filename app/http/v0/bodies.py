"""Bodies and answers of the v0 routes. A field that a body does not list is a 400."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.http.bounds import Count, Holder, LeaseMs, Tags, Tenants, Wait, about
from app.kernel.topics.settings import PATTERN

MAX_CLAIMED_TOPICS = 32  # topics of one claim


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who claims, how many jobs and for how long."""

    node: Holder
    max: Annotated[Count | None, about("Most jobs, clamped to 1 to 1000.", 1)] = None
    lease_ms: Annotated[LeaseMs | None, about("The topic's if absent.")] = None
    wait_ms: Annotated[Wait | None, about("How long to wait for the first job, in ms.", 0)] = None
    tenants: Tenants = None
    tags: Tags = None


class ClaimAnyBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who claims, from which topics, how many jobs in all and for how long."""

    topics: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})]],
        Meta(
            description="1 to 32 queues, in the order in which they are asked.",
            min_length=1,
            max_length=MAX_CLAIMED_TOPICS,
        ),
    ]
    node: Holder
    max: Annotated[Count | None, about("Most jobs in all, clamped to 1 to 1000.", 1)] = None
    lease_ms: Annotated[LeaseMs | None, about("Each job's topic's if absent.")] = None
    wait_ms: Annotated[Wait | None, about("How long to wait for the first job, in ms.", 0)] = None
    tenants: Tenants = None
    tags: Tags = None


class Performance(msgspec.Struct, omit_defaults=True):
    """How long the answer took, in ms. fsync_ms: of it, the durable commit, the wait for its group included."""

    server_total_ms: float
    fsync_ms: float | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET


class JobShown(msgspec.Struct, kw_only=True):
    """A leased job. `deadline` and `$ts` are in ms since 1970. Of the deliveries before this one, `crashes`
    ended by their deadline and `failures` otherwise. 0 is left out, and suspected_poison where it is false."""

    seq: int = msgspec.field(name="$seq")
    lease_id: str
    deadline: int
    ts: int = msgspec.field(name="$ts")
    deliveries: int
    crashes: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    suspected_poison: bool | UnsetType = UNSET
    data: Raw
    content_type: str | UnsetType = UNSET
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    key: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    token: str


class JobClaimed(JobShown, kw_only=True):
    """A job of a claim's answer. `order` is its place in claim order, 1 for the job to begin with."""

    order: int


class ClaimAnswer(msgspec.Struct):
    """The jobs leased, ascending by $seq; fewer than asked for when the queue is nearly empty."""

    topic: str
    claimed: list[JobClaimed]
    count: int
    performance: Performance
    ready: int | UnsetType = UNSET


class JobOfTopic(JobClaimed, kw_only=True):
    """A leased job, and the topic that it is from."""

    topic: str


class ClaimAnyAnswer(msgspec.Struct):
    """The jobs leased, by topic as they were named, ascending by $seq in each. order goes on from topic to topic; ready
    is of all these topics."""

    claimed: list[JobOfTopic]
    count: int
    performance: Performance
    ready: int | UnsetType = UNSET
