"""A history, looked up by job and by lease: what the rules go by."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from tools.history.history import Delivery, Enqueue, Event, History, Outage, Outcome, Settlement, Topic, Verb
from tools.history.ledger import Lease, Track, leases, replay

LATE_MS: Final = 1000.0  # how long after its time a job may wait for an idle worker, while the service is there
ROUNDING_MS: Final = 1.0  # answers carry whole milliseconds
PAUSED: Final = "the machine stood still"  # an outage that is nobody's

Job = tuple[str, int]  # topic and seq


class Facts:
    """Deliveries of a job are in order, and so are the settlements of a lease."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.topics = {topic.name: topic for topic in history.topics}
        self.attempts: dict[int, list[Enqueue]] = defaultdict(list)
        self.jobs: dict[int, set[Job]] = defaultdict(set)  # by the id in the payload
        self.by_job: dict[Job, list[Delivery]] = defaultdict(list)
        self.by_lease: dict[tuple[str, int, str], list[Settlement]] = defaultdict(list)
        self.groups: dict[int, str] = {}
        self.outages = _merged(history.outages)
        self.late_ms = LATE_MS * history.patience
        self.slack = ROUNDING_MS + history.skew
        self._read_ledger()
        for enqueue in history.enqueues:
            if self.topic(enqueue.topic).is_log:
                continue
            self.groups.update((id, group) for id, group in zip(enqueue.ids, enqueue.groups, strict=False) if group)
            for place, id in enumerate(enqueue.ids):
                self.attempts[id].append(enqueue)
                if enqueue.outcome is Outcome.DONE:
                    self.jobs[id].add((enqueue.topic, enqueue.seqs[place]))
        for delivery in history.deliveries:
            job = delivery.topic, delivery.seq
            if delivery.origin is None:
                self.jobs[delivery.id].add(job)
            self.by_job[job].append(delivery)
        for burial in history.burials:
            self.jobs[burial.id].add((burial.topic, burial.seq))
        for deliveries in self.by_job.values():
            deliveries.sort(key=lambda delivery: (delivery.claimed, delivery.number))
        for settlement in history.settlements:
            self.by_lease[settlement.topic, settlement.seq, settlement.lease].append(settlement)
        for settlements in self.by_lease.values():
            settlements.sort(key=lambda settlement: settlement.sent)

    def _read_ledger(self) -> None:
        self.ledger: dict[Job, list[Event]] = defaultdict(list)
        for event in sorted(self.history.events, key=lambda event: event.at):
            self.ledger[event.topic, event.seq].append(event)
        self.tracks: dict[Job, Track] = {}
        self.impossible: list[str] = []  # what the ledger tells that can't be
        self.leases: dict[tuple[str, int, str], Lease] = {}
        for job, events in self.ledger.items():
            self.tracks[job] = replay(events, self.impossible)
            for lease in leases(events):
                self.leases.setdefault((*job, lease.claimed.lease or ""), lease)

    @cached_property
    def answered(self) -> dict[str, list[float]]:
        """When calls were answered with success, by what they were, in order."""
        history, done = self.history, Outcome.DONE
        acks = {one.ended for one in history.settlements if one.verb is Verb.ACK and one.outcome is done}
        return {
            "enqueue": sorted(one.ended for one in history.enqueues if one.outcome is done),
            "claim": sorted(one.ended for one in history.claims if one.outcome is done),
            "ack": sorted(acks),
        }

    def topic(self, name: str) -> Topic:
        return self.topics.get(name) or Topic(name)

    def on(self, delivery: Delivery) -> list[Settlement]:
        """What was done with its lease, in order."""
        return self.by_lease.get((delivery.topic, delivery.seq, delivery.lease), [])

    def moved(self, job: Job) -> bool:
        """Whether it came back from its end, or was written anew: it does not go by how it was enqueued any more."""
        return any(event.event in ("requeued", "updated") for event in self.ledger.get(job, ()))

    def lease(self, one: Delivery | Settlement) -> Lease | None:
        """What the ledger says of a lease."""
        return self.leases.get((one.topic, one.seq, one.lease))

    def held_until(self, delivery: Delivery) -> float:
        """Nobody else may have it before. An extension in doubt may hold it longer, and never shorter."""
        until = float(delivery.deadline)
        for one in self.on(delivery):
            if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE:
                until = one.deadline
            elif one.verb is Verb.NACK and one.outcome is Outcome.DONE:
                return one.sent + one.delay_ms
            elif one.verb is Verb.NACK and one.outcome is Outcome.IN_DOUBT:
                return min(until, one.sent + one.delay_ms)
        return until

    def free_from(self, delivery: Delivery) -> float:
        """From then on it may be claimed, whatever became of what is in doubt."""
        until = float(delivery.deadline)
        for one in self.on(delivery):
            if one.verb is Verb.EXTEND and one.outcome is Outcome.DONE:
                until = one.deadline
            elif one.verb is Verb.EXTEND and one.outcome is Outcome.IN_DOUBT:
                until = max(until, one.ended + (one.lease_ms or delivery.lease_ms))
            elif one.verb is Verb.NACK and one.outcome is Outcome.IN_DOUBT:
                until = max(until, one.ended + one.delay_ms)
            elif one.verb is Verb.NACK and one.outcome is Outcome.DONE:
                return one.ended + one.delay_ms
        return until

    def given_up(self, delivery: Delivery) -> float:
        """The first moment at which it may be over for good or for now: somebody has settled it, or its time is up."""
        over = (one.sent for one in self.on(delivery) if one.verb is not Verb.EXTEND and _maybe(one))
        return min([self.held_until(delivery), *over])

    def settled(self, job: Job) -> float | None:
        """The first moment at which it may have been acked; None if it never was."""
        acks = (one for delivery in self.by_job.get(job, ()) for one in self.on(delivery) if one.verb is Verb.ACK)
        return min((one.sent for one in acks if _maybe(one)), default=None)

    def away(self, start: float, end: float) -> float:
        """For how many ms between the two the service was away, or the machine stood still."""
        return overlap(self.outages, start, end)


def overlap(outages: list[Outage], start: float, end: float) -> float:
    """For how many ms between the two. The outages are in order, and apart."""
    total = 0.0
    at = max(0, bisect_left(outages, start, key=lambda outage: outage.began) - 1)
    while at < len(outages) and outages[at].began < end:
        total += max(0.0, min(outages[at].ended, end) - max(outages[at].began, start))
        at += 1
    return total


def _maybe(one: Settlement) -> bool:
    return one.outcome is not Outcome.REFUSED


def _merged(outages: Iterable[Outage]) -> list[Outage]:
    merged: list[Outage] = []
    for outage in sorted(outages, key=lambda outage: outage.began):
        if merged and outage.began <= merged[-1].ended:
            merged[-1] = Outage(merged[-1].began, max(merged[-1].ended, outage.ended))
        else:
            merged.append(outage)
    return merged
