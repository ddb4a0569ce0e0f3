"""What a history must not show. Pure; each rule is a function, and has a bad history of its own in test_checker.py.

Calls in doubt may have been done, at once or later. The rules give them every benefit, and no more than that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

from tests.chaos.history import Delivery, Enqueue, History, Outage, Outcome, Settlement, Verb

LATE_MS: Final = 1000.0  # how long after its time a job may wait for an idle worker, while the service is there
ROUNDING_MS: Final = 1.0  # answers carry whole milliseconds

Key = tuple[int, str]  # a lease: seq and lease id


class Facts:
    """A history, looked up by job and by lease."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.attempts: dict[int, list[Enqueue]] = defaultdict(list)
        self.seqs: dict[int, set[int]] = defaultdict(set)
        self.by_seq: dict[int, list[Delivery]] = defaultdict(list)
        self.by_lease: dict[Key, list[Settlement]] = defaultdict(list)
        for enqueue in history.enqueues:
            for place, id in enumerate(enqueue.ids):
                self.attempts[id].append(enqueue)
                if enqueue.outcome is Outcome.DONE:
                    self.seqs[id].add(enqueue.seqs[place])
        for delivery in history.deliveries:
            self.seqs[delivery.id].add(delivery.seq)
            self.by_seq[delivery.seq].append(delivery)
        for deliveries in self.by_seq.values():
            deliveries.sort(key=lambda delivery: (delivery.claimed, delivery.number))
        for settlement in history.settlements:
            self.by_lease[settlement.seq, settlement.lease].append(settlement)
        for settlements in self.by_lease.values():
            settlements.sort(key=lambda settlement: settlement.sent)

    def on(self, delivery: Delivery) -> list[Settlement]:
        """What was done with its lease, in order."""
        return self.by_lease.get((delivery.seq, delivery.lease), [])

    def held_until(self, delivery: Delivery) -> float:
        """Nobody else may have it before. An extension in doubt may hold it longer, and never shorter."""
        until = float(delivery.deadline)
        for one in self.on(delivery):
            if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE:
                until = one.deadline
            elif one.verb is Verb.NACK and one.outcome is not Outcome.REFUSED:
                return min(until, one.sent)
        return until

    def free_from(self, delivery: Delivery) -> float:
        """From then on it may be claimed, whatever became of what is in doubt."""
        until = float(delivery.deadline)
        for one in self.on(delivery):
            if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE:
                until = one.deadline
            elif one.verb is Verb.EXTEND and one.outcome is Outcome.IN_DOUBT:
                until = max(until, one.ended + delivery.lease_ms)
            elif one.verb is Verb.NACK and one.outcome is Outcome.DONE:
                return one.ended
        return until


def check(history: History) -> list[str]:
    """Every violation, one line each; none for a history as promised."""
    facts = Facts(history)
    return [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(facts)]


def lost(facts: Facts) -> Iterator[str]:
    """What was acknowledged, or seen once, is there until an ack, and the queue is empty at the end."""
    acked = {
        one.seq for one in facts.history.settlements if one.verb is Verb.ACK and one.outcome is not Outcome.REFUSED
    }
    for id, seqs in facts.seqs.items():
        for seq in sorted(seqs - acked):
            seen = facts.by_seq.get(seq, [])
            yield f"job {id} (seq {seq}) was never acked, and it is gone; delivered {len(seen)} times"


def invented(facts: Facts) -> Iterator[str]:
    """What is delivered was sent, by somebody, and as it is."""
    for one in facts.history.deliveries:
        if one.id not in facts.attempts:
            yield f"job {one.id} (seq {one.seq}) was never sent"
        elif not one.intact:
            yield f"job {one.id} (seq {one.seq}) is not what was sent"


def duplicated(facts: Facts) -> Iterator[str]:
    """An enqueue makes one job; only one in doubt, tried again, may have made another."""
    for id, seqs in facts.seqs.items():
        attempts = facts.attempts.get(id, [])
        most = sum(1 for attempt in attempts if attempt.outcome is not Outcome.REFUSED)
        if attempts and len(seqs) > most:
            yield f"job {id} is there {len(seqs)} times, as seqs {sorted(seqs)}, for {most} enqueues"


def torn(facts: Facts) -> Iterator[str]:
    """A batch is there whole or not at all."""
    for ids in {enqueue.ids for enqueue in facts.history.enqueues}:
        numbers = Counter(len(facts.seqs.get(id, ())) for id in ids)
        if len(numbers) > 1:
            yield f"of the batch of jobs {ids[0]} to {ids[-1]} some are there more often than others: {dict(numbers)}"


def reused(facts: Facts) -> Iterator[str]:
    """A lease is handed out once, and a job's deliveries count up."""
    for seq, deliveries in facts.by_seq.items():
        for lease, times in Counter(delivery.lease for delivery in deliveries).items():
            if times > 1:
                yield f"seq {seq} was handed out {times} times with {lease}"
        for before, after in pairwise(deliveries):
            if after.number <= before.number:
                yield f"seq {seq}: delivery {after.number} came after delivery {before.number}"


