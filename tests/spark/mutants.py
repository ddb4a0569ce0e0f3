"""Histories with one thing wrong each: what a queue with that bug would have written, made from what this one wrote."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

Event = dict[str, Any]
Job = list[Event]
Key = tuple[int, int]  # topic id and seq
Faults = set[tuple[str, Key]]

TICK = timedelta(microseconds=1)
WORKED = {"enqueued", "unblocked", "claimed", "extended", "released", "acked"}


@dataclass
class Ledger:
    """Events by job, in order. A mutant takes jobs that no other has touched; `live` are those in the table of jobs,
    `topics` the ids of the topics that there still are."""

    jobs: dict[Key, Job]
    live: set[Key]
    topics: set[int]
    dice: random.Random
    used: set[Key] = field(default_factory=set)

    def take(self, fits: Callable[[Key, Job], object]) -> tuple[Key, Job]:
        """A job at random. Fails if there is none: then the mixed load lacks something."""
        found = [key for key, job in self.jobs.items() if key not in self.used and fits(key, job)]
        assert found, "no job is fit for this mutant"
        key = self.dice.choice(found)
        self.used.add(key)
        return key, self.jobs[key]

    def events(self) -> Iterable[Event]:
        return (event for job in self.jobs.values() for event in job)


def words(job: Job) -> list[str]:
    return [event["event"] for event in job]


def worked(job: Job, topic: str | None = None) -> bool:
    """Enqueued, claimed once and acked; in no group."""
    alone = job[0]["grp"] is None and (topic is None or job[0]["topic"] == topic)
    return bool(alone and words(job) == ["enqueued", "claimed", "acked"])


def lost(ledger: Ledger) -> Faults:
    """The row of a job is gone, and nothing says so."""
    key, job = ledger.take(lambda _, job: worked(job))
    job.pop()
    return {("lost", key)}


def lost_in_a_group(ledger: Ledger) -> Faults:
    """A blocked job vanishes."""
    key, job = ledger.take(lambda _, job: words(job) == ["enqueued", "unblocked", "claimed", "acked"])
    del job[1:]
    later = {other for other, its in ledger.jobs.items() if same_group(job, its) and other[1] > key[1]}
    ledger.used |= later
    passed = any(comes_out(event) and event["at"] > job[0]["at"] for other in later for event in ledger.jobs[other])
    return {("lost", key)} | {("overtaken", key) for _ in range(passed)}


def undead(ledger: Ledger) -> Faults:
    """The row is still there after the end."""
    key, job = ledger.take(lambda key, job: key in ledger.live and words(job) == ["enqueued"] and not job[0]["grp"])
    job.append({**job[-1], "event": "deleted", "at": job[-1]["at"] + TICK, "until": None, "detail": "was ready"})
    return {("undead", key)}


def unmoved(ledger: Ledger) -> Faults:
    """A job leaves for the dead letters, and does not arrive."""
    key, job = ledger.take(lambda key, job: key in ledger.live and is_letter(job) and len(job) == 1)
    source = next(k for k, its in ledger.jobs.items() if f"from {its[0]['topic']} {k[1]}" == job[0]["detail"])
    ledger.used.add(source)
    del ledger.jobs[key]
    return {("unmoved", source)}


def unheralded(ledger: Ledger) -> Faults:
    """A dead letter that is also still where it came from: the move was no move."""
    key, job = ledger.take(lambda key, job: key in ledger.live and is_letter(job) and len(job) == 1)
    job[0]["detail"] += "7"
    source = next(k for k, its in ledger.jobs.items() if f"from {its[0]['topic']} {k[1]}7" == job[0]["detail"])
    ledger.used.add(source)
    return {("unheralded", key), ("unmoved", source)}


def unborn(ledger: Ledger) -> Faults:
    """A job that nobody enqueued. Of a topic that is gone nobody knows whether all of its events are there."""
    key, job = ledger.take(lambda key, job: key[0] in ledger.topics and worked(job))
    job.pop(0)
    return {("unborn", key)}


def reborn(ledger: Ledger) -> Faults:
    """One seq is given to two jobs."""
    key, job = ledger.take(lambda _, job: worked(job))
    job.insert(1, {**job[0], "at": job[0]["at"] + TICK})
    return {("reborn", key)}


def resurrected(ledger: Ledger) -> Faults:
    """What was acked is claimed, and acked again."""
    key, job = ledger.take(lambda _, job: worked(job))
    again = {"deliveries": 2, "lease_id": str(uuid.uuid4())}
    job += [{**job[1], **again, "at": job[2]["at"] + TICK}, {**job[2], **again, "at": job[2]["at"] + 2 * TICK}]
    return {("resurrected", key)}


def overlap(ledger: Ledger) -> Faults:
    """A lease was longer than the next claim thought."""
    key, job = ledger.take(lambda _, job: silent(job) is not None)
    at = silent(job)
    assert at is not None
    job[at]["until"] = job[at + 1]["at"] + TICK
    return {("overlap", key)}


def claimed_twice_at_once(ledger: Ledger) -> Faults:
    """Two workers get one job."""
    key, job = ledger.take(lambda _, job: worked(job))
    second = {"deliveries": 2, "lease_id": str(uuid.uuid4())}
    job.insert(2, {**job[1], **second, "at": job[1]["at"] + TICK})
    job[3].update(second)
    return {("overlap", key)}


def extended_away(ledger: Ledger) -> Faults:
    """An extension is answered, and another claim does not look at it."""
    key, job = ledger.take(lambda _, job: silent(job) is not None)
    at = silent(job)
    assert at is not None
    claim = job[at]
    longer = {"event": "extended", "at": claim["at"] + TICK, "until": job[at + 1]["at"] + timedelta(seconds=9)}
    job.insert(at + 1, {**claim, **longer})
    return {("overlap", key)}


def early(ledger: Ledger) -> Faults:
    """A delay is not kept."""
    key, job = ledger.take(lambda _, job: "released" in words(job)[:-1])
    at = words(job).index("released")
    following = next((event for event in job[at + 1 :] if event["event"] == "claimed"), None)
    if following is None:
        return early(ledger)
    job[at]["until"] = following["at"] + TICK
    return {("early", key)}


def blocked(ledger: Ledger) -> Faults:
    """A claim takes a job whose turn it is not."""
    key, job = ledger.take(lambda _, job: words(job) == ["enqueued", "unblocked", "claimed", "acked"])
    del job[1]
    return {("blocked", key)}


def foreign(ledger: Ledger) -> Faults:
    """An ack by somebody who does not hold the job counts."""
    key, job = ledger.take(lambda _, job: worked(job))
    job[-1]["lease_id"] = str(uuid.uuid4())
    return {("foreign", key)}


def shielded(ledger: Ledger) -> Faults:
    """A job expires under its holder."""
    key, job = ledger.take(lambda _, job: words(job) == ["enqueued", "expired"])
    lease = {"deliveries": 1, "lease_id": str(uuid.uuid4()), "node": "w"}
    until = job[1]["at"] + timedelta(seconds=1)
    claim = {**job[1], **lease, "event": "claimed", "at": job[1]["at"] - TICK, "until": until}
    job[1].update(lease)
    job.insert(1, claim)
    return {("shielded", key)}


def miscounted(ledger: Ledger) -> Faults:
    """A delivery counts twice."""
    key, job = ledger.take(lambda _, job: worked(job, "mail"))
    for event in job[1:]:
        event["deliveries"] += 1
    return {("miscounted", key)}


def exceeded(ledger: Ledger) -> Faults:
    """A topic gives a job one delivery more than it allows."""
    return one_too_many(*ledger.take(lambda _, job: worked(job, "payments")), most=2)


def exceeded_its_own(ledger: Ledger) -> Faults:
    """And the same of a limit of the job's own."""
    own = ledger.take(lambda _, job: worked(job, "imports") and job[0]["max_deliveries"] == 1)
    return one_too_many(*own, most=1)


