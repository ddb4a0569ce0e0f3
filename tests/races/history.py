"""What a storm's history must not show: the ledger, what clients were told, and what is left in the table. Pure.

Each rule is a function of the history and has a bad one of its own in test_history.py. Times are in µs since 1970 by
the database's clock; those of clients were translated to it, and are right to CLOCKS_US.

A verb compares a deadline with the start of its statement, which no client knows: it lies between `sent` and
`answered`. A rule about deadlines counts only what is true of every moment between those.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

CLOCKS_US: Final = 3_000
ROUNDING_US: Final = 1_000  # answers carry whole milliseconds

ENDS: Final = frozenset({"acked", "dead_lettered", "failed", "expired", "deleted"})
KEPT: Final = frozenset({"failed", "expired"})  # ended, and still in the table
HOLDERS_OWN: Final = frozenset({"acked", "released", "extended"})
EFFECTS: Final = {
    "ack": frozenset({"acked"}),
    "nack": frozenset({"released", "dead_lettered", "failed"}),
    "extend": frozenset({"extended"}),
}

Name = tuple[str, int]  # a job: topic and seq
LeaseName = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the ledger."""

    topic: str
    seq: int
    at: int
    event: str
    deliveries: int = 0
    lease: str | None = None
    until: int | None = None
    detail: str | None = None

    def __str__(self) -> str:
        return f"{self.topic} {self.seq}: {self.event}, delivery {self.deliveries}, lease {self.lease}, at {self.at}"


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A job whose enqueue was acknowledged. `ttl` in µs, 0 for none."""

    topic: str
    seq: int
    payload: bytes
    ttl: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job as a client was handed it. `deadline_ms` as the answer had it; `origin` where it died, if it did."""

    topic: str
    seq: int
    lease: str
    deliveries: int
    deadline_ms: int
    sent: int
    answered: int
    payload: bytes
    origin: Name | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One job's part in an ack, a nack or an extend, which was answered: done, or skipped. `deadline_ms`: the new one
    of an extend."""

    verb: str
    topic: str
    seq: int
    lease: str
    sent: int
    answered: int
    done: bool
    deadline_ms: int = 0


@dataclass(slots=True)
class History:
    """All of a run, in no order. `left`: what stands in the table at the end, by state. `limits`: max_deliveries by
    topic, 0 for none. `errors`: what callers were told that is no answer."""

    events: list[Event] = field(default_factory=list)
    enqueued: list[Enqueued] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    left: list[tuple[str, int, str]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Lease:
    """A claim, the extensions that followed it, and what came next."""

    claimed: Event
    extended: list[Event] = field(default_factory=list)
    closed: Event | None = None

    @property
    def deadlines(self) -> list[Event]:
        """What has set its deadline, in order."""
        return [self.claimed, *self.extended]


class Facts:
    """A history, looked up by job and by lease."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.jobs: dict[Name, list[Event]] = defaultdict(list)
        for event in sorted(history.events, key=lambda event: event.at):
            self.jobs[event.topic, event.seq].append(event)
        self.leases: dict[LeaseName, Lease] = {}
        for job in self.jobs.values():
            self._leases_of(job)
        self.calls: dict[LeaseName, list[Call]] = defaultdict(list)
        for call in history.calls:
            self.calls[call.topic, call.seq, call.lease].append(call)
        # When a client was told of an extension. Its own line is older: the commit comes after it.
        self.told: dict[Event, int] = {}
        for call in history.calls:
            effect = self.effect(call) if call.verb == "extend" and call.done else None
            if effect is not None:
                self.told[effect] = call.answered
        self.left = {(topic, seq): state for topic, seq, state in history.left}
        self.heirs: dict[str, list[Event]] = defaultdict(list)  # arrivals of dead letters, by what they say of it
        for event in history.events:
            if event.event == "enqueued" and event.detail is not None:
                self.heirs[event.detail].append(event)

    def _leases_of(self, job: list[Event]) -> None:
        current: Lease | None = None
        for event in job:
            if event.event == "extended":
                if current is not None:
                    current.extended.append(event)
                continue
            if current is not None:
                current.closed = event
            current = None
            if event.event == "claimed":
                current = Lease(event)
                self.leases.setdefault((event.topic, event.seq, event.lease or ""), current)

    def ends(self, name: Name) -> list[Event]:
        """The ends that a job has found. Retention's deletion is none for what had ended before."""
        ends = [event for event in self.jobs.get(name, ()) if event.event in ENDS]
        if len(ends) == 2 and ends[0].event in KEPT and ends[1].event == "deleted":
            return ends[:1]
        return ends

    def effect(self, call: Call) -> Event | None:
        """What the ledger says was done by a call of this verb, at its time, with its lease."""
        lease = self.leases.get((call.topic, call.seq, call.lease))
        if lease is None:
            return None
        for event in [*lease.extended, *([lease.closed] if lease.closed else [])]:
            during = call.sent - CLOCKS_US <= event.at <= call.answered + CLOCKS_US
            told = call.verb != "extend" or abs((event.until or 0) - call.deadline_ms * 1_000) <= ROUNDING_US
            if event.event in EFFECTS[call.verb] and event.lease == call.lease and during and told:
                return event
        return None


