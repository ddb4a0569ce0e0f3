"""Claimed jobs, leases and settlements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from holdfast.models.marks import PAYLOAD, Named


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease, to settle a job without its ClaimedJob. Without a `lease_id` it has no fence and stands for any lease of
    this node on the job."""

    seq: int
    node: str
    lease_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job, leased to `node` until `deadline`.

    - token: for holdfast.complete and holdfast.assert_lease in SQL.
    - content_type: of its data; None is JSON.
    - order: position in the claim, from 1; None in a work stream, which is in order.
    """

    topic: str
    node: str
    seq: Annotated[int, Named("$seq")]
    lease_id: str
    deadline: datetime
    enqueued_at: Annotated[datetime, Named("$ts")]
    deliveries: int
    data: Annotated[Any, PAYLOAD]
    token: str
    content_type: str | None = None
    meta: Mapping[str, Any] | None = None
    tag: Annotated[str | None, Named("$tag")] = None
    key: str | None = None
    group: str | None = None
    tenant: str | None = None
    crashes: int = 0
    failures: int = 0
    suspected_poison: bool = False
    order: int | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """Jobs of a claim, in order. `ready`: how many more are ready, if the claim asked for counts."""

    jobs: tuple[ClaimedJob, ...]
    ready: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of a settlement.

    - skipped: seqs of jobs that this holder does not hold. They are unchanged.
    - repeated: an earlier attempt whose answer was lost may have settled the skipped jobs.
    - ready, in_flight: how many there are now; None without counts.
    """

    topic: str
    skipped: tuple[int, ...]
    repeated: bool
    ready: int | None = None
    in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked(Settled):
    """`acked`: how many jobs were completed."""

    acked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nacked(Settled):
    """`nacked`: how many jobs were returned, or failed because they had no deliveries left. `refunded`: jobs whose
    delivery was not counted."""

    nacked: int
    refunded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Settled):
    """`failed`: how many jobs failed."""

    failed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A job's progress in percent, 0 to 100, and a note."""

    percent: int
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """New `deadlines` by seq. `cancelled`: jobs that were cancelled meanwhile, so their work is no longer needed."""

    topic: str
    extended: int
    skipped: tuple[int, ...]
    deadlines: Mapping[int, datetime]
    cancelled: tuple[int, ...]