def together(ledger: Ledger) -> Faults:
    """The next one of a group comes out before the one before it is done."""
    key, job = ledger.take(
        lambda key, job: set(words(job)) <= WORKED and words(job)[-1] == "acked" and follower(ledger, key) is not None
    )
    after = follower(ledger, key)
    assert after is not None
    ledger.used.add(after)
    ended = job[-1]["at"]
    outs = [event["at"] for event in ledger.jobs[after] if event["event"] == "unblocked" and event["at"] >= ended]
    job[-1]["at"] = outs[0] + TICK
    return {("together", after)}


def overtaken(ledger: Ledger) -> Faults:
    """Two of a group come out in the wrong order: each lives the other's life."""
    plain = ["enqueued", "unblocked", "claimed", "acked"]

    def second(key: Key) -> Key | None:
        other = follower(ledger, key)
        fits = other is not None and words(ledger.jobs[other]) == plain
        return other if fits and ledger.jobs[other][0]["at"] < ledger.jobs[key][1]["at"] else None  # type: ignore[index]

    key, job = ledger.take(lambda key, job: words(job) == plain and second(key) is not None)
    other = second(key)
    assert other is not None
    ledger.used.add(other)
    theirs = ledger.jobs[other]
    job[1:], theirs[1:] = ([{**event, "seq": s} for event in its[1:]] for its, s in ((theirs, key[1]), (job, other[1])))
    return {("overtaken", key)}


