"""How the service and its database did meanwhile: G10 of docs/reliability.md, and what faults may cost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tests.chaos.facts import PAUSED, Facts, overlap
from tests.chaos.history import Outage

AWAY_MS: Final = 5000.0  # for so long after a fault nobody may get an answer
# That a server says nothing a call learns when its own time is up, app.db.pool.COMMAND_SECONDS; then it connects.
SILENT_MS: Final = {"lose_primary": 20_000.0}


def unavailable(facts: Facts) -> Iterator[str]:
    """Whatever fails, somebody is answered within AWAY_MS; twice that where two faults come together."""
    faults = sorted((one for one in facts.history.outages if one.kind != PAUSED), key=lambda one: one.began)
    pauses = sorted((one for one in facts.history.outages if one.kind == PAUSED), key=lambda one: one.began)
    for what, answered in facts.answered.items():
        for fault in faults:
            at = bisect_left(answered, fault.began)
            for before, after in pairwise(answered[max(0, at - 1) : bisect_left(answered, fault.ended) + 1]):
                at_once = [one for one in faults if one.began < after and before < one.ended]
                away = after - max(before, fault.began) - overlap(pauses, before, after)
                allowed = sum(SILENT_MS.get(one.kind, AWAY_MS) for one in at_once) or AWAY_MS
                if away > allowed * facts.history.patience:
                    kinds = " and ".join(sorted({one.kind for one in at_once}))
                    yield f"no {what} was answered for {away / 1000:.1f} s ({kinds})"


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
