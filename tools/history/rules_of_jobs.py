"""Where jobs come from and where they end: G1, G5, G7 and G8 of docs/reliability.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from tools.history.facts import Facts, Job
from tools.history.history import Burial, Enqueue, Outcome, Verb
from tools.history.ledger import KEPT

# Where a job is in the table, by what the ledger says of it last.
STATES: Final = {"waiting": {"ready", "scheduled", "blocked"}, "leased": {"leased"}} | {word: {word} for word in KEPT}
TAKEN_OUT: Final = ("deleted", "cancelled", "expired")


def lost(facts: Facts) -> Iterator[str]:
    """What was acknowledged, or seen once, is there until it ends, and the ledger knows of it, if there is one."""
    ended = {
        (one.topic, one.seq)
        for one in facts.history.settlements
        if one.verb is Verb.ACK and one.outcome is not Outcome.REFUSED
    }
    ended |= {(one.topic, one.seq) for one in facts.history.burials}
    if facts.ledger:
        ended = {job for job, track in facts.tracks.items() if track.word not in STATES or track.word in KEPT}
    there = {(row.topic, row.seq) for row in facts.history.rows}
    for id, jobs in facts.jobs.items():
        for job in sorted(jobs - ended - there):
            seen = facts.by_job.get(job, [])
            yield f"job {id} ({shown(job)}) has not ended, and it is gone; delivered {len(seen)} times"
        for job in sorted(jobs - facts.tracks.keys() if facts.ledger else ()):
            yield f"job {id} ({shown(job)}) is not in the ledger"


def invented(facts: Facts) -> Iterator[str]:
    """What is delivered, or dead, was sent, by somebody, and as it is; a dead letter, as the job that died."""
    for one in facts.history.deliveries:
        if one.id not in facts.attempts:
            yield f"job {one.id} ({shown((one.topic, one.seq))}) was never sent"
        elif not one.intact or (one.origin is not None and one.origin not in facts.jobs[one.id]):
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
    """A job is in one place: waiting, out, done or dead, and dead once. The table has it as the ledger says."""
    done, failed = (
        {(one.topic, one.seq) for one in facts.history.settlements if one.verb is verb and one.outcome is Outcome.DONE}
        for verb in (Verb.ACK, Verb.FAIL)
    )
    buried = Counter((one.topic, one.seq) for one in _burials(facts))
    for job, times in buried.items():
        returns = sum(event.event == "requeued" for event in facts.ledger.get(job, ()))
        if times > 1 + returns:
            yield f"{shown(job)} is among the dead letters {times} times"
        if job in done and not returns:
            yield f"{shown(job)} was acked, and is among the dead letters"
    dead = {job for job, events in facts.ledger.items() if any(event.event == "dead_lettered" for event in events)}
    ended = {job for job in failed if not any(event.event == "failed" for event in facts.ledger.get(job, ()))}
    for job in (ended | dead) - buried.keys():
        yield f"{shown(job)} was failed, and is not among the dead letters"
    if facts.ledger:
        for job in buried.keys() - dead:
            yield f"{shown(job)} is among the dead letters, and did not die"
        yield from _elsewhere(facts)


def _burials(facts: Facts) -> Iterator[Burial]:
    """Dead letters, by the jobs that died: those that were found, and those of whose arrival the ledger tells."""
    yield from facts.history.burials
    for event in facts.history.events:
        if event.event == "enqueued" and (event.detail or "").startswith("from "):
            _, topic, seq = str(event.detail).split(" ")
            yield Burial(0, int(seq), topic)


def _elsewhere(facts: Facts) -> Iterator[str]:
    """Of the ledger and the table, what one has and the other has not."""
    there = {(row.topic, row.seq): row.state for row in facts.history.rows}
    for job in facts.tracks.keys() | there.keys():
        word, state = facts.tracks[job].word if job in facts.tracks else "never enqueued", there.get(job)
        if state not in STATES.get(word, {None}):
            yield f"{shown(job)} is {word} by the ledger, and in the table {state or 'not'}"


def outlived(facts: Facts) -> Iterator[str]:
    """A job with a time to live is handed to nobody who asks after it, and no other expires."""
    over: dict[Job, float] = {}
    for one in facts.history.enqueues:
        for seq, ttl in zip(one.seqs, one.ttls, strict=False):
            if ttl:
                arrival = next((event.at for event in facts.ledger.get((one.topic, seq), ())), one.ended)
                over[one.topic, seq] = arrival + ttl
    for delivery in facts.history.deliveries:
        job = delivery.topic, delivery.seq
        if job in over and not facts.moved(job) and delivery.sent - facts.slack > over[job]:
            yield f"{shown(job)} was asked for {delivery.sent - over[job]:.0f} ms too late, and delivered"
    for event in facts.history.events:
        if event.event == "expired" and (event.topic, event.seq) not in over:
            yield f"without a time to live: {event}"


def forgotten(facts: Facts) -> Iterator[str]:
    """The newest record of a key was delivered, is there, or was taken out on purpose: an older one never ends it."""
    newest: dict[tuple[str, str], tuple[Job | None, int, float]] = {}
    for one in sorted(facts.history.enqueues, key=lambda one: one.sent):
        for id, seq, key in zip(one.ids, one.seqs, one.keys, strict=False):
            if key is not None:
                known = newest.get((one.topic, key))
                sure = known is None or known[2] < one.sent  # else nobody knows which of the two came second
                newest[one.topic, key] = (one.topic, seq) if sure else None, id, one.ended
    kept = {one.id for one in facts.history.deliveries} | {row.id for row in facts.history.rows}
    taken = {(event.topic, event.seq) for event in facts.history.events if event.event in TAKEN_OUT}
    for (topic, key), (job, id, _) in newest.items():
        if job is not None and id not in kept and job not in taken:
            yield f"job {id} ({shown(job)}) is the newest of key {key} of {topic}, and nobody ever had it"


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