def mistimed(facts: Facts) -> Iterator[str]:
    """A lease, and an extended one, is as long as was asked, from a moment between the call and its answer."""
    for seq, deliveries in facts.by_seq.items():
        for delivery in deliveries:
            spans = [("claim", delivery.sent, delivery.ended, delivery.deadline)]
            spans += [
                ("extension", one.sent, one.ended, one.deadline)
                for one in facts.on(delivery)
                if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE
            ]
            for what, sent, ended, deadline in spans:
                if not sent - ROUNDING_MS <= deadline - delivery.lease_ms <= ended + ROUNDING_MS:
                    off = deadline - delivery.lease_ms - sent
                    yield f"seq {seq}: the lease counts from {off:.0f} ms after the {what} was sent"


def early(facts: Facts) -> Iterator[str]:
    """Who holds a job is the only one until the deadline, or until it gives the job back."""
    for seq, deliveries in facts.by_seq.items():
        for before, after in pairwise(deliveries):
            until = facts.held_until(before)
            if after.claimed < until - ROUNDING_MS:
                yield f"seq {seq}: delivery {after.number} began {until - after.claimed:.0f} ms before the lease's end"


def late(facts: Facts) -> Iterator[str]:
    """A job whose lease has ended is handed out again within LATE_MS of the service's being there.

    Deliveries that nobody saw, because the answer to the claim was lost, are leases of their own.
    """
    outages = _merged(facts.history.outages)
    for seq, deliveries in facts.by_seq.items():
        for before, after in pairwise(deliveries):
            free = facts.free_from(before)
            unseen = (after.number - before.number - 1) * (before.lease_ms + LATE_MS)
            waited = after.claimed - free - unseen - _overlap(outages, free, after.claimed)
            if waited > LATE_MS + ROUNDING_MS:
                yield f"seq {seq}: delivery {after.number} came {waited:.0f} ms after the lease's end"


def undone(facts: Facts) -> Iterator[str]:
    """After an ack that was acknowledged nobody gets the job, and a job is acked once."""
    acked: dict[int, Delivery] = {}
    for seq, deliveries in facts.by_seq.items():
        for delivery in deliveries:
            for one in facts.on(delivery):
                if one.verb is Verb.ACK and one.outcome is Outcome.DONE:
                    if seq in acked:
                        yield f"seq {seq} was acked twice, in deliveries {acked[seq].number} and {delivery.number}"
                    acked[seq] = delivery
        last = deliveries[-1]
        if seq in acked and last.number > acked[seq].number:
            yield f"seq {seq} was acked in delivery {acked[seq].number}, and there is a delivery {last.number}"


def stale(facts: Facts) -> Iterator[str]:
    """With a lease that has ended nobody changes anything, also where nobody else has the job yet."""
    for deliveries in facts.by_seq.values():
        for delivery in deliveries:
            until = float(delivery.deadline)
            for one in facts.on(delivery):
                if one.verb is Verb.EXTEND and one.outcome is Outcome.IN_DOUBT:
                    break  # it may be as long as it likes
                if one.outcome is Outcome.DONE and one.sent > until + ROUNDING_MS:
                    yield f"seq {one.seq}: an {one.verb.value} was done {one.sent - until:.0f} ms after the lease's end"
                if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE:
                    until = one.deadline


def unknown(facts: Facts) -> Iterator[str]:
    """Nobody does anything with a lease that was never handed out. A fault of the clients, if of anybody."""
    handed_out = {(delivery.seq, delivery.lease) for delivery in facts.history.deliveries}
    for seq, lease in facts.by_lease.keys() - handed_out:
        yield f"seq {seq} has no lease {lease}"


def refused(facts: Facts) -> Iterator[str]:
    """A good lease's verbs are done: it survives whatever dies."""
    for deliveries in facts.by_seq.values():
        for delivery in deliveries:
            until = float(delivery.deadline)
            for one in facts.on(delivery):
                if one.verb is not Verb.EXTEND and one.outcome is not Outcome.REFUSED:
                    break  # it is over, or may be
                if one.outcome is Outcome.REFUSED and one.ended < until - ROUNDING_MS:
                    left = until - one.ended
                    yield f"seq {one.seq}: an {one.verb.value} was refused {left:.0f} ms before the lease's end"
                elif one.verb is Verb.EXTEND and one.outcome is Outcome.DONE:
                    until = one.deadline


RULES: Final[tuple[Callable[[Facts], Iterable[str]], ...]] = (
    lost,
    invented,
    duplicated,
    torn,
    reused,
    mistimed,
    early,
    late,
    undone,
    stale,
    unknown,
    refused,
)


def _merged(outages: Iterable[Outage]) -> list[Outage]:
    merged: list[Outage] = []
    for outage in sorted(outages, key=lambda outage: outage.began):
        if merged and outage.began <= merged[-1].ended:
            merged[-1] = Outage(merged[-1].began, max(merged[-1].ended, outage.ended))
        else:
            merged.append(outage)
    return merged


def _overlap(outages: Iterable[Outage], start: float, end: float) -> float:
    return sum(max(0.0, min(outage.ended, end) - max(outage.began, start)) for outage in outages)
