"""Who has a job, since when and until when: G2, G3, G4 and G9 of docs/reliability.md."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise, takewhile
from math import inf
from typing import Final

from tools.history.facts import ROUNDING_MS, Facts, Job
from tools.history.history import NEVER, Claim, Delivery, Outcome, Settlement, Verb
from tools.history.ledger import Lease
from tools.history.rules_of_jobs import shown

SWEPT: Final = ("dead_lettered", "failed", "expired", "superseded")  # ends that only wait for a lease's
AFTERWARDS_MS: Final = 15_000.0  # how long after its end a call in doubt may still be carried out


def reused(facts: Facts) -> Iterator[str]:
    """A lease is handed out once, and a job's deliveries count up; one that was given back does not count."""
    for job, deliveries in facts.by_job.items():
        for lease, times in Counter(delivery.lease for delivery in deliveries).items():
            if times > 1:
                yield f"{shown(job)} was handed out {times} times with {lease}"
        for before, after in pairwise(deliveries):
            if after.number < before.number + 1 - _refunds(facts, before) and not facts.moved(job):
                yield f"{shown(job)}: delivery {after.number} came after delivery {before.number}"
    claimed = Counter((one.topic, one.seq, one.lease) for one in facts.history.events if one.event == "claimed")
    for (topic, seq, named), times in claimed.items():
        if times > 1 or named is None:
            yield f"{shown((topic, seq))} was claimed {times} times with {named}"


def skipped(facts: Facts) -> Iterator[str]:
    """A job's deliveries count up by one; what is missing was leased by claims that are in doubt."""
    if not facts.history.claims:
        return
    doubts: dict[str, list[Claim]] = defaultdict(list)
    for claim in facts.history.claims:
        if claim.outcome is Outcome.IN_DOUBT:
            doubts[claim.topic].append(claim)
    for claims in doubts.values():
        claims.sort(key=lambda claim: claim.sent)
    for job, deliveries in facts.by_job.items():
        claims = doubts[job[0]]
        for before, after in pairwise([None, *deliveries]):
            assert after is not None
            number, since = (0, 0.0) if before is None else (before.number, float(before.claimed))
            missing = after.number - number - 1
            if missing <= 0:
                continue
            begun = claims[: bisect_right(claims, float(after.claimed), key=lambda claim: claim.sent)]
            if missing > sum(1 for claim in begun if claim.ended + AFTERWARDS_MS > since):
                yield f"{shown(job)}: delivery {after.number} came after delivery {number}, and no claim is missing"


def overdelivered(facts: Facts) -> Iterator[str]:
    """A job is delivered max_deliveries times, and no more; nor is it given up before, if nobody says so."""
    for job, deliveries in facts.by_job.items():
        most = facts.topic(job[0]).max_deliveries
        if most and deliveries[-1].number > most:
            yield f"{shown(job)} was delivered {deliveries[-1].number} times, with max_deliveries {most}"
    for event in facts.history.events:
        most = facts.topic(event.topic).max_deliveries
        if event.event == "claimed" and 0 < most < event.deliveries:
            yield f"with max_deliveries {most}: {event}"
        if event.event in ("dead_lettered", "failed") and (not most or event.deliveries < most):
            calls = facts.by_lease.get((event.topic, event.seq, event.lease or ""), ())
            if not any(one.verb is Verb.FAIL and one.outcome is not Outcome.REFUSED for one in calls):
                yield f"with max_deliveries {most}: {event}"


def mistimed(facts: Facts) -> Iterator[str]:
    """A lease, and an extended one, is as long as was asked, from a moment between the call and its answer."""
    for job, deliveries in facts.by_job.items():
        for delivery in deliveries:
            spans = [("claim", delivery.sent, delivery.ended, delivery.deadline - delivery.lease_ms)]
            spans += [
                ("extension", one.sent, one.ended, one.deadline - (one.lease_ms or delivery.lease_ms))
                for one in facts.on(delivery)
                if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE
            ]
            for what, sent, ended, began in spans:
                if not sent - facts.slack <= began <= ended + facts.slack:
                    yield f"{shown(job)}: the lease counts from {began - sent:.0f} ms after the {what} was sent"


def early(facts: Facts) -> Iterator[str]:
    """Who holds a job is the only one until the deadline, or until it gives the job back and its pause is over."""
    for job, deliveries in facts.by_job.items():
        for before, then in pairwise(deliveries):
            until = facts.held_until(before)
            if then.claimed < until - facts.slack and not _came_back(facts, job, before, then):
                left = until - then.claimed
                yield f"{shown(job)}: delivery {then.number} began {left:.0f} ms before the lease's end"
    for lease in facts.leases.values():
        after = lease.closed
        if after is not None and after.event in SWEPT and after.at <= lease.until and not _gave_up(facts, lease):
            yield f"{lease.until - after.at:.3f} ms before the deadline of its holder, who had not given it up: {after}"


def _came_back(facts: Facts, job: Job, before: Delivery, then: Delivery) -> bool:
    """Whether it died in between, of a nack with a pause, and was requeued: the dead don't pause."""
    since, until = facts.given_up(before) - facts.slack, then.claimed + facts.slack
    return any(one.event == "requeued" and since <= one.at <= until for one in facts.ledger.get(job, ()))


