"""The ledger, by itself and beside what clients were told: docs/semantics.md, section 13."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tools.history.facts import ROUNDING_MS, Facts
from tools.history.history import Event, Outcome, Settlement, Verb
from tools.history.ledger import GIVEN_BACK
from tools.history.rules_of_jobs import shown

EFFECTS: Final = {
    Verb.ACK: {"acked"},
    Verb.NACK: {"released", "dead_lettered", "failed", "superseded", "cancelled"},
    Verb.EXTEND: {"extended"},
    Verb.FAIL: {"dead_lettered", "failed"},
}


def impossible(facts: Facts) -> Iterator[str]:
    """Events follow on each other: a job is enqueued once, and first; a claim is one delivery, and comes when nobody
    holds the job and its delay is over; only the newest lease does anything; nothing comes after the end."""
    yield from facts.impossible


def unlogged(facts: Facts) -> Iterator[str]:
    """What a client was told stands in the ledger: its lease, with its deadline, and each verb that was done."""
    if not facts.ledger:
        return
    for one in facts.history.deliveries:
        lease = facts.lease(one)
        if lease is None or lease.claimed.deliveries != one.number:
            yield f"{shown((one.topic, one.seq))}: delivery {one.number} under {one.lease}"
        elif abs((lease.claimed.until or 0) - one.deadline) > ROUNDING_MS:
            yield f"{shown((one.topic, one.seq))}: {one.lease} until {one.deadline}, not {lease.claimed.until}"
    for call in facts.history.settlements:
        if call.outcome is Outcome.DONE and _effect(facts, call) is None:
            yield f"{shown((call.topic, call.seq))}: {call.verb.value} under {call.lease}"


def miscounted(facts: Facts) -> Iterator[str]:
    """A delivery is given back by a caller who had gone, and so was handed nothing, and by a holder who asked for it;
    by the first always."""
    if not (facts.history.deliveries or facts.history.claims):
        return  # nobody wrote down what clients were handed
    handed = {(one.topic, one.seq, one.lease) for one in facts.history.deliveries}
    for name, lease in facts.leases.items():
        end = lease.closed
        if end is None or end.event not in GIVEN_BACK:
            continue
        given_back = end.deliveries < lease.claimed.deliveries
        asked = any(one.refund and one.outcome is not Outcome.REFUSED for one in facts.by_lease.get(name, ()))
        swept = end.event == "superseded" and not given_back  # its lease had ended
        if given_back is (name in handed) and not asked and not swept:
            yield f"{end}, of {lease.claimed.deliveries}, {'handed out' if name in handed else 'seen by nobody'}"


def _effect(facts: Facts, call: Settlement) -> Event | None:
    """What the ledger says was done by a call of this verb, at its time, with its lease."""
    lease = facts.lease(call)
    for event in [] if lease is None else [*lease.extended, *([lease.closed] if lease.closed else [])]:
        during = call.sent - facts.slack <= event.at <= call.ended + facts.slack
        told = call.verb is not Verb.EXTEND or abs((event.until or 0) - call.deadline) <= ROUNDING_MS
        if event.event in EFFECTS[call.verb] and event.lease == call.lease and during and told:
            return event
    return None
