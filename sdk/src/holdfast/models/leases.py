"""What a worker gets and settles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from holdfast.models.marks import PAYLOAD, Named


@dataclass(frozen=True, slots=True)
class Lease:
    """A hold on a job, to settle it where the job itself is not at hand. Without a `lease_id` it has no fence: whatever
    lease this node has on the job is meant."""

    seq: int
    node: str
    lease_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job, leased to `node` until `deadline`. `token` is for holdfast.complete and holdfast.assert_lease in SQL.
    `content_type`: of its data; None is JSON. `order`: its place in claim order, from 1; None in a work stream, which
    has jobs in that order."""

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
    """What a claim found, in claim order, and how many more are ready, where it was asked for."""

    jobs: tuple[ClaimedJob, ...]
    ready: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of some jobs. `skipped` are those that this holder does not hold: nothing was changed there.

    `repeated`: the answer to an earlier try was lost, so what is skipped may have been settled by that.
    `ready` and `in_flight`: how many there are now, None where that was not asked for.
    """

    topic: str
    skipped: tuple[int, ...]
    repeated: bool
    ready: int | None = None
    in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked(Settled):
    """`acked`: how many are done."""

    acked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nacked(Settled):
    """`nacked`: how many went back, or out where their deliveries are spent. `refunded`: those whose delivery counts no
    more."""

    nacked: int
    refunded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Settled):
    """`failed`: how many went out."""

    failed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: 0 to 100, and what to say about it."""

    percent: int
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """`deadlines` by seq. Those in `cancelled` were cancelled meanwhile: nobody waits for them any more."""

    topic: str
    extended: int
    skipped: tuple[int, ...]
    deadlines: Mapping[int, datetime]
    cancelled: tuple[int, ...]
