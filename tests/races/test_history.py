"""The checker finds each fault that it is for, and none where there is none."""

from __future__ import annotations

import pytest

from tests.races.history import RULES, Call, Delivery, Enqueued, Event, History, check

T = "jobs"
DEAD = "jobs.dead"
MS = 1_000
LEASE = 100 * MS
PAYLOAD = b'{"n":1}'
Entry = Event | Enqueued | Delivery | Call | tuple[str, int, str] | str


def history(*entries: Entry, limit: int = 0) -> History:
    """What was left is a tuple, an error a string."""
    whole = History(limits={T: limit})
    for entry in entries:
        match entry:
            case Event():
                whole.events.append(entry)
            case Enqueued():
                whole.enqueued.append(entry)
            case Delivery():
                whole.deliveries.append(entry)
            case Call():
                whole.calls.append(entry)
            case str():
                whole.errors.append(entry)
            case _:
                whole.left.append(entry)
    return whole


def job(seq: int = 1, *, at: int = 0, ttl: int = 0) -> tuple[Entry, ...]:
    return Enqueued(T, seq, PAYLOAD, ttl), Event(T, seq, at, "enqueued")


def event(kind: str, at: int, number: int = 1, lease: str | None = "a", until: int | None = None) -> Event:
    return Event(T, 1, at, kind, number, lease, until)


