"""The checker finds each fault that it is for, and none where there is none: of plain jobs and their leases."""

from __future__ import annotations

import pytest

from tests.tools.test_chaos_checker_beyond_leases import BAD as BAD_BEYOND
from tools.chaos.checker import RULES, check
from tools.chaos.history import Delivery, Outage, Settlement, Verb
from tools.chaos.stories import DONE, DOUBT, LEASE, REFUSED, Entry, ack, delivery, enqueue, history, settle

GOOD = {
    "nothing": history(),
    "a job comes and goes": history(enqueue(1), delivery(1, at=10), ack(1, at=20)),
    "a lease ends and the job is done by another": history(
        enqueue(1), delivery(1, at=10), delivery(1, 2, at=1010), ack(1, at=1020, outcome=REFUSED), ack(1, 2, at=1030)
    ),
    "an enqueue in doubt was not done": history(enqueue(1, 2, outcome=DOUBT)),
    "an enqueue in doubt was done": history(enqueue(1, outcome=DOUBT), delivery(1, at=10), ack(1, at=20)),
    "an enqueue in doubt was done, and done again": history(
        enqueue(1, outcome=DOUBT),
        enqueue(1, seqs=(11,), at=10),
        delivery(1, at=20),
        delivery(1, at=20, seq=11),
        ack(1, at=30),
        Settlement(Verb.ACK, 11, "lease_1", 30, 35, DONE),
    ),
    "an ack in doubt was done": history(enqueue(1), delivery(1, at=10), ack(1, at=20, outcome=DOUBT)),
    "an ack in doubt was not done": history(
        enqueue(1), delivery(1, at=10), ack(1, at=20, outcome=DOUBT), delivery(1, 2, at=1500), ack(1, 2, at=1510)
    ),
    "an ack in doubt was done, and is refused the second time": history(
        enqueue(1), delivery(1, at=10), ack(1, at=20, outcome=DOUBT), ack(1, at=30, outcome=REFUSED)
    ),
    "a nack gives the job back at once": history(
        enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20), delivery(1, 2, at=22), ack(1, 2, at=30)
    ),
    "a nack in doubt gave the job back": history(
        enqueue(1),
        delivery(1, at=10),
        settle(Verb.NACK, 1, at=20, outcome=DOUBT),
        delivery(1, 2, at=22),
        ack(1, 2, at=30),
    ),
    "a nack in doubt did not": history(
        enqueue(1),
        delivery(1, at=10),
        settle(Verb.NACK, 1, at=20, outcome=DOUBT),
        delivery(1, 2, at=1900),
        ack(1, 2, at=1910),
    ),
    "an extension holds the job": history(
        enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=1502), ack(1, at=1400)
    ),
    "an extension in doubt held the job": history(
        enqueue(1),
        delivery(1, at=10),
        settle(Verb.EXTEND, 1, at=900, outcome=DOUBT),
        delivery(1, 2, at=2800),
        ack(1, 2, at=2810),
    ),
    "nobody is late while the service is away": history(
        enqueue(1),
        delivery(1, at=10),
        Outage(900, 4000),
        Outage(3000, 5000),
        delivery(1, 2, at=5990),
        ack(1, 2, at=6000),
    ),
    "a delivery that nobody saw takes its time": history(
        enqueue(1), delivery(1, at=10), delivery(1, 3, at=3900), ack(1, 3, at=3910)
    ),
}