def check(history: History) -> list[str]:
    """Every violation, one line each; none for a history as promised."""
    facts = Facts(history)
    return [f"{rule.__name__}: {fault}" for rule in RULES for fault in rule(facts)]


def lost(facts: Facts) -> Iterator[str]:
    """What was acknowledged to its producer came to an end that the ledger knows, or is still there."""
    for one in facts.history.enqueued:
        name = one.topic, one.seq
        if not any(event.event == "enqueued" for event in facts.jobs.get(name, ())):
            yield f"{one.topic} {one.seq}: acknowledged, and the ledger does not know it"
        elif not facts.ends(name) and name not in facts.left:
            yield f"{one.topic} {one.seq}: neither ended nor there"


def orphaned(facts: Facts) -> Iterator[str]:
    """A dead letter arrives once, and whatever arrives has died."""
    dead = {f"from {event.topic} {event.seq}" for event in facts.history.events if event.event == "dead_lettered"}
    for said in dead:
        if len(facts.heirs.get(said, ())) != 1:
            yield f"the dead letter {said} arrived {len(facts.heirs.get(said, ()))} times"
    for said in facts.heirs.keys() - dead:
        yield f"a dead letter {said}, which did not die"


def misplaced(facts: Facts) -> Iterator[str]:
    """A job is in one place: ended once, or live; in the table as long as it is not gone, and as the ledger says."""
    for name, job in facts.jobs.items():
        ends = facts.ends(name)
        if [event.event for event in job].count("enqueued") != 1 or job[0].event != "enqueued":
            yield f"{name[0]} {name[1]}: was not enqueued once, and first"
        if len(ends) > 1:
            yield f"{name[0]} {name[1]}: ended as {' and '.join(event.event for event in ends)}"
        state, last = facts.left.get(name), job[-1].event
        if last in KEPT and state != last:
            yield f"{name[0]} {name[1]}: {last}, and in the table as {state}"
        elif last in ENDS - KEPT and state is not None:
            yield f"{name[0]} {name[1]}: {last}, and still there, {state}"
        elif not ends and (state is None or state in KEPT):
            yield f"{name[0]} {name[1]}: live, and in the table as {state}"
    for name in facts.left.keys() - facts.jobs.keys():
        yield f"{name[0]} {name[1]}: in the table, and not in the ledger"