def claim(at: int, number: int = 1, lease: str = "a", *, told: bool = True) -> tuple[Entry, ...]:
    """A lease of 100 ms, and its holder's answer."""
    claimed = event("claimed", at, number, lease, at + LEASE)
    seen = Delivery(T, 1, lease, number, (at + LEASE) // MS, at - MS, at + MS, PAYLOAD)
    return (claimed, seen) if told else (claimed,)


def call(verb: str, at: int, lease: str = "a", *, done: bool = True, took: int = 2 * MS, deadline: int = 0) -> Call:
    """A verb, whose line in the ledger is a ms after it was sent."""
    return Call(verb, T, 1, lease, at - MS, at - MS + took, done, deadline // MS)


def ack(at: int, number: int = 1, lease: str = "a") -> tuple[Entry, ...]:
    return event("acked", at, number, lease), call("ack", at, lease)


def nack(at: int, number: int = 1, lease: str = "a", *, delay: int = 0) -> tuple[Entry, ...]:
    return event("released", at, number, lease, at + delay), call("nack", at, lease)


def extend(at: int, number: int = 1, lease: str = "a", *, by: int = LEASE) -> tuple[Entry, ...]:
    return event("extended", at, number, lease, at + by), call("extend", at, lease, deadline=at + by)


ONE = 10 * MS  # when it is claimed first
END = ONE + LEASE
AGAIN = END + 5 * MS
HEIR = Event(DEAD, 7, 50 * MS, "enqueued", detail=f"from {T} 1")
HEIRS_END = (
    Event(DEAD, 7, 60 * MS, "claimed", 1, "d", 160 * MS),
    Delivery(DEAD, 7, "d", 1, 160, 59 * MS, 61 * MS, PAYLOAD, (T, 1)),
    Event(DEAD, 7, 70 * MS, "acked", 1, "d"),
    Call("ack", DEAD, 7, "d", 69 * MS, 71 * MS, True),
)

GOOD = {
    "nothing": history(),
    "a job comes and goes": history(*job(), *claim(ONE), *ack(20 * MS)),
    "a job waits": history(*job(), (T, 1, "ready")),
    "a lease ends, and its holder comes back": history(
        *job(), *claim(ONE), *claim(AGAIN, 2, "b"), call("ack", AGAIN + 9 * MS, done=False), *ack(AGAIN + MS, 2, "b")
    ),
    "a job returns at once, and is not its holder's any more": history(
        *job(), *claim(ONE), *nack(20 * MS), call("ack", 30 * MS, done=False), *claim(40 * MS, 2, "b"),
        *ack(50 * MS, 2, "b"),
    ),
    "a job returns after a delay": history(
        *job(), *claim(ONE), *nack(20 * MS, delay=50 * MS), *claim(71 * MS, 2, "b"), *ack(75 * MS, 2, "b")
    ),
    "a caller had gone": history(
        *job(), *claim(ONE, told=False), event("released", 12 * MS, 0, "a", 12 * MS), *claim(20 * MS, 1, "b"),
        *ack(30 * MS, 1, "b"),
    ),
    "a heartbeat keeps a job": history(*job(), *claim(ONE), *extend(100 * MS), *ack(190 * MS)),
    "a lease is made shorter, and ends": history(
        *job(), *claim(ONE), *extend(20 * MS, by=10 * MS), call("ack", 40 * MS, done=False), *claim(50 * MS, 2, "b"),
        *ack(60 * MS, 2, "b"),
    ),
    "an ack met a heartbeat that was committed too late for it": history(
        *job(), *claim(ONE), event("extended", END - MS, until=END + LEASE),
        call("ack", END + 4 * MS, done=False), call("extend", END - MS, took=20 * MS, deadline=END + LEASE),
        (T, 1, "leased"),
    ),
    "an ack was sent in time, and came too late": history(
        *job(), *claim(ONE), call("ack", END - 60 * MS, done=False, took=70 * MS), *claim(AGAIN, 2, "b"),
        *ack(AGAIN + MS, 2, "b"),
    ),
    "the last delivery is given up": history(
        *job(), *claim(ONE), event("dead_lettered", 50 * MS), call("nack", 50 * MS), HEIR, *HEIRS_END, limit=1
    ),
    "the last delivery ends in silence": history(
        *job(), *claim(ONE), event("failed", AGAIN), (T, 1, "failed"), limit=1
    ),
    "a job outlives its time": history(
        *job(ttl=5 * MS), event("expired", ONE, 0, None), event("deleted", END, 0, None)
    ),
    "a good lease shields its job": history(*job(ttl=15 * MS), *claim(ONE), *ack(90 * MS)),
}  # fmt: skip

BAD = {
    "an enqueue never arrived": ("lost", history(Enqueued(T, 1, PAYLOAD))),
    "a job is gone": ("lost", history(*job())),
    "a job is gone in a lease": ("lost", history(*job(), *claim(ONE))),
    "a dead letter did not arrive": (
        "orphaned",
        history(*job(), *claim(ONE), event("dead_lettered", AGAIN), limit=1),
    ),
    "a dead letter arrived twice": (
        "orphaned",
        history(
            *job(), *claim(ONE), event("dead_lettered", AGAIN), HEIR, (DEAD, 7, "ready"),
            Event(DEAD, 8, END, "enqueued", detail=HEIR.detail), (DEAD, 8, "ready"), limit=1,
        ),
    ),
    "a dead letter of a job that lives": ("orphaned", history(*job(), (T, 1, "ready"), HEIR, (DEAD, 7, "ready"))),
    "a job was acked, and stays": ("misplaced", history(*job(), *claim(ONE), *ack(20 * MS), (T, 1, "leased"))),
    "a job expired, and is ready": (
        "misplaced", history(*job(ttl=MS), event("expired", ONE, 0, None), (T, 1, "ready"))
    ),
    "a job of which the ledger knows nothing": ("misplaced", history((T, 1, "ready"))),
    "a job ended twice": (
        "misplaced",
        history(*job(ttl=MS), *claim(ONE), *ack(20 * MS), event("expired", 30 * MS, lease=None), (T, 1, "expired")),
    ),
    "there are more jobs than were enqueued": ("unbalanced", history(*job(), (T, 1, "ready"), (T, 2, "ready"))),
    "a job was enqueued and is nowhere": ("unbalanced", history(*job())),
    "a job is claimed after its ack": (
        "resurrected", history(*job(), *claim(ONE), *ack(20 * MS), *claim(30 * MS, 2, "b"))
    ),
    "a client is handed what another had acked": (
        "resurrected",
        history(*job(), *claim(ONE), *ack(20 * MS), Delivery(T, 1, "b", 2, 200, 40 * MS, 41 * MS, PAYLOAD)),
    ),
    "two acks of a job are acknowledged": (
        "resurrected", history(*job(), *claim(ONE), *ack(20 * MS), call("ack", 22 * MS))
    ),
    "a job is claimed from under its holder": (
        "overlapping", history(*job(), *claim(ONE), *claim(END - 1, 2, "b"), *ack(END, 2, "b"))
    ),
    "a heartbeat did not keep a job": (
        "overlapping", history(*job(), *claim(ONE), *extend(50 * MS), *claim(AGAIN, 2, "b"), *ack(AGAIN + MS, 2, "b"))
    ),
    "a sweep takes a job from its holder": (
        "overlapping", history(*job(), *claim(ONE), event("failed", 50 * MS), (T, 1, "failed"), limit=1)
    ),
    "a job expires under a good lease": (
        "overlapping", history(*job(ttl=MS), *claim(ONE), event("expired", 50 * MS), (T, 1, "expired"))
    ),
    "a job comes before its delay is over": (
        "overlapping",
        history(*job(), *claim(ONE), *nack(20 * MS, delay=50 * MS), *claim(60 * MS, 2, "b"), *ack(65 * MS, 2, "b")),
    ),
    "a delivery does not count": ("miscounted", history(*job(), *claim(ONE, 0), *ack(20 * MS, 0))),
    "a delivery counts twice": ("miscounted", history(*job(), *claim(ONE, 2), *ack(20 * MS, 2))),
    "a delivery that was had is given back": (
        "miscounted", history(*job(), *claim(ONE), event("released", 20 * MS, 0, until=20 * MS), (T, 1, "scheduled"))
    ),
    "who had gone is charged": (
        "miscounted",
        history(*job(), *claim(ONE, told=False), event("released", 20 * MS, 1, until=20 * MS), (T, 1, "scheduled")),
    ),
    "a job is delivered once too often": (
        "exceeded", history(*job(), *claim(ONE), *claim(AGAIN, 2, "b"), *ack(AGAIN + MS, 2, "b"), limit=1)
    ),
    "a job is given up too early": (
        "exceeded", history(*job(), *claim(ONE), event("failed", AGAIN), (T, 1, "failed"), limit=2)
    ),
    "a lease is handed out twice": (
        "reused", history(*job(), *claim(ONE), *claim(AGAIN, 2), *ack(AGAIN + MS, 2))
    ),
    "one lease is told to two": (
        "reused",
        history(*job(), *claim(ONE), Delivery(T, 1, "a", 1, END // MS, ONE, 12 * MS, PAYLOAD), *ack(20 * MS)),
    ),
    "an old lease acks": (
        "stale", history(*job(), *claim(ONE), *claim(AGAIN, 2, "b"), event("acked", AGAIN + MS, 2, "a"))
    ),
    "an old lease extends": (
        "stale",
        history(*job(), *claim(ONE), *nack(20 * MS), event("extended", 30 * MS, until=END), (T, 1, "scheduled")),
    ),
    "an ack without a lease": ("stale", history(*job(), event("acked", ONE, 0, None))),
    "an ack that was sent after the deadline is done": ("stale", history(*job(), *claim(ONE), *ack(END + 5 * MS))),
    "an extension that was sent after the deadline is done": (
        "stale", history(*job(), *claim(ONE), *extend(END + 5 * MS), (T, 1, "leased"))
    ),
    "a nack that was sent after the deadline is done": (
        "stale", history(*job(), *claim(ONE), *nack(END + 5 * MS), (T, 1, "scheduled"))
    ),
    "a lease that the ledger does not know": (
        "unlogged", history(*job(), (T, 1, "ready"), Delivery(T, 1, "a", 1, 110, 9 * MS, 11 * MS, PAYLOAD))
    ),
    "another deadline than the ledger's": (
        "unlogged",
        history(
            *job(), *claim(ONE, told=False), Delivery(T, 1, "a", 1, END // MS + 5, 9 * MS, 11 * MS, PAYLOAD),
            *ack(20 * MS),
        ),
    ),
    "an ack was acknowledged, and did nothing": (
        "unlogged", history(*job(), *claim(ONE), call("ack", 20 * MS), (T, 1, "leased"))
    ),
    "an extension has another deadline than was told": (
        "unlogged",
        history(
            *job(), *claim(ONE), event("extended", 20 * MS, until=120 * MS),
            call("extend", 20 * MS, deadline=150 * MS), (T, 1, "leased"),
        ),
    ),
    "the ack of a good lease is skipped": (
        "refused", history(*job(), *claim(ONE), call("ack", 50 * MS, done=False), (T, 1, "leased"))
    ),
    "the ack of a lease that was extended is skipped": (
        "refused",
        history(*job(), *claim(ONE), *extend(100 * MS), call("ack", END + 20 * MS, done=False), (T, 1, "leased")),
    ),
    "the ack of a lease meets its heartbeat and is skipped": (
        "refused",
        history(*job(), *claim(ONE), *extend(50 * MS), call("ack", 50 * MS, done=False), (T, 1, "leased")),
    ),
    "the nack of a good lease is skipped": (
        "refused", history(*job(), *claim(ONE), call("nack", 50 * MS, done=False), (T, 1, "leased"))
    ),
    "the extension of a good lease is skipped": (
        "refused", history(*job(), *claim(ONE), call("extend", 50 * MS, done=False), (T, 1, "leased"))
    ),
    "a payload is another": (
        "invented", history(Enqueued(T, 1, b"{}"), Event(T, 1, 0, "enqueued"), *claim(ONE), *ack(20 * MS))
    ),
    "nobody enqueued it": ("invented", history(Event(T, 1, 0, "enqueued"), *claim(ONE), *ack(20 * MS))),
    "a dead letter is another's": (
        "invented",
        history(
            Enqueued(T, 1, b"{}"), Event(T, 1, 0, "enqueued"), *claim(ONE, told=False), event("dead_lettered", 50 * MS),
            call("nack", 50 * MS), HEIR, *HEIRS_END, limit=1,
        ),
    ),
    "a job is delivered after its time": ("outlived", history(*job(ttl=MS), *claim(ONE), *ack(20 * MS))),
    "a job expires that lives for ever": (
        "outlived", history(*job(), event("expired", ONE, 0, None), (T, 1, "expired"))
    ),
    "a caller is told of a deadlock": ("troubled", history("claim: DeadlockDetectedError()")),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    assert check(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_rejected(name: str) -> None:
    rule, bad = BAD[name]
    assert rule in {fault.split(":")[0] for fault in check(bad)}


def test_every_rule_has_a_bad_history() -> None:
    assert {rule.__name__ for rule in RULES} == {rule for rule, _ in BAD.values()}
