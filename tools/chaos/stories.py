"""Histories in a line or two, for the checker's tests. A job's seq is ten times its id, if nothing else is said."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from tools.chaos.history import (
    Burial,
    Claim,
    Delivery,
    End,
    Enqueue,
    History,
    Outage,
    Outcome,
    Reading,
    Settlement,
    Surprise,
    Topic,
    Verb,
)

Entry = Topic | Enqueue | Claim | Delivery | Settlement | Burial | Reading | Outage | Surprise | End
DONE, REFUSED, DOUBT = Outcome.DONE, Outcome.REFUSED, Outcome.IN_DOUBT
LEASE: Final = 1000
PLACES: Final = {  # where a history keeps its entries
    Topic: "topics",
    Enqueue: "enqueues",
    Claim: "claims",
    Delivery: "deliveries",
    Settlement: "settlements",
    Burial: "burials",
    Reading: "readings",
    Outage: "outages",
    Surprise: "surprises",
    End: "ends",
}


def history(*entries: Entry, patience: float = 1.0) -> History:
    """All of a run, in any order."""
    whole = History(patience=patience)
    assert {*PLACES.values(), "patience"} == {field.name for field in fields(whole)}
    for entry in entries:
        getattr(whole, PLACES[type(entry)]).append(entry)
    return whole


def enqueue(
    *ids: int,
    at: float = 0,
    outcome: Outcome = DONE,
    seqs: tuple[int, ...] | None = None,
    unique: bool = False,
    groups: tuple[str, ...] = (),
    topic: str = "",
) -> Enqueue:
    """A batch."""
    given = tuple(id * 10 for id in ids) if seqs is None else seqs
    return Enqueue(ids, at, at + 5, outcome, given if outcome is DONE else (), topic, unique, groups)


def claim(at: float, outcome: Outcome = DONE, *, short: bool = False) -> Claim:
    return Claim(at, at + 5, outcome, short=short)


def delivery(
    id: int, number: int = 1, *, at: int, seq: int | None = None, lease: str = "", intact: bool = True, topic: str = ""
) -> Delivery:
    """A lease that begins at `at`; named after the number."""
    name = lease or f"lease_{number}"
    return Delivery(id, seq or id * 10, name, number, at + LEASE, LEASE, at - 3, at + 3, intact, topic)


def settle(
    verb: Verb,
    id: int,
    number: int = 1,
    *,
    at: float,
    outcome: Outcome = DONE,
    deadline: int = 0,
    ended: float = 0,
    lease_ms: int = 0,
    delay_ms: int = 0,
    refund: bool = False,
    topic: str = "",
) -> Settlement:
    return Settlement(
        verb, id * 10, f"lease_{number}", at, ended or at + 5, outcome, deadline, topic, lease_ms, delay_ms, refund
    )


def ack(id: int, number: int = 1, *, at: float, outcome: Outcome = DONE, topic: str = "") -> Settlement:
    return settle(Verb.ACK, id, number, at=at, outcome=outcome, topic=topic)


def lived(id: int, *, at: int, topic: str = "") -> tuple[Entry, ...]:
    """A job that was claimed at `at`, and done ten ms later."""
    return delivery(id, at=at, topic=topic), ack(id, at=at + 10, topic=topic)


def told(reader: str, *ids: int, at: float = 100, seqs: tuple[int, ...] | None = None) -> Reading:
    """An answer to a reader of "log"; "" is the look at the end. A record's seq is its id."""
    return Reading(reader, tuple(zip(seqs or ids, ids, strict=True)), at, "log")


def append(*ids: int, outcome: Outcome = DONE, unique: bool = False, at: float = 0) -> Enqueue:
    """Records of "log"."""
    return enqueue(*ids, outcome=outcome, seqs=ids, unique=unique, at=at, topic="log")
