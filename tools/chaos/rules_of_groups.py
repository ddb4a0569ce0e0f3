"""Groups: G6 of docs/reliability.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tools.chaos.facts import ROUNDING_MS, Facts
from tools.chaos.history import Delivery, Outcome
from tools.chaos.rules_of_jobs import shown


def overlapped(facts: Facts) -> Iterator[str]:
    """At most one job of a group is out at a time."""
    for group, deliveries in _by_group(facts).items():
        deliveries.sort(key=lambda delivery: delivery.claimed)
        for before, after in pairwise(deliveries):
            if before.seq != after.seq and after.claimed < facts.given_up(before) - ROUNDING_MS:
                until = facts.given_up(before) - after.claimed
                yield f"group {group[1]}: {shown((after.topic, after.seq))} came out {until:.0f} ms too soon"


def disordered(facts: Facts) -> Iterator[str]:
    """A job of a group comes out when all that were enqueued before it are done, and seqs are in the order of
    enqueueing."""
    for group, deliveries in _by_group(facts).items():
        first: dict[int, Delivery] = {}
        for delivery in sorted(deliveries, key=lambda delivery: delivery.claimed):
            first.setdefault(delivery.seq, delivery)
        for before, after in pairwise(sorted(first)):
            done = facts.settled((group[0], before))
            begun = first[after].claimed
            if done is not None and begun < done - ROUNDING_MS:
                yield f"group {group[1]}: seq {after} came out {done - begun:.0f} ms before seq {before} was acked"
    yield from _out_of_turn(facts)


def _out_of_turn(facts: Facts) -> Iterator[str]:
    """Of two enqueues to a group, one answered before the other was sent, the first has the lower seqs."""
    newest: dict[tuple[str, str], tuple[int, float]] = {}
    done = [one for one in facts.history.enqueues if one.groups and one.outcome is Outcome.DONE]
    seen: set[int] = set()
    for one in sorted(done, key=lambda one: one.sent):
        for id, group, seq in zip(one.ids, one.groups, one.seqs, strict=True):
            if id in seen:
                continue  # tried again
            seen.add(id)
            last, ended = newest.get((one.topic, group), (0, 0.0))
            if ended < one.sent and seq < last:
                yield f"group {group}: seq {seq} of {one.topic} was enqueued after seq {last}"
            if seq > last:
                newest[one.topic, group] = seq, one.ended


def _by_group(facts: Facts) -> dict[tuple[str, str], list[Delivery]]:
    groups: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
    for delivery in facts.history.deliveries:
        group = facts.groups.get(delivery.id)
        if group is not None:
            groups[delivery.topic, group].append(delivery)
    return groups
