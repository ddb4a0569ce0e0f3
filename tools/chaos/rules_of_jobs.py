"""Where jobs come from and where they end: G1, G5, G7 and G8 of docs/reliability.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tools.chaos.facts import Facts
from tools.chaos.history import Enqueue, Outcome, Verb


def lost(facts: Facts) -> Iterator[str]:
    """What was acknowledged, or seen once, is there until an ack or a burial, and the queue is empty at the end."""
    ended = {
        (one.topic, one.seq)
        for one in facts.history.settlements
        if one.verb is Verb.ACK and one.outcome is not Outcome.REFUSED
    }
    ended |= {(one.topic, one.seq) for one in facts.history.burials}
    for id, jobs in facts.jobs.items():
        for job in sorted(jobs - ended):
            seen = facts.by_job.get(job, [])
            yield f"job {id} ({shown(job)}) was never acked, and it is gone; delivered {len(seen)} times"


def invented(facts: Facts) -> Iterator[str]:
    """What is delivered, or dead, was sent, by somebody, and as it is."""
    for one in facts.history.deliveries:
        if one.id not in facts.attempts:
            yield f"job {one.id} ({shown((one.topic, one.seq))}) was never sent"
        elif not one.intact:
            yield f"job {one.id} ({shown((one.topic, one.seq))}) is not what was sent"
    for burial in facts.history.burials:
        if burial.id not in facts.attempts:
            yield f"the dead letter {burial.id} ({shown((burial.topic, burial.seq))}) was never sent"


def duplicated(facts: Facts) -> Iterator[str]:
    """An enqueue makes one job; only one in doubt, tried again without a key, may have made another."""
    for id, jobs in facts.jobs.items():
        attempts = [attempt for attempt in facts.attempts.get(id, ()) if attempt.outcome is not Outcome.REFUSED]
        most = min(1, len(attempts)) if all(attempt.unique for attempt in attempts) else len(attempts)
        if id in facts.attempts and len(jobs) > most:
            what = "by one key" if len(attempts) > most else f"for {most} enqueues"
            yield f"job {id} is there {len(jobs)} times {what}, as {', '.join(map(shown, sorted(jobs)))}"


def torn(facts: Facts) -> Iterator[str]:
    """A batch is there whole or not at all."""
    for ids in {enqueue.ids for enqueue in facts.history.enqueues if not facts.topic(enqueue.topic).is_log}:
        numbers = Counter(len(facts.jobs.get(id, ())) for id in ids)
        if len(numbers) > 1:
            yield f"of the batch of jobs {ids[0]} to {ids[-1]} some are there more often than others: {dict(numbers)}"


def misplaced(facts: Facts) -> Iterator[str]:
    """A job ends in one place: done, or dead, and dead once."""
    done = {
        (one.topic, one.seq)
        for one in facts.history.settlements
        if one.verb is Verb.ACK and one.outcome is Outcome.DONE
    }
    failed = {
        (one.topic, one.seq)
        for one in facts.history.settlements
        if one.verb is Verb.FAIL and one.outcome is Outcome.DONE
    }
    buried = Counter((one.topic, one.seq) for one in facts.history.burials)
    for job, times in buried.items():
        if times > 1:
            yield f"{shown(job)} is among the dead letters {times} times"
        if job in done:
            yield f"{shown(job)} was acked, and is among the dead letters"
    for job in failed - buried.keys():
        yield f"{shown(job)} was failed, and is not among the dead letters"


def gapped(facts: Facts) -> Iterator[str]:
    """A reader of a log is told all of it once, in order; and what was acknowledged is in it, once, where it says."""
    for topic in facts.history.topics:
        if topic.is_log:
            yield from _log(facts, topic.name)


def _log(facts: Facts, topic: str) -> Iterator[str]:
    told: dict[str, list[tuple[int, int]]] = defaultdict(list)
    readings = (one for one in facts.history.readings if one.topic == topic)
    for reading in sorted(readings, key=lambda reading: reading.at):
        told[reading.reader] += reading.records
    log = told.pop("", [])
    at = dict(log)
    times = Counter(id for _, id in log)
    appends = [one for one in facts.history.enqueues if one.topic == topic]
    attempts: dict[int, list[Enqueue]] = defaultdict(list)
    for one in appends:
        for place, id in enumerate(one.ids):
            attempts[id].append(one)
            if one.outcome is Outcome.DONE and at.get(one.seqs[place]) != id:
                yield f"record {id} of {topic} is not at its place {one.seqs[place]} any more"
    for id, found in times.items():
        maybe = [one for one in attempts[id] if one.outcome is not Outcome.REFUSED]
        most = min(1, len(maybe)) if all(one.unique for one in maybe) else len(maybe)
        if found > most:
            yield f"record {id} of {topic} is there {found} times, for {most} appends"
    if [seq for seq, _ in log] != sorted(at):
        yield f"{topic} is not read in the order of its seqs"
    for reader, records in told.items():
        if records == log:
            continue
        had = set(records)
        missed, again = [one for one in log if one not in had], len(records) - len(had)
        what = f"missed {len(missed)} of {len(log)}" if missed else f"was told {again} twice" if again else "has others"
        yield f"reader {reader} of {topic} {what}: {missed[:3]}"


def shown(job: tuple[str, int]) -> str:
    """A job for a reader."""
    topic, seq = job
    return f"seq {seq} of {topic}" if topic else f"seq {seq}"
