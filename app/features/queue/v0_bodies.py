"""Bodies and answers of claim, ack, nack, fail and extend in v0. Unknown fields are a 400."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.features.queue.results import HandedIn, ProgressBody
from app.http.bounds import MAX_SEQS, Count, Errors, Holder, LeaseIds, LeaseMs, Seqs, Tags, Tenants, Wait, about
from app.kernel.topics.backoff import MOST_REFUNDS
from app.kernel.topics.settings import PATTERN

MAX_CLAIMED_TOPICS: Final = 32  # topics of one claim


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    """The worker, the number of jobs, and the lease."""

    node: Holder
    max: Annotated[Count | None, about("Most jobs, clamped to 1 to 1000.", 1)] = None
    lease_ms: Annotated[LeaseMs | None, about("Absent: the topic's.")] = None
    wait_ms: Annotated[Wait | None, about("How long to wait for the first job, in ms.", 0)] = None
    tenants: Tenants = None
    tags: Tags = None


class ClaimAnyBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The worker, the topics, the number of jobs in all, and the lease."""

    topics: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})]],
        Meta(
            description="1 to 32 queues. Jobs are claimed in this order.",
            min_length=1,
            max_length=MAX_CLAIMED_TOPICS,
        ),
    ]
    node: Holder
    max: Annotated[Count | None, about("Most jobs in all, clamped to 1 to 1000.", 1)] = None
    lease_ms: Annotated[LeaseMs | None, about("Absent: that of each job's topic.")] = None
    wait_ms: Annotated[Wait | None, about("How long to wait for the first job, in ms.", 0)] = None
    tenants: Tenants = None
    tags: Tags = None


class JobShown(msgspec.Struct, kw_only=True):
    """A leased job. `deadline` and `$ts` are in ms since 1970. `crashes` counts earlier deliveries that ended by their
    deadline, `failures` the other ones. Counts of 0 are left out, and so is suspected_poison if it is false."""

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


class ClaimedJob(JobShown, kw_only=True):
    """A claimed job. `order` is its place in claim order, 1 for the first."""

    order: int


class ClaimAnswer(msgspec.Struct):
    """The leased jobs, ascending by $seq. They can be fewer than `max`."""

    topic: str
    claimed: list[ClaimedJob]
    count: int
    ready: int | UnsetType = UNSET


class JobOfTopic(ClaimedJob, kw_only=True):
    """A claimed job and its topic."""

    topic: str


class ClaimAnyAnswer(msgspec.Struct):
    """The leased jobs, by topic in the given order, ascending by $seq within a topic. `order` counts over all topics,
    and `ready` is their sum."""

    claimed: list[JobOfTopic]
    count: int
    ready: int | UnsetType = UNSET


class JobFrame(JobShown, kw_only=True):
    """A job that is leased to the stream."""

    topic: str


class AckBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that `node` holds. With `lease_ids`, jobs whose lease has changed are skipped."""

    node: Holder
    seqs: Seqs
    lease_ids: LeaseIds | None = None
    results: Annotated[
        Annotated[list[HandedIn], about("One for each seq.", maxItems=MAX_SEQS)] | None,
        about("The result of each job."),
    ] = None
    late: Annotated[
        bool, about("Whether jobs whose lease has ended also count, as long as nobody has claimed them since.")
    ] = False


class NackBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that `node` holds, the delay until they are ready again, and their errors."""

    node: Holder
    seqs: Seqs
    lease_ids: LeaseIds | None = None
    delay_ms: Annotated[
        Count | None,
        about("How long the jobs stay hidden, in ms, clamped to 86400000. Absent: by the topic's backoff."),
    ] = None
    errors: Errors | None = None
    refund: Annotated[
        bool | None, about(f"true: the delivery does not count, up to {MOST_REFUNDS} times per job.", False)
    ] = None


class FailBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that `node` holds and that must not be retried, and their errors."""

    node: Holder
    seqs: Seqs
    lease_ids: LeaseIds | None = None
    errors: Errors | None = None


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that `node` holds, and the new length of their leases from now."""

    node: Holder
    seqs: Seqs
    lease_ms: LeaseMs
    lease_ids: LeaseIds | None = None
    progress: Annotated[
        Annotated[list[ProgressBody | None], about("One for each seq. null: unchanged.", maxItems=MAX_SEQS)] | None,
        about("The progress of each job."),
    ] = None


class AckAnswer(msgspec.Struct):
    """The number of completed jobs. `skipped`: jobs that this node does not hold."""

    topic: str
    acked: int
    skipped: list[int]
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET


class NackAnswer(msgspec.Struct):
    """The number of returned jobs. `skipped`: jobs that this node does not hold. `refunded`, if `refund` was true: jobs
    whose delivery does not count."""

    topic: str
    nacked: int
    skipped: list[int]
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    refunded: list[int] | UnsetType = UNSET


class FailAnswer(msgspec.Struct):
    """The number of failed jobs. `skipped`: jobs that this node does not hold."""

    topic: str
    failed: int
    skipped: list[int]
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET


class ExtendAnswer(msgspec.Struct):
    """The number of extended leases, and their deadlines by seq, in ms since 1970. `cancelled`: jobs whose lease was
    extended, but that were cancelled, so their work can stop."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]
    cancelled: list[int]