# Those first that need two jobs in a row of a group, and last the one that uses up a whole group.
MUTANTS: tuple[Callable[[Ledger], Faults], ...] = (
    overtaken, together, lost, undead, unmoved, unheralded, unborn, reborn, resurrected, overlap, claimed_twice_at_once,
    extended_away, early, blocked, foreign, shielded, miscounted, exceeded, exceeded_its_own, lost_in_a_group,
)  # fmt: skip


def is_letter(job: Job) -> bool:
    return str(job[0]["topic"]) == "imports.dlq"


def silent(job: Job) -> int | None:
    """The place of a claim whose lease ended in silence, before another claim."""
    return next((i for i, pair in enumerate(pairwise(words(job))) if pair == ("claimed", "claimed")), None)


def same_group(one: Job, other: Job) -> bool:
    return one[0]["grp"] is not None and all(one[0][name] == other[0][name] for name in ("topic_id", "tenant", "grp"))


def follower(ledger: Ledger, key: Key) -> Key | None:
    """The job whose turn came next when this one of a group had ended, if it was blocked until then, and is unused."""
    job = ledger.jobs[key]
    if job[0]["grp"] is None:
        return None
    outs = sorted(
        (event["at"], other[1], event["event"], other)
        for other, its in ledger.jobs.items()
        if other != key and same_group(job, its)
        for event in its
        if comes_out(event) and event["at"] >= job[-1]["at"]
    )
    return outs[0][3] if outs and outs[0][2] == "unblocked" and outs[0][3] not in ledger.used else None


def comes_out(event: Event) -> bool:
    """Whether a job's turn in its group comes by this event: one that finds nobody out comes without being blocked."""
    if event["event"] == "enqueued":
        return not str(event["detail"]).endswith("blocked")
    if event["event"] == "requeued":
        return event["until"] is not None and not str(event["detail"]).startswith("to ")
    return bool(event["event"] == "unblocked")


def one_too_many(key: Key, job: Job, *, most: int) -> Faults:
    """A job that was claimed and acked, with so many deliveries that failed before."""
    enqueued, claim, ack = job
    job[1:] = []
    for number in range(1, most + 1):
        lease = {"deliveries": number, "lease_id": str(uuid.uuid4())}
        at = enqueued["at"] + 2 * number * TICK
        job.append({**claim, **lease, "at": at})
        job.append({**ack, **lease, "event": "released", "at": at + TICK, "until": at + TICK})
    for event in (claim, ack):
        job.append({**event, "deliveries": most + 1})
    return {("exceeded", key)}
