"""The same of what not every job has: keys, groups, delays, dead letters, logs; and of the service meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tools.chaos.checker import check
from tools.chaos.facts import PAUSED
from tools.chaos.history import Burial, End, Outage, Outcome, Surprise, Topic, Verb
from tools.chaos.stories import (
    DONE,
    DOUBT,
    REFUSED,
    Entry,
    ack,
    append,
    claim,
    delivery,
    enqueue,
    history,
    lived,
    settle,
    told,
)

LOG: Final = Topic("log", is_log=True)
TWICE: Final = Topic("", max_deliveries=2)


def served(*ats: int) -> list[Entry]:
    """Enqueues, claims and acks that were answered at these times; jobs come and go."""
    entries: list[Entry] = []
    for id, at in enumerate(ats, 1):
        entries += [enqueue(id, at=at), claim(at), *lived(id, at=at + 10)]
    return entries


def trickle(*calls: Callable[[int, Outcome], Entry]) -> list[Entry]:
    """Each kind of call twice a second for ten seconds, all done; the first kind is in doubt from 1 s to 8 s."""
    entries: list[Entry] = []
    for turn in range(20):
        for place, call in enumerate(calls):
            out = place == 0 and 2 <= turn < 16
            entries.append(call(turn, DOUBT if out else DONE))
    return entries


def an_enqueue(turn: int, outcome: Outcome) -> Entry:
    return enqueue(turn, at=turn * 500, outcome=outcome)


def a_claim(turn: int, outcome: Outcome) -> Entry:
    return claim(turn * 500, outcome)


def an_ack(turn: int, outcome: Outcome) -> Entry:
    return ack(turn, at=turn * 500, outcome=outcome)


def an_extension(turn: int, outcome: Outcome) -> Entry:
    return settle(Verb.EXTEND, turn, at=turn * 500, outcome=outcome)


GOOD = {
    "an enqueue with a key, tried again, answers the same": history(
        enqueue(1, outcome=DOUBT, unique=True), enqueue(1, at=10, unique=True), *lived(1, at=20)
    ),
    "seqs of two topics are two jobs": history(
        enqueue(1, topic="a"), enqueue(2, topic="b", seqs=(10,)), *lived(1, at=10, topic="a"),
        delivery(2, at=10, seq=10, topic="b"), ack(1, at=20, topic="b"),
    ),
    "a job comes back after its delay": history(
        enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20, delay_ms=3000),
        delivery(1, 2, at=3030), ack(1, 2, at=3040),
    ),
    "a nack in doubt, with a delay, was done": history(
        enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20, outcome=DOUBT, delay_ms=300),
        delivery(1, 2, at=330), ack(1, 2, at=340),
    ),
    "a nack in doubt, with a delay, was done late": history(
        enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20, outcome=DOUBT, delay_ms=3000, ended=500),
        delivery(1, 2, at=4400), ack(1, 2, at=4410),
    ),
    "a job comes back after its lease was extended": history(
        enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=3502, lease_ms=3000),
        delivery(1, 2, at=3600), ack(1, 2, at=3610),
    ),
    "an extension in doubt was done, and its ack too": history(
        enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=900, outcome=DOUBT), ack(1, at=1500)
    ),
    "outages one after the other": history(
        enqueue(1), delivery(1, at=10), Outage(1100, 2000), Outage(2100, 3000), Outage(3100, 4000),
        delivery(1, 2, at=4600), ack(1, 2, at=4610),
    ),
    "an extension is as long as it says": history(
        enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=5502, lease_ms=5000), ack(1, at=5000)
    ),
    "a delivery that is given back does not count": history(
        enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20, refund=True),
        delivery(1, at=30, lease="lease_2"), ack(1, 2, at=40),
    ),
    "a delivery that nobody saw was a claim's in doubt": history(
        enqueue(1), claim(8), delivery(1, at=10), claim(1500, DOUBT), claim(2900), delivery(1, 3, at=2903),
        ack(1, 3, at=2910),
    ),
    "a claim in doubt was done long after": history(
        enqueue(1, at=10_000), claim(0, DOUBT), claim(11_500), delivery(1, 2, at=11_502), ack(1, 2, at=11_510)
    ),
    "a job comes back late, and no worker was idle": history(
        enqueue(1), claim(8), delivery(1, at=10), claim(1990, short=True), claim(2500), claim(3000, short=True),
        delivery(1, 2, at=2903), ack(1, 2, at=2910),
    ),
    "a verb was refused that did not know of an extension": history(
        enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=900, deadline=2902, ended=1300, lease_ms=2000),
        settle(Verb.NACK, 1, at=1020, outcome=REFUSED), ack(1, at=1400),
    ),
    "a verb was refused, behind an ack that was under way": history(
        enqueue(1), delivery(1, at=10), ack(1, at=20), settle(Verb.NACK, 1, at=15, ended=30, outcome=REFUSED)
    ),
    "a machine that is twice as slow": history(
        enqueue(1), delivery(1, at=10), delivery(1, 2, at=2900), ack(1, 2, at=2910), patience=2
    ),
    "a job that nobody could do is a dead letter": history(
        TWICE, enqueue(1), delivery(1, at=10), delivery(1, 2, at=1020), Burial(1, 10)
    ),
    "a job is failed, and a dead letter": history(
        enqueue(1), delivery(1, at=10), settle(Verb.FAIL, 1, at=20), Burial(1, 10)
    ),
    "a failure in doubt was not": history(
        enqueue(1), delivery(1, at=10), settle(Verb.FAIL, 1, at=20, outcome=DOUBT), delivery(1, 2, at=1020),
        ack(1, 2, at=1030),
    ),
    "an ack in doubt came too late for a dead letter": history(
        enqueue(1), delivery(1, at=10), ack(1, at=1009, outcome=DOUBT), Burial(1, 10)
    ),
    "a group comes out one by one": history(
        enqueue(1, 2, groups=("g", "g")), enqueue(3, at=6, groups=("g",)), delivery(1, at=10),
        settle(Verb.NACK, 1, at=20, delay_ms=100), delivery(1, 2, at=130), ack(1, 2, at=140),
        *lived(2, at=150), *lived(3, at=170),
    ),
    "groups come out beside each other": history(
        enqueue(1, 2, groups=("g", "h")), *lived(2, at=10), *lived(1, at=11)
    ),
    "a group goes on after an ack in doubt": history(
        enqueue(1, 2, groups=("g", "g")), delivery(1, at=10), ack(1, at=20, outcome=DOUBT), *lived(2, at=22)
    ),
    "a group goes on behind a dead letter": history(
        enqueue(1, 2, groups=("g", "g")), delivery(1, at=10), settle(Verb.FAIL, 1, at=20), Burial(1, 10),
        *lived(2, at=30),
    ),
    "of enqueues at the same time either may be first": history(
        enqueue(1, seqs=(20,), groups=("g",)), enqueue(2, at=3, seqs=(10,), groups=("g",)),
        delivery(2, at=10, seq=10), ack(1, at=20), delivery(1, at=30, seq=20), ack(2, at=40),
    ),
    "an enqueue to a group, tried again behind another, answers the same": history(
        enqueue(1, unique=True, groups=("g",)), enqueue(2, at=10, groups=("g",)),
        enqueue(1, at=20, unique=True, groups=("g",)), *lived(1, at=30), *lived(2, at=50),
    ),
    "a log is told in parts": history(
        LOG, append(1, 2), append(3), told("r", 1), told("r", 2, 3, at=200), told("s", 1, 2, 3), told("", 1, 2, 3)
    ),
    "an append in doubt was not done": history(LOG, append(1), append(2, outcome=DOUBT), told("r", 1), told("", 1)),
    "an append in doubt, tried again without a key, is there twice": history(
        LOG, append(1, outcome=DOUBT), enqueue(1, at=9, seqs=(2,), topic="log"),
        told("r", 1, 1, seqs=(1, 2)), told("", 1, 1, seqs=(1, 2)),
    ),
    "a fault costs four seconds": history(*served(0, 900, 4900, 5000), Outage(1000, 4950, "a kill")),
    "two faults at once cost eight": history(
        *served(0, 900, 8900, 9000), Outage(1000, 8950, "a kill"), Outage(1500, 8950, "a freeze")
    ),
    "a machine that stood still is nobody's fault": history(
        *served(0, 900, 8900, 9000), Outage(1000, 8950, "a kill"), Outage(1200, 8200, PAUSED)
    ),
    "nothing is left": history(End(0, {"groups": 0})),
}  # fmt: skip

BAD = {
    "a job twice by one key": (
        "duplicated",
        history(enqueue(1, outcome=DOUBT, unique=True), enqueue(1, at=10, unique=True, seqs=(11,)), *lived(1, at=20),
                delivery(1, at=20, seq=11)),
    ),
    "a dead letter that nobody sent": ("invented", history(Burial(1, 10))),
    "a dead letter of a job that was acked": (
        "misplaced", history(enqueue(1), *lived(1, at=10), Burial(1, 10))
    ),
    "two dead letters of one job": (
        "misplaced", history(enqueue(1), delivery(1, at=10), Burial(1, 10), Burial(1, 10))
    ),
    "a failed job that is no dead letter": (
        "misplaced", history(enqueue(1), delivery(1, at=10), settle(Verb.FAIL, 1, at=20))
    ),
    "a dead letter under another seq, and the job is gone": (
        "lost", history(enqueue(1), delivery(1, at=10), Burial(1, 11))
    ),
    "a job that comes back before its deadline and its delay, one of which it has": (
        "early",
        history(enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20, outcome=DOUBT, delay_ms=3000),
                delivery(1, 2, at=500), ack(1, 2, at=510)),
    ),
    "a job that comes back too late, and outages that count once": (
        "late",
        history(enqueue(1), delivery(1, at=10), Outage(1100, 2000), Outage(1200, 1900), delivery(1, 2, at=2960),
                ack(1, 2, at=2970)),
    ),
    "a good lease's ack refused, behind an extension in doubt": (
        "refused",
        history(enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=100, outcome=DOUBT),
                ack(1, at=200, outcome=REFUSED), delivery(1, 2, at=2000), ack(1, 2, at=2010)),
    ),
    "an idle worker was not given what there was": (
        "late",
        history(enqueue(1), claim(8), delivery(1, at=10), claim(2020, short=True), claim(2900), delivery(1, 2, at=2903),
                ack(1, 2, at=2910)),
    ),
    "a job that comes back during its delay": (
        "early",
        history(enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20, delay_ms=3000),
                delivery(1, 2, at=2900), ack(1, 2, at=2910)),
    ),
    "a job that comes back too long after its delay": (
        "late",
        history(enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20, delay_ms=3000),
                delivery(1, 2, at=4100), ack(1, 2, at=4110)),
    ),
    "a job that comes back too late, also for a slow machine": (
        "late", history(enqueue(1), delivery(1, at=10), delivery(1, 2, at=3100), ack(1, 2, at=3110), patience=2)
    ),
    "an extension that is not as long as it says": (
        "mistimed",
        history(enqueue(1), delivery(1, at=10), settle(Verb.EXTEND, 1, at=500, deadline=1502, lease_ms=5000),
                ack(1, at=1400)),
    ),
    "a delivery that did not count": (
        "reused",
        history(enqueue(1), delivery(1, at=10), settle(Verb.NACK, 1, at=20), delivery(1, at=30, lease="lease_2"),
                ack(1, 2, at=40)),
    ),
    "a delivery that was given back twice": (
        "reused",
        history(enqueue(1), delivery(1, at=10), delivery(1, 2, at=1020), settle(Verb.NACK, 1, 2, at=1030, refund=True),
                delivery(1, at=1040, lease="lease_3"), ack(1, 3, at=1050)),
    ),
    "a delivery that nobody can have seen": (
        "skipped",
        history(enqueue(1), claim(8), delivery(1, at=10), claim(1020), delivery(1, 3, at=1022), ack(1, 3, at=1030)),
    ),
    "a first delivery that is not the first": (
        "skipped", history(enqueue(1), claim(8), delivery(1, 2, at=10), ack(1, 2, at=20))
    ),
    "a claim in doubt that ended long before": (
        "skipped",
        history(enqueue(1, at=16_000), claim(0, DOUBT), claim(16_008), delivery(1, 1, at=16_010),
                claim(17_020), delivery(1, 3, at=17_022), ack(1, 3, at=17_030)),
    ),
    "a delivery too many": (
        "overdelivered",
        history(TWICE, enqueue(1), delivery(1, at=10), delivery(1, 2, at=1020), delivery(1, 3, at=2030),
                ack(1, 3, at=2040)),
    ),
    "a delivery after an ack, which does not count": (
        "undone",
        history(enqueue(1), delivery(1, at=10), ack(1, at=20), delivery(1, at=30, lease="lease_2")),
    ),
    "two of a group are out": (
        "overlapped",
        history(enqueue(1, 2, groups=("g", "g")), delivery(1, at=10), delivery(2, at=11), ack(1, at=20), ack(2, at=20)),
    ),
    "two of a group are out, by two enqueues and an extension": (
        "overlapped",
        history(enqueue(1, groups=("g",)), enqueue(2, at=6, groups=("g",)), delivery(1, at=10),
                settle(Verb.EXTEND, 1, at=500, deadline=1502), delivery(2, at=1400), ack(1, at=1450), ack(2, at=1460)),
    ),
    "a head that was returned is overtaken": (
        "disordered",
        history(enqueue(1, 2, groups=("g", "g")), delivery(1, at=10), settle(Verb.NACK, 1, at=20), *lived(2, at=30),
                delivery(1, 2, at=50), ack(1, 2, at=60)),
    ),
    "a head that fell silent is overtaken": (
        "disordered",
        history(enqueue(1, 2, groups=("g", "g")), delivery(1, at=10), *lived(2, at=1020), delivery(1, 2, at=1050),
                ack(1, 2, at=1060)),
    ),
    "a group in another order than that of its enqueues": (
        "disordered",
        history(enqueue(1, seqs=(20,), groups=("g",)), enqueue(2, at=10, seqs=(10,), groups=("g",)),
                delivery(2, at=20, seq=10), ack(1, at=30), delivery(1, at=40, seq=20), ack(2, at=50)),
    ),
    "a reader missed a record": ("gapped", history(LOG, append(1, 2, 3), told("r", 1, 3), told("", 1, 2, 3))),
    "a reader missed the last record": ("gapped", history(LOG, append(1, 2), told("r", 1), told("", 1, 2))),
    "a reader was told a record twice": (
        "gapped", history(LOG, append(1, 2), told("r", 1, 2), told("r", 2, at=200), told("", 1, 2))
    ),
    "a reader was told records in another order": (
        "gapped", history(LOG, append(1, 2), told("r", 2, 1), told("", 1, 2))
    ),
    "a record that was acknowledged is gone": ("gapped", history(LOG, append(1, 2), told("r", 1), told("", 1))),
    "a record at another place than was answered": (
        "gapped", history(LOG, append(1), told("r", 1, seqs=(2,)), told("", 1, seqs=(2,)))
    ),
    "a record twice by one key": (
        "gapped",
        history(LOG, append(1, outcome=DOUBT, unique=True), append(1, unique=True, at=10),
                told("r", 1, 1, seqs=(1, 2)), told("", 1, 1, seqs=(1, 2))),
    ),
    "a log that is not read in order": (
        "gapped", history(LOG, append(1, 2), told("r", 2, 1), told("", 2, 1))
    ),
    "seven seconds without an answer": (
        "unavailable", history(*served(900, 8000, 8100), Outage(1000, 8050, "a kill"))
    ),
    "seven seconds without an answer, long after another fault": (
        "unavailable",
        history(*served(900, 1900, 6000, 10_000, 17_000, 17_100), Outage(1000, 1950, "a kill"),
                Outage(10_100, 17_050, "a kill")),
    ),
    "twelve seconds without an answer after two faults": (
        "unavailable",
        history(*served(0, 900, 13_000, 13_100), Outage(1000, 13_050, "a kill"), Outage(1500, 13_050, "a freeze")),
    ),
    "only enqueues are not answered": (
        "unavailable", history(*trickle(an_enqueue, a_claim, an_ack), Outage(900, 8100, "a kill"))
    ),
    "only claims are not answered": (
        "unavailable", history(*trickle(a_claim, an_enqueue, an_ack), Outage(900, 8100, "a kill"))
    ),
    "only acks are not answered": (
        "unavailable", history(*trickle(an_ack, an_enqueue, a_claim, an_extension), Outage(900, 8100, "a kill"))
    ),
    "an answer that no fault explains": ("surprised", history(Surprise("POST /claim: 500"))),
    "a deadlock": ("deadlocked", history(End(deadlocks=1))),
    "a group that is never forgotten": ("left", history(End(left={"groups": 1}))),
    "a damaged index": ("damaged", history(End(damage=("jobs_pkey: item order",)))),
}  # fmt: skip


@pytest.mark.parametrize("story", GOOD)
def test_what_may_happen_is_no_fault(story: str) -> None:
    assert check(GOOD[story]) == []


@pytest.mark.parametrize("story", BAD)
def test_what_must_not_happen_is_found_by_its_rule(story: str) -> None:
    rule, bad = BAD[story]
    assert {fault.partition(":")[0] for fault in check(bad)} >= {rule}
