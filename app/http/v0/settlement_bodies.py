"""Bodies and answers of ack, nack, fail and extend in v0. Other fields are a 400."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from app.http.bounds import MAX_SEQS, Count, Errors, Holder, LeaseIds, LeaseMs, Seqs, about
from app.http.results import HandedIn, ProgressBody
from app.http.v0.bodies import Performance
from app.kernel.topics.backoff import MOST_REFUNDS


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
    performance: Performance
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET


class NackAnswer(msgspec.Struct):
    """How many were returned; those in `skipped` were not this holder's. Where refund was asked for: of which the
    delivery was given back."""

    topic: str
    nacked: int
    skipped: list[int]
    performance: Performance
    ready: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    refunded: list[int] | UnsetType = UNSET


class FailAnswer(msgspec.Struct):
    """How many went out; those in `skipped` were not this holder's."""

    topic: str
    failed: int
    skipped: list[int]
    performance: Performance
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
    performance: Performance