def _gave_up(facts: Facts, lease: Lease) -> bool:
    """Whether its holder asked for the end that it came to, or had gone, so that the engine did."""
    claimed, end = lease.claimed, lease.closed
    if end is not None and end.event == "superseded" and end.deliveries < claimed.deliveries:
        return True
    calls = facts.by_lease.get((claimed.topic, claimed.seq, claimed.lease or ""), ())
    return end is not None and any(
        one.verb in (Verb.NACK, Verb.FAIL) and one.outcome is not Outcome.REFUSED and one.sent - facts.slack <= end.at
        for one in calls
    )


def late(facts: Facts) -> Iterator[str]:
    """A job whose lease has ended is handed out again within LATE_MS of the service's being there, if a worker is idle.

    Deliveries that nobody saw, because the answer to the claim was lost, are leases of their own.
    """
    if facts.late_ms == inf:
        return
    idle: dict[str, list[Claim]] = defaultdict(list)
    for claim in facts.history.claims:
        if claim.short:
            idle[claim.topic].append(claim)
    for claims in idle.values():
        claims.sort(key=lambda claim: claim.sent)
    for job, deliveries in facts.by_job.items():
        for before, after in pairwise(deliveries):
            free = facts.free_from(before)
            unseen = max(0, after.number - before.number - 1) * (before.lease_ms + facts.late_ms)
            waited = after.claimed - free - unseen - facts.away(free, after.claimed)
            if waited > facts.late_ms + ROUNDING_MS and _missed(idle, job[0], free + facts.late_ms, after.claimed):
                yield f"{shown(job)}: delivery {after.number} came {waited:.0f} ms after the lease's end"


def undone(facts: Facts) -> Iterator[str]:
    """After an ack that was acknowledged nobody gets the job, and a job is acked once."""
    for job, deliveries in facts.by_job.items():
        acked: Delivery | None = None
        ended = 0.0
        for delivery in deliveries:
            for one in facts.on(delivery):
                if one.verb is Verb.ACK and one.outcome is Outcome.DONE:
                    if acked is not None:
                        yield f"{shown(job)} was acked twice, in deliveries {acked.number} and {delivery.number}"
                    acked, ended = delivery, one.ended
        last = deliveries[-1]
        if acked is not None and (last.number > acked.number or last.claimed > ended + facts.slack):
            yield f"{shown(job)} was acked in delivery {acked.number}, and there is a delivery {last.number}"


def stale(facts: Facts) -> Iterator[str]:
    """With a lease that has ended nobody changes anything, also where nobody else has the job yet."""
    for job, deliveries in facts.by_job.items():
        for delivery in deliveries:
            until = float(delivery.deadline)
            for one in facts.on(delivery):
                if one.verb is Verb.EXTEND and one.outcome is Outcome.IN_DOUBT:
                    break  # it may be as long as it likes
                if one.outcome is Outcome.DONE and one.sent > until + facts.slack:
                    late = one.sent - until
                    yield f"{shown(job)}: an {one.verb.value} was done {late:.0f} ms after the lease's end"
                if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE:
                    until = one.deadline


def unknown(facts: Facts) -> Iterator[str]:
    """Nobody does anything with a lease that was never handed out. A fault of the clients, if of anybody."""
    handed_out = {(delivery.topic, delivery.seq, delivery.lease) for delivery in facts.history.deliveries}
    for topic, seq, lease in facts.by_lease.keys() - handed_out:
        yield f"{shown((topic, seq))} has no lease {lease}"


def refused(facts: Facts) -> Iterator[str]:
    """A good lease's verbs are done: it survives whatever dies. Good is what the holder had been told when it asked; an
    extension that is under way may make it shorter."""
    for job, deliveries in facts.by_job.items():
        for delivery in deliveries:
            calls, lease = facts.on(delivery), facts.lease(delivery)
            ends = (one.sent for one in calls if one.verb is not Verb.EXTEND and one.outcome is not Outcome.REFUSED)
            over = min(ends, default=NEVER)  # from then on it is over, or may be
            if lease is not None and lease.closed is not None:
                over = min(over, lease.closed.at)
            for one in calls:
                if one.outcome is Outcome.REFUSED:
                    left = _good_until(facts, delivery, one) - one.ended
                    if left > facts.slack and one.ended < over - facts.slack:
                        yield f"{shown(job)}: an {one.verb.value} was refused {left:.0f} ms before the lease's end"


def _good_until(facts: Facts, delivery: Delivery, asked: Settlement) -> float:
    until = float(delivery.deadline)
    for one in facts.on(delivery):
        if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE and one.ended <= asked.sent:
            until = one.deadline
        elif one.verb is Verb.EXTEND and one.outcome is not Outcome.REFUSED and one.sent <= asked.ended:
            until = min(until, one.sent + (one.lease_ms or delivery.lease_ms))
    return until


def _missed(idle: dict[str, list[Claim]], topic: str, begun: float, until: float) -> bool:
    """Whether somebody asked between the two, and was not given what there was. Where nobody's wishes are known, so."""
    if not idle:
        return True
    claims = idle.get(topic, [])
    asked = claims[bisect_left(claims, begun, key=lambda claim: claim.sent) :]
    return any(claim.ended <= until for claim in takewhile(lambda claim: claim.sent <= until, asked))


def _refunds(facts: Facts, delivery: Delivery) -> int:
    """1 where it may not count, as its holder gave it back."""
    return int(any(one.refund and one.outcome is not Outcome.REFUSED for one in facts.on(delivery)))