def unbalanced(facts: Facts) -> Iterator[str]:
    """Enqueued = acked + dead-lettered + failed + expired + deleted + live, for each topic."""
    enqueued = Counter(event.topic for event in facts.history.events if event.event == "enqueued")
    gone = Counter(topic for topic, _, state in facts.history.left if state not in KEPT)
    for name in facts.jobs:
        gone[name[0]] += len(facts.ends(name))
    if enqueued != gone:
        yield f"enqueued {dict(enqueued)}, ended or live {dict(gone)}"


def resurrected(facts: Facts) -> Iterator[str]:
    """Nothing happens to a job that was acked, and nobody is handed it any more."""
    for job in facts.jobs.values():
        for before, after in pairwise(job):
            if before.event in ENDS and not (before.event in KEPT and after.event == "deleted"):
                yield f"after {before.event}: {after}"
    acked: dict[Name, int] = {}
    for call in facts.history.calls:
        if call.verb == "ack" and call.done:
            if (call.topic, call.seq) in acked:
                yield f"{call.topic} {call.seq}: two acks were acknowledged"
            acked[call.topic, call.seq] = call.answered
    for one in facts.history.deliveries:
        if acked.get((one.topic, one.seq), one.sent) < one.sent:
            yield f"{one.topic} {one.seq}: asked for after its ack was acknowledged, and delivered"


def overlapping(facts: Facts) -> Iterator[str]:
    """Before the deadline only the holder ends a lease; and nobody gets a job before the delay it was returned with."""
    for lease in facts.leases.values():
        after = lease.closed
        if after is None or after.event in {"acked", "released"}:
            continue
        until = (lease.extended or [lease.claimed])[-1].until or 0
        if after.event in EFFECTS["nack"] and after.at <= until:
            calls = facts.calls.get((after.topic, after.seq, lease.claimed.lease or ""), ())
            if any(call.verb == "nack" and call.done and call.sent - CLOCKS_US <= after.at for call in calls):
                continue
        if after.at <= until:
            yield f"{until - after.at} µs before the deadline of {lease.claimed.lease}: {after}"
    for job in facts.jobs.values():
        for before, after in pairwise(job):
            if before.event == "released" and after.event == "claimed" and after.at <= (before.until or 0):
                yield f"{(before.until or 0) - after.at} µs before its delay was over: {after}"


def miscounted(facts: Facts) -> Iterator[str]:
    """A claim is one delivery more. Only a caller who had gone, and so was handed nothing, gives it back."""
    handed = {(one.topic, one.seq, one.lease) for one in facts.history.deliveries}
    for job in facts.jobs.values():
        for before, after in pairwise(job):
            refund = after.event == "released" and (after.topic, after.seq, after.lease) not in handed
            step = {"claimed": 1, "released": -1 if refund else 0}.get(after.event, 0)
            if after.deliveries != before.deliveries + step:
                yield f"after delivery {before.deliveries}: {after}"


def exceeded(facts: Facts) -> Iterator[str]:
    """No job is delivered more often than its topic allows, and none is given up before."""
    for event in facts.history.events:
        limit = facts.history.limits.get(event.topic, 0)
        if limit and event.event == "claimed" and event.deliveries > limit:
            yield f"of {limit} deliveries: {event}"
        if event.event in {"dead_lettered", "failed"} and (not limit or event.deliveries < limit):
            yield f"of {limit} deliveries: {event}"


def reused(facts: Facts) -> Iterator[str]:
    """A lease is handed out once."""
    claimed = Counter((e.topic, e.seq, e.lease) for e in facts.history.events if e.event == "claimed")
    handed = Counter((one.topic, one.seq, one.lease) for one in facts.history.deliveries)
    for (topic, seq, lease), times in [*claimed.items(), *handed.items()]:
        if times > 1 or lease is None:
            yield f"{topic} {seq}: {times} times {lease}"