BAD = {
    "a job is gone": ("lost", history(enqueue(1, 2), delivery(1, at=10), ack(1, at=20))),
    "a job is gone after a delivery": ("lost", history(enqueue(1), delivery(1, at=10))),
    "a job is gone after a refused ack": (
        "lost", history(enqueue(1), delivery(1, at=10), ack(1, at=1100, outcome=REFUSED))
    ),
    "a job of an enqueue in doubt was seen and is gone": (
        "lost", history(enqueue(1, outcome=DOUBT), delivery(1, at=10))
    ),
    "a job that nobody sent": ("invented", history(delivery(1, at=10), ack(1, at=20))),
    "a job that is not what was sent": (
        "invented", history(enqueue(1), delivery(1, at=10, intact=False), ack(1, at=20))
    ),
    "a job twice for one enqueue": (
        "duplicated",
        history(enqueue(1), delivery(1, at=10), delivery(1, at=10, seq=11), ack(1, at=20),
                Settlement(Verb.ACK, 11, "lease_1", 20, 25, DONE)),
    ),
    "a job for a refused enqueue": (
        "duplicated", history(enqueue(1, outcome=REFUSED), delivery(1, at=10), ack(1, at=20))
    ),
    "a job under another seq than was answered": (
        "duplicated",
        history(enqueue(1), ack(1, at=20), delivery(1, at=10), delivery(1, at=5, seq=12),
                Settlement(Verb.ACK, 12, "lease_1", 20, 25, DONE)),
    ),
    "half a batch": ("torn", history(enqueue(1, 2, outcome=DOUBT), delivery(1, at=10), ack(1, at=20))),
    "one lease for two deliveries": (
        "reused",
        history(enqueue(1), delivery(1, at=10, lease="lease_2"), delivery(1, 2, at=1500), ack(1, 2, at=1510)),
    ),
    "a delivery count that was forgotten": (
        "reused",
        history(enqueue(1), delivery(1, 2, at=10), delivery(1, at=1500), ack(1, at=1510)),
    ),
    "a lease that is shorter than was asked": (
        "mistimed", history(enqueue(1), Delivery(1, 10, "lease_1", 1, 900, LEASE, 10, 20), ack(1, at=30))
    ),
    "a lease that is longer than was asked": (
        "mistimed", history(enqueue(1), Delivery(1, 10, "lease_1", 1, 1030, LEASE, 10, 20), ack(1, at=30))
    ),
    "an extension that changes nothing": (
        "mistimed",
        history(enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=1010), ack(1, at=600)),
    ),
    "a job given away before the deadline": (
        "early", history(enqueue(1), delivery(1, at=10), delivery(1, 2, at=900), ack(1, 2, at=910))
    ),
    "an extension that was forgotten": (
        "early",
        history(
            enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=1502),
            delivery(1, 2, at=1100), ack(1, 2, at=1110),
        ),
    ),
    "a nack that took effect before it was sent": (
        "early",
        history(
            enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=500), delivery(1, 2, at=400), ack(1, 2, at=600)
        ),
    ),
    "a refused nack that gave the job back": (
        "early",
        history(
            enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=500, outcome=REFUSED),
            delivery(1, 2, at=600), ack(1, 2, at=610),
        ),
    ),
    "a job that comes back too late": (
        "late", history(enqueue(1), delivery(1, at=10), delivery(1, 2, at=2100), ack(1, 2, at=2110))
    ),
    "a nacked job that comes back too late": (
        "late",
        history(
            enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20), delivery(1, 2, at=1100), ack(1, 2, at=1110)
        ),
    ),
    "a job that comes back too late, outage and all": (
        "late",
        history(
            enqueue(1), delivery(1, at=10), Outage(0, 2000), Outage(500, 1500),
            delivery(1, 2, at=3100), ack(1, 2, at=3110),
        ),
    ),
    "a delivery after an ack": (
        "undone", history(enqueue(1), delivery(1, at=10), ack(1, at=20), delivery(1, 2, at=1500))
    ),
    "two acks": (
        "undone",
        history(enqueue(1), delivery(1, at=10), delivery(1, 2, at=1500), ack(1, at=1490), ack(1, 2, at=1510)),
    ),
    "a delivery before that of the ack, by a later holder": (
        "undone", history(enqueue(1), delivery(1, at=10), delivery(1, 2, at=1500), ack(1, at=1510))
    ),
    "a nack by a holder whose lease was superseded": (
        "stale",
        history(
            enqueue(1), delivery(1, at=10), delivery(1, 2, at=1100), settle(Verb.NACK, 1, at=1200), ack(1, 2, at=1300)
        ),
    ),
    "an ack by a holder whose lease has ended": (
        "stale", history(enqueue(1), delivery(1, at=10), ack(1, at=1100))
    ),
    "an extension that came too late": (
        "stale",
        history(
            enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=1502),
            settle(Verb.EXTEND, 1, at=1600, deadline=2602), ack(1, at=1700),
        ),
    ),
    "an ack of nothing": ("unknown", history(enqueue(1), delivery(1, at=10), ack(1, at=20), ack(1, 7, at=20))),
    "a good lease's ack refused": (
        "refused", history(enqueue(1), delivery(1, at=10), ack(1, at=20, outcome=REFUSED), ack(1, at=30))
    ),
    "an extended lease's ack refused": (
        "refused",
        history(
            enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=1502),
            ack(1, at=1400, outcome=REFUSED), delivery(1, 2, at=1600), ack(1, 2, at=1610),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", GOOD)
def test_what_may_happen_is_no_fault(story: str) -> None:
    assert check(GOOD[story]) == []


@pytest.mark.parametrize("story", BAD)
def test_what_must_not_happen_is_found_by_its_rule(story: str) -> None:
    rule, bad = BAD[story]
    assert {fault.partition(":")[0] for fault in check(bad)} >= {rule}


def test_every_rule_has_a_bad_history() -> None:
    bad = [*BAD.values(), *BAD_BEYOND.values()]
    assert {rule for rule, _ in bad} == {rule.__name__ for rule in RULES}


def test_a_long_history_is_no_fault() -> None:
    entries: list[Entry] = []
    for id in range(1, 20_001):
        entries += [enqueue(id), delivery(id, at=10), delivery(id, 2, at=1100), ack(id, 2, at=1110)]
    entries += [Outage(at, at + 100) for at in range(5000, 105_000, 1000)]
    assert check(history(*entries)) == []
