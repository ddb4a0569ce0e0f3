"""What is wrong with a queue: every rule, and where it ends."""

from __future__ import annotations

import msgspec
import pytest

from app.engine.triage import LATE_MS, VERY_LATE_MS, Holds, Lately, rank, troubles

IDLE = Holds(0, 0, 0, 0, None, False, False, 0)
QUIET = Lately(0, 0, 0, 0)
WORKS = Lately(100, 100, 0, 0)
CLAIMS = Lately(1, 0, 0, 0)


def holds(**changes: object) -> Holds:
    return msgspec.structs.replace(IDLE, **changes)


@pytest.mark.parametrize(
    ("held", "lately", "found"),
    [
        (IDLE, QUIET, []),
        (IDLE, None, []),
        (holds(ready=9, oldest_ms=LATE_MS - 1), QUIET, []),
        (holds(ready=9, oldest_ms=LATE_MS), QUIET, ["nobody_claims bad"]),
        (holds(ready=9, oldest_ms=LATE_MS), None, ["waiting watch"]),  # it is not known that nobody does
        (holds(ready=9, oldest_ms=LATE_MS, in_flight=1), QUIET, ["waiting watch"]),
        (holds(ready=9, oldest_ms=LATE_MS), WORKS, ["waiting watch"]),
        (holds(ready=9, oldest_ms=LATE_MS), CLAIMS, ["waiting watch"]),  # and each comes back
        (holds(ready=9, oldest_ms=VERY_LATE_MS), WORKS, ["waiting bad"]),
        (holds(ready=9, oldest_ms=LATE_MS, throughput_limit=5), WORKS, ["throttled watch"]),
        (holds(ready=9, oldest_ms=LATE_MS, throughput_limit=5), QUIET, ["nobody_claims bad"]),
        (holds(paused=True), QUIET, ["paused note"]),
        (holds(paused=True, ready=9, oldest_ms=VERY_LATE_MS), QUIET, ["paused watch"]),
        (holds(draining=True), WORKS, ["draining note"]),
        (holds(blocked=3), QUIET, ["stuck_groups bad"]),
        (holds(blocked=3, in_flight=1), QUIET, []),
        (holds(blocked=3, scheduled=1), QUIET, []),
        (holds(blocked=3), WORKS, []),
        (holds(blocked=3), CLAIMS, []),
        (holds(blocked=3), None, []),
        (IDLE, Lately(100, 99, 1, 0), ["failing watch"]),
        (IDLE, Lately(100, 90, 10, 0), ["failing bad"]),
        (IDLE, Lately(100, 90, 10, 9), ["dead_letters bad"]),
        (holds(paused=True), Lately(1, 0, 1, 1), ["dead_letters bad", "paused note"]),
    ],
)
def test_each_rule(held: Holds, lately: Lately | None, found: list[str]) -> None:
    assert [f"{one.code} {one.level}" for one in troubles(held, lately)] == found


def test_its_sentences() -> None:
    assert [one.text for one in troubles(holds(ready=1, oldest_ms=LATE_MS, paused=True), Lately(2, 0, 2, 0))] == [
        "2 jobs failed for good within 10 min, all of those that ended.",
        "It is paused. 1 job can be had and waits.",
    ]
    (late,) = troubles(holds(ready=1200, oldest_ms=LATE_MS, throughput_limit=5), WORKS)
    assert late.text == "1,200 jobs wait; throughput_limit lets 5 a second through."


def test_what_hurts_now_comes_first_and_then_what_waits_longest() -> None:
    bad = rank(troubles(holds(ready=1, oldest_ms=LATE_MS), QUIET), LATE_MS)
    late = rank(troubles(holds(ready=1, oldest_ms=LATE_MS + 1, in_flight=1), QUIET), LATE_MS + 1)
    later = rank(troubles(holds(ready=1, oldest_ms=LATE_MS + 2, in_flight=1), QUIET), LATE_MS + 2)
    note = rank(troubles(holds(paused=True), QUIET), None)
    assert sorted([note, rank([], None), later, bad, late]) == [bad, later, late, note, rank([], None)]
