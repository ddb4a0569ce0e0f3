"""Histories in a line or two. A job's seq is ten times its id, its leases are lease_1 and lease_2, of 1,000 ms each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tools.history.history import (
    Burial,
    Claim,
    Delivery,
    End,
    Enqueue,
    Event,
    History,
    Outage,
    Outcome,
    Reading,
    Row,
    Settlement,
    Surprise,
    Topic,
    Verb,
)

Entry = Topic | Enqueue | Claim | Delivery | Settlement | Burial | Event | Row | Reading | Outage | Surprise | End
DONE, REFUSED, DOUBT = Outcome.DONE, Outcome.REFUSED, Outcome.IN_DOUBT
LEASE: Final = 1000
LOG: Final = Topic("log", is_log=True)
PLACES: Final = {  # where a history keeps its entries
    Topic: "topics",
    Enqueue: "enqueues",
    Claim: "claims",
    Delivery: "deliveries",
    Settlement: "settlements",
    Burial: "burials",
    Event: "events",
    Row: "rows",
    Reading: "readings",
    Outage: "outages",
    Surprise: "surprises",
    End: "ends",
}


def history(*entries: Entry | float) -> History:
    """All of a run, in any order. A number is the patience."""
    whole = History()
    for entry in entries:
        if isinstance(entry, int | float):
            whole.patience = entry
        else:
            getattr(whole, PLACES[type(entry)]).append(entry)
    return whole


# What clients were told.


def enqueue(
    *ids: int,
    at: float = 0,
    was: Outcome = DONE,
    seqs: tuple[int, ...] | None = None,
    unique: bool = False,
    groups: tuple[str, ...] = (),
    keys: tuple[str, ...] = (),
    ttls: tuple[int, ...] = (),
    topic: str = "",
) -> Enqueue:
    """A batch."""
    given = tuple(id * 10 for id in ids) if seqs is None else seqs
    return Enqueue(ids, at, at + 5, was, given if was is DONE else (), topic, unique, groups, keys, ttls)


def claim(at: float, was: Outcome = DONE, *, short: bool = False) -> Claim:
    return Claim(at, at + 5, was, short=short)


def out(
    id: int, at: int, number: int = 1, *, seq: int = 0, lease: str = "", intact: bool = True, topic: str = ""
) -> Delivery:
    """A lease that begins at `at`; named after the number."""
    name = lease or f"lease_{number}"
    return Delivery(id, seq or id * 10, name, number, at + LEASE, LEASE, at - 3, at + 3, intact, topic)


def settle(
    verb: Verb,
    id: int,
    at: float,
    number: int = 1,
    was: Outcome = DONE,
    *,
    seq: int = 0,
    deadline: int = 0,
    ended: float = 0,
    lease_ms: int = 0,
    delay_ms: int = 0,
    refund: bool = False,
    topic: str = "",
) -> Settlement:
    return Settlement(
        verb, seq or id * 10, f"lease_{number}", at, ended or at + 5, was, deadline, topic, lease_ms, delay_ms, refund
    )


def ack(id: int, at: float, number: int = 1, was: Outcome = DONE, **more: object) -> Settlement:
    return settle(Verb.ACK, id, at, number, was, **more)  # type: ignore[arg-type]


def nack(id: int, at: float, number: int = 1, was: Outcome = DONE, **more: object) -> Settlement:
    return settle(Verb.NACK, id, at, number, was, **more)  # type: ignore[arg-type]


def fail(id: int, at: float, number: int = 1, was: Outcome = DONE) -> Settlement:
    return settle(Verb.FAIL, id, at, number, was)


def extend(id: int, at: float, deadline: int = 0, was: Outcome = DONE, **more: object) -> Settlement:
    return settle(Verb.EXTEND, id, at, 1, was, deadline=deadline, **more)  # type: ignore[arg-type]


def lived(id: int, at: int, topic: str = "") -> tuple[Entry, ...]:
    """A job that was claimed at `at`, and done ten ms later."""
    return out(id, at, topic=topic), ack(id, at + 10, topic=topic)


def told(reader: str, *ids: int, at: float = 100, seqs: tuple[int, ...] | None = None) -> Reading:
    """An answer to a reader of "log"; "" is the look at the end. A record's seq is its id."""
    return Reading(reader, tuple(zip(seqs or ids, ids, strict=True)), at, "log")


