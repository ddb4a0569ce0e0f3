"""Bodies and answers of claim, ack, nack, fail and extend in v0. Other fields are a 400."""

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
    ready: int | UnsetType = UNSET


class JobOfTopic(JobClaimed, kw_only=True):
    """A leased job, and the topic that it is from."""

    topic: str


class ClaimAnyAnswer(msgspec.Struct):
    """The jobs leased, by topic as they were named, ascending by $seq in each. order goes on from topic to topic; ready
    is of all these topics."""

    claimed: list[JobOfTopic]
    count: int
    ready: int | UnsetType = UNSET


class JobFrame(JobShown, kw_only=True):
    """A job that was leased to this stream."""

    topic: str


class AckBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that `node` holds; `lease_ids` fence off a holder whose lease was superseded."""

    node: Holder
    seqs: Seqs
    lease_ids: LeaseIds | None = None
    results: Annotated[
        Annotated[list[HandedIn], about("One for each seq.", maxItems=MAX_SEQS)] | None,
        about("What each job is completed with."),
    ] = None


class NackBody(msgspec.Struct, forbid_unknown_fields=True):
    """The same, with how long the jobs stay hidden, and what went wrong with each."""

    node: Holder
    seqs: Seqs
    lease_ids: LeaseIds | None = None
    delay_ms: Annotated[
        Count | None,
        about("How long the jobs stay hidden, in ms, clamped to 86400000. Absent: as the topic's backoff says."),
    ] = None
    errors: Errors | None = None
    refund: Annotated[
        bool | None, about(f"true: gives the delivery back, at most {MOST_REFUNDS} times a job; else it counts.", False)
    ] = None


class FailBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs that are not to be tried again, and what went wrong with each."""

    node: Holder
    seqs: Seqs
    lease_ids: LeaseIds | None = None
    errors: Errors | None = None


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    """The same, with the new length of the leases, from now."""

    node: Holder
    seqs: Seqs
    lease_ms: LeaseMs
    lease_ids: LeaseIds | None = None
    progress: Annotated[
        Annotated[list[ProgressBody | None], about("One for each seq; null: as it was.", maxItems=MAX_SEQS)] | None,
        about("How far each job is."),
    ] = None


class AckAnswer(msgspec.Struct):
    """How many were completed; those in `skipped` were not this holder's."""

    topic: str
    acked: int
    skipped: list[int]
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET


class NackAnswer(msgspec.Struct):
    """How many were returned; those in `skipped` were not this holder's. Where refund was asked for: of which the
    delivery was given back."""

    topic: str
    nacked: int
    skipped: list[int]
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    refunded: list[int] | UnsetType = UNSET


class FailAnswer(msgspec.Struct):
    """How many went out; those in `skipped` were not this holder's."""

    topic: str
    failed: int
    skipped: list[int]
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET


class ExtendAnswer(msgspec.Struct):
    """How many leases were extended, and their deadlines in ms since 1970, by seq. Those in `cancelled` are extended
    too, and nobody waits for them any more."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]
    cancelled: list[int]