def stale(facts: Facts) -> Iterator[str]:
    """Only the job's newest lease does anything, and not for who asked after its end."""
    for job in facts.jobs.values():
        current: str | None = None
        for event in job:
            if event.event == "claimed":
                current = event.lease
            elif (event.lease is not None or event.event in HOLDERS_OWN) and (
                current is None or event.lease != current
            ):
                yield f"while the lease was {current}: {event}"
            elif event.event != "extended":
                current = None
    for call in facts.history.calls:
        lease = facts.leases.get((call.topic, call.seq, call.lease))
        effect = facts.effect(call) if call.done else None
        if lease is None or effect is None:
            continue
        until = next((one.until or 0 for one in lease.deadlines[::-1] if one.at < effect.at), 0)
        if call.sent - CLOCKS_US > until:
            yield f"{call.verb} sent {call.sent - until} µs after the lease's end: {effect}"


def unlogged(facts: Facts) -> Iterator[str]:
    """What a client was told stands in the ledger: its lease, and each verb that was done."""
    for one in facts.history.deliveries:
        lease = facts.leases.get((one.topic, one.seq, one.lease))
        if lease is None or lease.claimed.deliveries != one.deliveries:
            yield f"{one.topic} {one.seq}: delivery {one.deliveries} under {one.lease}"
        elif abs((lease.claimed.until or 0) - one.deadline_ms * 1_000) > ROUNDING_US:
            yield f"{one.topic} {one.seq}: {one.lease} until {one.deadline_ms} ms, not {lease.claimed.until} µs"
    for call in facts.history.calls:
        if call.done and facts.effect(call) is None:
            yield f"{call.topic} {call.seq}: {call.verb} under {call.lease}"


def refused(facts: Facts) -> Iterator[str]:
    """A lease that was good from when a verb was sent until it was answered does what it is asked."""
    for call in facts.history.calls:
        lease = facts.leases.get((call.topic, call.seq, call.lease))
        if call.done or lease is None:
            continue
        over = lease.closed is not None and lease.closed.at <= call.answered + CLOCKS_US
        known = [i for i, one in enumerate(lease.deadlines) if facts.told.get(one, call.sent) < call.sent]
        since = lease.deadlines[max(known, default=0) :]
        left = min(one.until or 0 for one in since if one.at <= call.answered + CLOCKS_US) - call.answered
        if not over and left > CLOCKS_US:
            yield f"{call.topic} {call.seq}: {call.verb} under {call.lease}, skipped {left} µs before its end"


def invented(facts: Facts) -> Iterator[str]:
    """What is delivered was enqueued, as it is; a dead letter, at its origin."""
    payloads = {(one.topic, one.seq): one.payload for one in facts.history.enqueued}
    for one in facts.history.deliveries:
        if payloads.get(one.origin or (one.topic, one.seq)) != one.payload:
            yield f"{one.topic} {one.seq}: {one.payload[:40]!r}"


def outlived(facts: Facts) -> Iterator[str]:
    """Who has a time to live is handed to nobody who asks after it, and nothing else expires."""
    ttls = {(one.topic, one.seq): one.ttl for one in facts.history.enqueued if one.ttl}
    for one in facts.history.deliveries:
        ttl, job = ttls.get((one.topic, one.seq)), facts.jobs.get((one.topic, one.seq))
        if ttl is not None and job and one.sent - CLOCKS_US > job[0].at + ttl:
            yield f"{one.topic} {one.seq}: asked for {one.sent - job[0].at - ttl} µs too late, and delivered"
    for event in facts.history.events:
        if event.event == "expired" and (event.topic, event.seq) not in ttls:
            yield f"without a time to live: {event}"


def troubled(facts: Facts) -> Iterable[str]:
    """Callers get answers: no deadlock and no other error reaches them."""
    return facts.history.errors


RULES: Final[tuple[Callable[[Facts], Iterable[str]], ...]] = (
    lost,
    orphaned,
    misplaced,
    unbalanced,
    resurrected,
    overlapping,
    miscounted,
    exceeded,
    reused,
    stale,
    unlogged,
    refused,
    invented,
    outlived,
    troubled,
)