def append(*ids: int, at: float = 0, was: Outcome = DONE, unique: bool = False) -> Enqueue:
    """Records of "log"."""
    return enqueue(*ids, was=was, seqs=ids, unique=unique, at=at, topic="log")


def served(*ats: int) -> list[Entry]:
    """Enqueues, claims and acks that were answered at these times; jobs come and go."""
    entries: list[Entry] = []
    for id, at in enumerate(ats, 1):
        entries += [enqueue(id, at=at), claim(at), *lived(id, at + 10)]
    return entries


CALLS: Final[dict[str, Callable[[int, Outcome], Entry]]] = {
    "enqueue": lambda turn, was: enqueue(turn, at=turn * 500, was=was),
    "claim": lambda turn, was: claim(turn * 500, was),
    "ack": lambda turn, was: ack(turn, turn * 500, was=was),
    "extend": lambda turn, was: extend(turn, turn * 500, was=was),
}


def trickle(silent: str) -> list[Entry]:
    """Each kind of call twice a second for ten seconds, all done; one kind is in doubt from 1 s to 8 s."""
    return [
        call(turn, DOUBT if kind == silent and 2 <= turn < 16 else DONE)
        for turn in range(20)
        for kind, call in CALLS.items()
    ]


# What the ledger says of job 1, and what its clients were told at the same time.


def event(kind: str, at: float, number: int = 1, until: float | None = None, lease: str | None = "") -> Event:
    return Event("", 10, at, kind, number, f"lease_{number}" if lease == "" else lease, until=until)


def born(*, ttl: int = 0, group: str = "") -> tuple[Entry, ...]:
    sent = enqueue(1, ttls=(ttl,) if ttl else (), groups=(group,) if group else ())
    return sent, Event("", 10, 2, "enqueued")


def taken(at: int, number: int = 1, lease: str = "") -> tuple[Entry, ...]:
    name = lease or f"lease_{number}"
    return event("claimed", at, number, at + LEASE, name), out(1, at, number, lease=name)


def acked(at: int, number: int = 1) -> tuple[Entry, ...]:
    return event("acked", at + 2, number), ack(1, at, number)


def nacked(at: int, number: int = 1, delay: int = 0) -> tuple[Entry, ...]:
    return event("released", at + 2, number, at + 2 + delay), nack(1, at, number, delay_ms=delay)


def extended(at: int, number: int = 1, by: int = LEASE) -> tuple[Entry, ...]:
    told_ms = settle(Verb.EXTEND, 1, at, number, deadline=at + 2 + by, lease_ms=by)
    return event("extended", at + 2, number, at + 2 + by), told_ms


def row(state: str, seq: int = 10) -> Row:
    return Row("", seq, state, 1)


ONCE, TWICE = Topic("", max_deliveries=1), Topic("", max_deliveries=2)
HEIR = Event("dead", 7, 53, "enqueued", detail="from  10")
SECOND = enqueue(2, at=6, groups=("g",)), Event("", 20, 3, "enqueued")


def heirs_end(id: int) -> tuple[Entry, ...]:
    """The dead letter of job 1 is delivered, with this id in its payload, and done."""
    lease = Event("dead", 7, 60, "claimed", 1, "d", until=1060)
    handed = Delivery(id, 7, "d", 1, 1060, LEASE, 57, 63, topic="dead", origin=("", 10))
    return (
        lease,
        handed,
        Event("dead", 7, 72, "acked", 1, "d"),
        Settlement(Verb.ACK, 7, "d", 70, 75, DONE, topic="dead"),
    )
