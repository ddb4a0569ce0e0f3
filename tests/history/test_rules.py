"""Each rule finds what it is for, and none finds fault where there is none: histories that may happen, and by the rule
that each breaks, those that must not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.good import GOOD
from tests.history.stories import (
    DOUBT,
    HEIR,
    LEASE,
    LOG,
    ONCE,
    REFUSED,
    SECOND,
    TWICE,
    Entry,
    ack,
    acked,
    append,
    born,
    claim,
    enqueue,
    event,
    extend,
    extended,
    fail,
    heirs_end,
    history,
    lived,
    nack,
    nacked,
    out,
    row,
    served,
    taken,
    told,
    trickle,
)
from tools.history.checker import RULES, check
from tools.history.history import Burial, Delivery, End, Event, Outage, Row, Surprise

BAD: dict[str, tuple[Any, ...]] = {
    "a job is gone": ("lost", enqueue(1, 2), out(1, 10), ack(1, 20)),
    "a job is gone after a delivery": ("lost", enqueue(1), out(1, 10)),
    "a job is gone after a refused ack": ("lost", enqueue(1), out(1, 10), ack(1, 1100, was=REFUSED)),
    "a job of an enqueue in doubt was seen and is gone": ("lost", enqueue(1, was=DOUBT), out(1, 10)),
    "a job that nobody sent": ("invented", out(1, 10), ack(1, 20)),
    "a job that is not what was sent": ("invented", enqueue(1), out(1, 10, intact=False), ack(1, 20)),
    "a job twice for one enqueue": (
        "duplicated", enqueue(1), out(1, 10), out(1, 10, seq=11), ack(1, 20), ack(1, 20, seq=11)
    ),
    "a job for a refused enqueue": ("duplicated", enqueue(1, was=REFUSED), out(1, 10), ack(1, 20)),
    "a job under another seq than was answered": (
        "duplicated", enqueue(1), ack(1, 20), out(1, 10), out(1, 5, seq=12), ack(1, 20, seq=12)
    ),
    "half a batch": ("torn", enqueue(1, 2, was=DOUBT), out(1, 10), ack(1, 20)),
    "one lease for two deliveries": (
        "reused", enqueue(1), out(1, 10, lease="lease_2"), out(1, 1500, 2), ack(1, 1510, 2)
    ),
    "a delivery count that was forgotten": ("reused", enqueue(1), out(1, 10, 2), out(1, 1500), ack(1, 1510)),
    "a lease that is shorter than was asked": (
        "mistimed", enqueue(1), Delivery(1, 10, "lease_1", 1, 900, LEASE, 10, 20), ack(1, 30)
    ),
    "a lease that is longer than was asked": (
        "mistimed", enqueue(1), Delivery(1, 10, "lease_1", 1, 1030, LEASE, 10, 20), ack(1, 30)
    ),
    "an extension that changes nothing": ("mistimed", enqueue(1), out(1, 10), extend(1, 500, 1010), ack(1, 600)),
    "a job given away before the deadline": ("early", enqueue(1), out(1, 10), out(1, 900, 2), ack(1, 910, 2)),
    "an extension that was forgotten": (
        "early", enqueue(1), out(1, 10), extend(1, 500, 1502), out(1, 1100, 2), ack(1, 1110, 2)
    ),
    "a nack that took effect before it was sent": (
        "early", enqueue(1), out(1, 10), nack(1, 500), out(1, 400, 2), ack(1, 600, 2)
    ),
    "a refused nack that gave the job back": (
        "early", enqueue(1), out(1, 10), nack(1, 500, was=REFUSED), out(1, 600, 2), ack(1, 610, 2)
    ),
    "a job that comes back too late": ("late", enqueue(1), out(1, 10), out(1, 2100, 2), ack(1, 2110, 2)),
    "a nacked job that comes back too late": (
        "late", enqueue(1), out(1, 10), nack(1, 20), out(1, 1100, 2), ack(1, 1110, 2)
    ),
    "a job that comes back too late, outage and all": (
        "late", enqueue(1), out(1, 10), Outage(0, 2000), Outage(500, 1500), out(1, 3100, 2), ack(1, 3110, 2)
    ),
    "a delivery after an ack": ("undone", enqueue(1), out(1, 10), ack(1, 20), out(1, 1500, 2)),
    "two acks": ("undone", enqueue(1), out(1, 10), out(1, 1500, 2), ack(1, 1490), ack(1, 1510, 2)),
    "a delivery before that of the ack, by a later holder": (
        "undone", enqueue(1), out(1, 10), out(1, 1500, 2), ack(1, 1510)
    ),
    "a nack by a holder whose lease was superseded": (
        "stale", enqueue(1), out(1, 10), out(1, 1100, 2), nack(1, 1200), ack(1, 1300, 2)
    ),
    "an ack by a holder whose lease has ended": ("stale", enqueue(1), out(1, 10), ack(1, 1100)),
    "an extension that came too late": (
        "stale", enqueue(1), out(1, 10), extend(1, 500, 1502), extend(1, 1600, 2602), ack(1, 1700)
    ),
    "an ack of nothing": ("unknown", enqueue(1), out(1, 10), ack(1, 20), ack(1, 20, 7)),
    "a good lease's ack refused": ("refused", enqueue(1), out(1, 10), ack(1, 20, was=REFUSED), ack(1, 30)),
    "an extended lease's ack refused": (
        "refused", enqueue(1), out(1, 10), extend(1, 500, 1502), ack(1, 1400, was=REFUSED), out(1, 1600, 2),
        ack(1, 1610, 2)
    ),
    "a job twice by one key": (
        "duplicated", enqueue(1, unique=True, was=DOUBT), enqueue(1, at=10, unique=True, seqs=(11,)), *lived(1, 20),
        out(1, 20, seq=11)
    ),
    "a dead letter that nobody sent": ("invented", Burial(1, 10)),
    "a dead letter of a job that was acked": ("misplaced", enqueue(1), *lived(1, 10), Burial(1, 10)),
    "two dead letters of one job": ("misplaced", enqueue(1), out(1, 10), Burial(1, 10), Burial(1, 10)),
    "a failed job that is no dead letter": ("misplaced", enqueue(1), out(1, 10), fail(1, 20)),
    "a dead letter under another seq, and the job is gone": ("lost", enqueue(1), out(1, 10), Burial(1, 11)),
    "a job that comes back before its deadline and its delay, one of which it has": (
        "early", enqueue(1), out(1, 10), nack(1, 20, delay_ms=3000, was=DOUBT), out(1, 500, 2), ack(1, 510, 2)
    ),
    "a job that comes back too late, and outages that count once": (
        "late", enqueue(1), out(1, 10), Outage(1100, 2000), Outage(1200, 1900), out(1, 2960, 2), ack(1, 2970, 2)
    ),
    "a good lease's ack refused, behind an extension in doubt": (
        "refused", enqueue(1), out(1, 10), extend(1, 100, was=DOUBT), ack(1, 200, was=REFUSED), out(1, 2000, 2),
        ack(1, 2010, 2)
    ),
    "an idle worker was not given what there was": (
        "late", enqueue(1), claim(8), out(1, 10), claim(2020, short=True), claim(2900), out(1, 2903, 2),
        ack(1, 2910, 2)
    ),
    "a job that comes back during its delay": (
        "early", enqueue(1), out(1, 10), nack(1, 20, delay_ms=3000), out(1, 2900, 2), ack(1, 2910, 2)
    ),
    "a job that comes back too long after its delay": (
        "late", enqueue(1), out(1, 10), nack(1, 20, delay_ms=3000), out(1, 4100, 2), ack(1, 4110, 2)
    ),
    "a job that comes back too late, also for a slow machine": (
        "late", enqueue(1), out(1, 10), out(1, 3100, 2), ack(1, 3110, 2), 2
    ),
    "an extension that is not as long as it says": (
        "mistimed", enqueue(1), out(1, 10), extend(1, 500, 1502, lease_ms=5000), ack(1, 1400)
    ),
    "a delivery that did not count": (
        "reused", enqueue(1), out(1, 10), nack(1, 20), out(1, 30, lease="lease_2"), ack(1, 40, 2)
    ),
    "a delivery that was given back twice": (
        "reused", enqueue(1), out(1, 10), out(1, 1020, 2), nack(1, 1030, 2, refund=True),
        out(1, 1040, lease="lease_3"), ack(1, 1050, 3)
    ),
    "a delivery that nobody can have seen": (
        "skipped", enqueue(1), claim(8), out(1, 10), claim(1020), out(1, 1022, 3), ack(1, 1030, 3)
    ),
    "a first delivery that is not the first": ("skipped", enqueue(1), claim(8), out(1, 10, 2), ack(1, 20, 2)),
    "a claim in doubt that ended long before": (
        "skipped", enqueue(1, at=16000), claim(0, DOUBT), claim(16008), out(1, 16010, 1), claim(17020),
        out(1, 17022, 3), ack(1, 17030, 3)
    ),
    "a delivery too many": (
        "overdelivered", TWICE, enqueue(1), out(1, 10), out(1, 1020, 2), out(1, 2030, 3), ack(1, 2040, 3)
    ),
    "a delivery after an ack, which does not count": (
        "undone", enqueue(1), out(1, 10), ack(1, 20), out(1, 30, lease="lease_2")
    ),
    "two of a group are out": (
        "overlapped", enqueue(1, 2, groups=("g", "g")), out(1, 10), out(2, 11), ack(1, 20), ack(2, 20)
    ),
    "two of a group are out, by two enqueues and an extension": (
        "overlapped", enqueue(1, groups=("g",)), enqueue(2, at=6, groups=("g",)), out(1, 10), extend(1, 500, 1502),
        out(2, 1400), ack(1, 1450), ack(2, 1460)
    ),
    "a head that was returned is overtaken": (
        "disordered", enqueue(1, 2, groups=("g", "g")), out(1, 10), nack(1, 20), *lived(2, 30), out(1, 50, 2),
        ack(1, 60, 2)
    ),
    "a head that fell silent is overtaken": (
        "disordered", enqueue(1, 2, groups=("g", "g")), out(1, 10), *lived(2, 1020), out(1, 1050, 2), ack(1, 1060, 2)
    ),
    "a group in another order than that of its enqueues": (
        "disordered", enqueue(1, seqs=(20,), groups=("g",)), enqueue(2, at=10, seqs=(10,), groups=("g",)),
        out(2, 20, seq=10), ack(1, 30), out(1, 40, seq=20), ack(2, 50)
    ),
    "a reader missed a record": ("gapped", LOG, append(1, 2, 3), told("r", 1, 3), told("", 1, 2, 3)),
    "a reader missed the last record": ("gapped", LOG, append(1, 2), told("r", 1), told("", 1, 2)),
    "a reader was told a record twice": (
        "gapped", LOG, append(1, 2), told("r", 1, 2), told("r", 2, at=200), told("", 1, 2)
    ),
    "a reader was told records in another order": ("gapped", LOG, append(1, 2), told("r", 2, 1), told("", 1, 2)),
    "a record that was acknowledged is gone": ("gapped", LOG, append(1, 2), told("r", 1), told("", 1)),
    "a record at another place than was answered": (
        "gapped", LOG, append(1), told("r", 1, seqs=(2,)), told("", 1, seqs=(2,))
    ),
    "a record twice by one key": (
        "gapped", LOG, append(1, unique=True, was=DOUBT), append(1, unique=True, at=10), told("r", 1, 1, seqs=(1, 2)),
        told("", 1, 1, seqs=(1, 2))
    ),
    "a log that is not read in order": ("gapped", LOG, append(1, 2), told("r", 2, 1), told("", 2, 1)),
    "seven seconds without an answer": ("unavailable", *served(900, 8000, 8100), Outage(1000, 8050, "a kill")),
    "seven seconds without an answer, long after another fault": (
        "unavailable", *served(900, 1900, 6000, 10000, 17000, 17100), Outage(1000, 1950, "a kill"),
        Outage(10100, 17050, "a kill")
    ),
    "twelve seconds without an answer after two faults": (
        "unavailable", *served(0, 900, 13000, 13100), Outage(1000, 13050, "a kill"), Outage(1500, 13050, "a freeze")
    ),
    "only enqueues are not answered": ("unavailable", *trickle("enqueue"), Outage(900, 8100, "a kill")),
    "only claims are not answered": ("unavailable", *trickle("claim"), Outage(900, 8100, "a kill")),
    "only acks are not answered": ("unavailable", *trickle("ack"), Outage(900, 8100, "a kill")),
    "an answer that no fault explains": ("surprised", Surprise("POST /claim: 500")),
    "a deadlock": ("deadlocked", End(deadlocks=1)),
    "a group that is never forgotten": ("left", End(left={"groups": 1})),
    "a damaged index": ("damaged", End(damage=("jobs_pkey: item order",))),
    # With a ledger.
    "an enqueue never arrived": ("lost", *born(), row("ready"), enqueue(2)),
    "a job is gone that was never claimed": ("lost", *born()),
    "a job is gone in a lease": ("lost", *born(), *taken(10)),
    "a dead letter is another's": (
        "invented", ONCE, *born(), enqueue(2), *taken(10), event("dead_lettered", 52), nack(1, 50), HEIR, *heirs_end(2)
    ),
    "a dead letter did not arrive": ("misplaced", ONCE, *born(), *taken(10), event("dead_lettered", 1015)),
    "a dead letter arrived twice": (
        "misplaced", ONCE, *born(), *taken(10), event("dead_lettered", 1015), HEIR, Row("dead", 7, "ready", 1),
        Event("dead", 8, 1015, "enqueued", detail="from  10"), Row("dead", 8, "ready", 1)
    ),
    "a dead letter of a job that lives": ("misplaced", *born(), row("ready"), HEIR, Row("dead", 7, "ready", 1)),
    "a job was acked, and stays": ("misplaced", *born(), *taken(10), *acked(20), row("leased")),
    "a job expired, and is ready": ("misplaced", *born(ttl=1), event("expired", 10, 0, None, None), row("ready")),
    "a job of which the ledger knows nothing": ("misplaced", *born(), row("ready"), row("ready", 20)),
    "a job was enqueued and is nowhere": ("misplaced", *born()),
    "a job is delivered after its time": ("outlived", *born(ttl=1), *taken(10), *acked(20)),
    "a job expires that lives for ever": ("outlived", *born(), event("expired", 10, 0, None, None), row("expired")),
    "the newest record of a key is thrown away": (
        "forgotten", enqueue(1, keys=("k",)), enqueue(2, at=10, keys=("k",)), *lived(1, 20)
    ),
    "a lease is claimed twice": ("reused", *born(), *taken(10), *taken(1015, 2, "lease_1"), *acked(1020)),
    "a job is delivered once too often": (
        "overdelivered", ONCE, *born(), *taken(10), event("claimed", 1015, 2, 2015), event("failed", 2020, 2),
        row("failed")
    ),
    "a job is given up too early": (
        "overdelivered", TWICE, *born(), *taken(10), event("failed", 1015), row("failed")
    ),
    "a sweep takes a job from its holder": ("early", ONCE, *born(), *taken(10), event("failed", 50), row("failed")),
    "a job expires under a good lease": ("early", *born(ttl=1), *taken(10), event("expired", 50), row("expired")),
    "an extension that was sent after the deadline is done": (
        "stale", *born(), *taken(10), *extended(1016), row("leased")
    ),
    "a nack that was sent after the deadline is done": ("stale", *born(), *taken(10), *nacked(1016), row("scheduled")),
    "the ack of a lease meets its heartbeat and is refused": (
        "refused", *born(), *taken(10), *extended(500), ack(1, 500, was=REFUSED), row("leased")
    ),
    "the extension of a good lease is refused": (
        "refused", *born(), *taken(10), extend(1, 50, was=REFUSED), row("leased")
    ),
    "a group goes on while its head has been returned": (
        "overlapped", *born(group="g"), *SECOND, *taken(10), *nacked(20),
        Event("", 20, 30, "claimed", 1, "x", until=1030)
    ),
    "a group goes on behind a later job": (
        "disordered", *born(group="g"), *SECOND, Event("", 20, 4, "claimed", 1, "x", until=1004),
        Event("", 20, 8, "acked", 1, "x"), *taken(10), *acked(20)
    ),
    "a job is enqueued twice": ("impossible", *born(), Event("", 10, 5, "enqueued"), row("ready")),
    "a job ends twice": (
        "impossible", *born(ttl=1), *taken(10), *acked(20), event("expired", 32, 1, None, None), row("expired")
    ),
    "a job comes back that has not died": (
        "impossible", *born(), *taken(10), event("requeued", 20, 0, None, None), row("scheduled")
    ),
    "a job is claimed after its ack": ("impossible", *born(), *taken(10), *acked(20), *taken(30, 2)),
    "a job is claimed from under its holder": ("impossible", *born(), *taken(10), *taken(1009, 2), *acked(1020, 2)),
    "a heartbeat did not keep a job": ("impossible", *born(), *taken(10), *extended(500), *taken(1015, 2)),
    "a job comes before its delay is over": ("impossible", *born(), *taken(10), *nacked(20, delay=50), *taken(60, 2)),
    "a delivery does not count": ("impossible", *born(), *taken(10, 0), *acked(20, 0)),
    "a delivery counts twice": ("impossible", *born(), *taken(10, 2), *acked(20, 2)),
    "an ack takes a delivery back": ("impossible", *born(), *taken(10), event("acked", 20, 0, None, "lease_1")),
    "an old lease acks": ("impossible", *born(), *taken(10), *taken(1015, 2), event("acked", 1020, 2, None, "lease_1")),
    "an old lease extends": (
        "impossible", *born(), *taken(10), *nacked(20), event("extended", 30, until=1010), row("scheduled")
    ),
    "an ack without a lease": ("impossible", *born(), event("acked", 10, 0, None, None)),
    "a lease that the ledger does not know": ("unlogged", *born(), row("ready"), out(1, 10)),
    "another deadline than the ledger's": ("unlogged", *born(), event("claimed", 10, 1, 1010), out(1, 16), *acked(20)),
    "an ack was acknowledged, and did nothing": ("unlogged", *born(), *taken(10), ack(1, 20), row("leased")),
    "an extension has another deadline than was told": (
        "unlogged", *born(), *taken(10), event("extended", 22, until=1022), extend(1, 20, 1052), row("leased")
    ),
    "a delivery that was had is given back": (
        "miscounted", *born(), *taken(10), event("released", 22, 0, 22, "lease_1"), nack(1, 20), row("scheduled")
    ),
    "a caller who had gone is charged": (
        "miscounted", *born(), claim(8), event("claimed", 10, 1, 1010), event("released", 22, 1, 22), row("scheduled")
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", GOOD)
def test_what_may_happen_is_no_fault(story: str) -> None:
    assert check(history(*GOOD[story])) == []


@pytest.mark.parametrize("story", BAD)
def test_what_must_not_happen_is_found_by_its_rule(story: str) -> None:
    rule, *bad = BAD[story]
    assert rule in {fault.partition(":")[0] for fault in check(history(*bad))}


def test_every_rule_has_a_bad_history() -> None:
    assert {rule for rule, *_ in BAD.values()} == {rule.__name__ for rule in RULES}


def test_a_long_history_is_no_fault() -> None:
    entries: list[Entry] = []
    for id in range(1, 20_001):
        entries += [enqueue(id), out(id, 10), out(id, 1100, 2), ack(id, 1110, 2)]
    entries += [Outage(at, at + 100) for at in range(5000, 105_000, 1000)]
    assert check(history(*entries)) == []
