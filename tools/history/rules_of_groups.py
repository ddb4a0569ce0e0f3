"""Groups: G6 of docs/reliability.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from tools.history.facts import ROUNDING_MS, Facts, Job
from tools.history.history import Event, Outcome
from tools.history.ledger import MARKED, leads_out
from tools.history.rules_of_jobs import shown


@dataclass(frozen=True, slots=True)
class Turn:
    """A claim of a job of a group; `over`: from when on another one may come out."""

    job: Job
    claimed: float
    over: float


def overlapped(facts: Facts) -> Iterator[str]:
    """At most one job of a group is out at a time; by the ledger, until it has left the group."""
    for group, turns in _turns(facts).items():
        for before, after in pairwise(turns):
            if before.job != after.job and after.claimed < before.over - ROUNDING_MS:
                left = before.over - after.claimed
                yield f"group {group[1]}: {shown(after.job)} came out {left:.0f} ms before {shown(before.job)} was over"


def disordered(facts: Facts) -> Iterator[str]:
    """Nothing comes out of a group behind a later job, and seqs are in the order of enqueueing. What is requeued comes
    when it comes."""
    for group, turns in _turns(facts).items():
        last = 0
        requeued = any(event.event == "requeued" for turn in turns for event in facts.ledger.get(turn.job, ()))
        for turn in turns if not requeued else ():
            if turn.job[1] < last:
                yield f"group {group[1]}: {shown(turn.job)} came out behind seq {last}"
            last = max(last, turn.job[1])
    yield from _out_of_turn(facts)


def _out_of_turn(facts: Facts) -> Iterator[str]:
    """Of two enqueues to a group, one answered before the other was sent, the first has the lower seqs."""
    newest: dict[tuple[str, str], tuple[int, float]] = {}
    # A record with a key may be written into a job that waits already.
    done = [one for one in facts.history.enqueues if one.groups and not one.keys and one.outcome is Outcome.DONE]
    seen: set[int] = set()
    for one in sorted(done, key=lambda one: one.sent):
        for id, group, seq in zip(one.ids, one.groups, one.seqs, strict=True):
            if id in seen or group is None:
                continue  # tried again, or of no group
            seen.add(id)
            last, ended = newest.get((one.topic, group), (0, 0.0))
            if ended < one.sent and seq < last:
                yield f"group {group}: seq {seq} of {one.topic} was enqueued after seq {last}"
            if seq > last:
                newest[one.topic, group] = seq, one.ended


def _turns(facts: Facts) -> dict[tuple[str, str], list[Turn]]:
    """By topic and group, in order."""
    groups: dict[tuple[str, str], list[Turn]] = defaultdict(list)
    for id, group in facts.groups.items():
        for job in facts.jobs[id]:
            groups[job[0], group] += _by_ledger(facts.ledger[job]) if facts.ledger else _by_clients(facts, job)
    return {group: sorted(set(turns), key=lambda turn: turn.claimed) for group, turns in groups.items()}


def _by_ledger(events: list[Event]) -> Iterator[Turn]:
    over = inf
    for event in reversed(events):
        if leads_out(event) or event.detail == MARKED:
            over = event.at
        elif event.event == "claimed":
            yield Turn((event.topic, event.seq), event.at, over)


def _by_clients(facts: Facts, job: Job) -> Iterator[Turn]:
    for delivery in facts.by_job.get(job, ()):
        yield Turn(job, delivery.claimed, facts.given_up(delivery))
