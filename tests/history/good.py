"""What may happen, and does not in every storm: no rule finds fault with these."""

from __future__ import annotations

from typing import Final

from tests.history.stories import (
    DOUBT,
    HEIR,
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
    fail,
    lived,
    nack,
    out,
    row,
    served,
    taken,
    told,
)
from tools.history.facts import PAUSED
from tools.history.history import Burial, End, Event, Outage, Row
from tools.history.ledger import MARKED

GOOD: Final[dict[str, tuple[Entry | float, ...]]] = {
    "an enqueue in doubt was not done": (enqueue(1, 2, was=DOUBT),),
    "an enqueue in doubt was done": (enqueue(1, was=DOUBT), out(1, 10), ack(1, 20)),
    "an enqueue in doubt was done, and done again": (
        enqueue(1, was=DOUBT), enqueue(1, seqs=(11,), at=10), out(1, 20), out(1, 20, seq=11), ack(1, 30),
        ack(1, 30, seq=11)
    ),
    "an ack in doubt was done": (enqueue(1), out(1, 10), ack(1, 20, was=DOUBT)),
    "an ack in doubt was not done": (enqueue(1), out(1, 10), ack(1, 20, was=DOUBT), out(1, 1500, 2), ack(1, 1510, 2)),
    "an ack in doubt was done, and is refused the second time": (
        enqueue(1), out(1, 10), ack(1, 20, was=DOUBT), ack(1, 30, was=REFUSED)
    ),
    "a nack in doubt gave the job back": (enqueue(1), out(1, 10), nack(1, 20, was=DOUBT), out(1, 22, 2), ack(1, 30, 2)),
    "a nack in doubt did not": (enqueue(1), out(1, 10), nack(1, 20, was=DOUBT), out(1, 1900, 2), ack(1, 1910, 2)),
    "an extension in doubt held the job": (
        enqueue(1), out(1, 10), extend(1, 900, was=DOUBT), out(1, 2800, 2), ack(1, 2810, 2)
    ),
    "nobody is late while the service is away": (
        enqueue(1), out(1, 10), Outage(900, 4000), Outage(3000, 5000), out(1, 5990, 2), ack(1, 6000, 2)
    ),
    "a delivery that nobody saw takes its time": (enqueue(1), out(1, 10), out(1, 3900, 3), ack(1, 3910, 3)),
    "an enqueue with a key, tried again, answers the same": (
        enqueue(1, unique=True, was=DOUBT), enqueue(1, at=10, unique=True), *lived(1, 20)
    ),
    "seqs of two topics are two jobs": (
        enqueue(1, topic="a"), enqueue(2, topic="b", seqs=(10,)), *lived(1, 10, topic="a"),
        out(2, 10, seq=10, topic="b"), ack(1, 20, topic="b")
    ),
    "a nack in doubt, with a delay, was done": (
        enqueue(1), out(1, 10), nack(1, 20, delay_ms=300, was=DOUBT), out(1, 330, 2), ack(1, 340, 2)
    ),
    "a nack in doubt, with a delay, was done late": (
        enqueue(1), out(1, 10), nack(1, 20, delay_ms=3000, ended=500, was=DOUBT), out(1, 4400, 2), ack(1, 4410, 2)
    ),
    "an extension in doubt was done, and its ack too": (
        enqueue(1), out(1, 10), extend(1, 900, was=DOUBT), ack(1, 1500)
    ),
    "outages one after the other": (
        enqueue(1), out(1, 10), Outage(1100, 2000), Outage(2100, 3000), Outage(3100, 4000), out(1, 4600, 2),
        ack(1, 4610, 2)
    ),
    "an extension is as long as it says": (enqueue(1), out(1, 10), extend(1, 500, 5502, lease_ms=5000), ack(1, 5000)),
    "a delivery that is given back does not count": (
        enqueue(1), out(1, 10), nack(1, 20, refund=True), out(1, 30, lease="lease_2"), ack(1, 40, 2)
    ),
    "a delivery that nobody saw was a claim's in doubt": (
        enqueue(1), claim(8), out(1, 10), claim(1500, DOUBT), claim(2900), out(1, 2903, 3), ack(1, 2910, 3)
    ),
    "a claim in doubt was done long after": (
        enqueue(1, at=10000), claim(0, DOUBT), claim(11500), out(1, 11502, 2), ack(1, 11510, 2)
    ),
    "a job comes back late, and no worker was idle": (
        enqueue(1), claim(8), out(1, 10), claim(1990, short=True), claim(2500), claim(3000, short=True),
        out(1, 2903, 2), ack(1, 2910, 2)
    ),
    "a verb was refused that did not know of an extension": (
        enqueue(1), out(1, 10), extend(1, 900, 2902, ended=1300, lease_ms=2000), nack(1, 1020, was=REFUSED),
        ack(1, 1400)
    ),
    "a verb was refused, behind an ack that was under way": (
        enqueue(1), out(1, 10), ack(1, 20), nack(1, 15, ended=30, was=REFUSED)
    ),
    "a machine that is twice as slow": (enqueue(1), out(1, 10), out(1, 2900, 2), ack(1, 2910, 2), 2),
    "a job that nobody could do is a dead letter": (TWICE, enqueue(1), out(1, 10), out(1, 1020, 2), Burial(1, 10)),
    "a job is failed, and a dead letter": (enqueue(1), out(1, 10), fail(1, 20), Burial(1, 10)),
    "a failure in doubt was not": (enqueue(1), out(1, 10), fail(1, 20, was=DOUBT), out(1, 1020, 2), ack(1, 1030, 2)),
    "an ack in doubt came too late for a dead letter": (enqueue(1), out(1, 10), ack(1, 1009, was=DOUBT), Burial(1, 10)),
    "a group comes out one by one": (
        enqueue(1, 2, groups=("g", "g")), enqueue(3, at=6, groups=("g",)), out(1, 10), nack(1, 20, delay_ms=100),
        out(1, 130, 2), ack(1, 140, 2), *lived(2, 150), *lived(3, 170)
    ),
    "a group goes on after an ack in doubt": (
        enqueue(1, 2, groups=("g", "g")), out(1, 10), ack(1, 20, was=DOUBT), *lived(2, 22)
    ),
    "a group goes on behind a dead letter": (
        enqueue(1, 2, groups=("g", "g")), out(1, 10), fail(1, 20), Burial(1, 10), *lived(2, 30)
    ),
    "of enqueues at the same time either may be first": (
        enqueue(1, seqs=(20,), groups=("g",)), enqueue(2, at=3, seqs=(10,), groups=("g",)), out(2, 10, seq=10),
        ack(1, 20), out(1, 30, seq=20), ack(2, 40)
    ),
    "an enqueue to a group, tried again behind another, answers the same": (
        enqueue(1, unique=True, groups=("g",)), enqueue(2, at=10, groups=("g",)),
        enqueue(1, at=20, unique=True, groups=("g",)), *lived(1, 30), *lived(2, 50)
    ),
    "an append in doubt was not done": (LOG, append(1), append(2, was=DOUBT), told("r", 1), told("", 1)),
    "an append in doubt, tried again without a key, is there twice": (
        LOG, append(1, was=DOUBT), enqueue(1, at=9, seqs=(2,), topic="log"), told("r", 1, 1, seqs=(1, 2)),
        told("", 1, 1, seqs=(1, 2))
    ),
    "a fault costs four seconds": (*served(0, 900, 4900, 5000), Outage(1000, 4950, "a kill")),
    "two faults at once cost eight": (
        *served(0, 900, 8900, 9000), Outage(1000, 8950, "a kill"), Outage(1500, 8950, "a freeze")
    ),
    "a machine that stood still is nobody's fault": (
        *served(0, 900, 8900, 9000), Outage(1000, 8950, "a kill"), Outage(1200, 8200, PAUSED)
    ),
    "nothing is left": (End(0, {"groups": 0}),),
    # With a ledger.
    "an ack met a heartbeat that was committed too late for it": (
        *born(), *taken(10), event("extended", 1009, until=2009), ack(1, 1014, was=REFUSED),
        extend(1, 1008, 2009, ended=1028), row("leased")
    ),
    "a dead letter comes back": (
        ONCE, *born(), *taken(10), event("dead_lettered", 52), nack(1, 50), HEIR,
        Event("dead", 7, 60, "requeued", 0, detail="to  10"), Event("", 10, 61, "requeued", 0, detail="from dead 7"),
        *taken(70, 1, "lease_3"), event("acked", 82, 1, None, "lease_3"), ack(1, 80, 3)
    ),
    "a dead letter comes back before the pause that its last nack asked for": (
        ONCE, *born(), *taken(10), event("dead_lettered", 52), nack(1, 50, delay_ms=3000), HEIR,
        Event("dead", 7, 60, "requeued", 0, detail="to  10"), Event("", 10, 61, "requeued", 0, detail="from dead 7"),
        *taken(70, 1, "lease_3"), event("acked", 82, 1, None, "lease_3"), ack(1, 80, 3)
    ),
    "a group goes on behind a job that is to be cancelled": (
        *born(group="g"), *taken(10), *SECOND, Event("", 10, 20, "updated", 1, "lease_1", detail=MARKED),
        Event("", 20, 30, "claimed", 1, "x", until=1030), Row("", 20, "leased", 2), *acked(40)
    ),
}  # fmt: skip
