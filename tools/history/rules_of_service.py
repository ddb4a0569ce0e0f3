"""How the service and its database did meanwhile: G10 of docs/reliability.md, and what faults may cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tools.history.facts import PAUSED, Facts, overlap
from tools.history.history import Outage

AWAY_MS: Final = 5000.0  # for so long after a fault nobody may get an answer
# That a server says nothing a call learns when its own time is up, app.base.db.pool.COMMAND_SECONDS; then it connects.
SILENT_MS: Final = {"lose_primary": 20_000.0}


@dataclass(frozen=True, slots=True)
class Silence:
    """For how many ms calls of a kind had no answer in faults, and the bound, for the machine that bounds are for."""

    what: str
    kinds: str
    ms: float
    bound_ms: float


def unavailable(facts: Facts) -> Iterator[str]:
    """Whatever fails, somebody is answered within AWAY_MS; twice that where two faults come together. A machine that is
    slower is allowed as many times as long as it is slower: docs/reliability.md says so, and reports have both."""
    for one in silences(facts):
        allowed = one.bound_ms * facts.history.patience
        if one.ms > allowed:
            yield (
                f"no {one.what} was answered for {one.ms / 1000:.2f} s ({one.kinds}); "
                f"the bound is {one.bound_ms / 1000:.1f} s, allowed on this machine {allowed / 1000:.2f} s"
            )


def longest_silence(facts: Facts) -> Silence | None:
    """That which comes nearest to its bound, or is furthest beyond; None without faults."""
    return max(silences(facts), key=lambda one: one.ms / one.bound_ms, default=None)


def silences(facts: Facts) -> Iterator[Silence]:
    """Between each two answers that a fault lies between, less what the machine stood still."""
    faults = sorted((one for one in facts.history.outages if one.kind != PAUSED), key=lambda one: one.began)
    pauses = sorted((one for one in facts.history.outages if one.kind == PAUSED), key=lambda one: one.began)
    for what, answered in facts.answered.items():
        for fault in faults:
            at = bisect_left(answered, fault.began)
            for before, after in pairwise(answered[max(0, at - 1) : bisect_left(answered, fault.ended) + 1]):
                at_once = [one for one in faults if one.began < after and before < one.ended]
                away = after - max(before, fault.began) - overlap(pauses, before, after)
                bound = sum(SILENT_MS.get(one.kind, AWAY_MS) for one in at_once) or AWAY_MS
                yield Silence(what, " and ".join(sorted({one.kind for one in at_once})), away, bound)


def longest_gap(facts: Facts, fault: Outage) -> float:
    """For how many ms of a fault's no call of some kind was answered."""
    longest = 0.0
    for answered in facts.answered.values():
        at, end = bisect_left(answered, fault.began), bisect_left(answered, fault.ended)
        near = [fault.began, *answered[at : end + 1]]
        longest = max([longest, *(after - before for before, after in pairwise(near))])
    return longest


def surprised(facts: Facts) -> Iterator[str]:
    """Clients get answers that a fault explains, 503 and no other 5xx, and the logs have no worse either."""
    for one in facts.history.surprises:
        yield one.what


def deadlocked(facts: Facts) -> Iterator[str]:
    """All lock in one order."""
    for end in facts.history.ends:
        if end.deadlocks:
            yield f"the database broke {end.deadlocks} deadlocks"


def left(facts: Facts) -> Iterator[str]:
    """A queue that was drained has left nothing behind."""
    for end in facts.history.ends:
        for what, number in end.left.items():
            if number:
                yield f"{number} {what} at the end"


def damaged(facts: Facts) -> Iterator[str]:
    """The database's files are whole."""
    for end in facts.history.ends:
        yield from end.damage
