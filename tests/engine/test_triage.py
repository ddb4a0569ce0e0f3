"""What is wrong with a queue: every rule, and where it ends."""

from __future__ import annotations

from typing import Any

import pytest

from app.kernel.counts.holders import LongLeases, StuckGroups
from app.kernel.counts.triage import UNCOUNTED_MS, Level, RecentOutcomes, TopicLevels, lateness, rank, troubles
from app.kernel.model import Topic
from app.kernel.topics.policy import DEFAULTS, Control, Policy, in_effect
from app.kernel.topics.settings import Chosen

GOAL = 60_000
LATE_MS, VERY_LATE_MS = GOAL, 10 * GOAL
QUIET = RecentOutcomes(0, 0, 0, 0)
WORKS = RecentOutcomes(100, 100, 0, 0)
CLAIMS = RecentOutcomes(1, 0, 0, 0)


HeldJob = tuple[TopicLevels, Policy]


def holds(
    goal_ms: int = GOAL,
    throughput_limit: int = 0,
    lease_ms: int = 30_000,
    paused: bool = False,
    draining: bool = False,
    **levels: Any,
) -> HeldJob:
    chosen = Chosen(wait_goal_ms=goal_ms, throughput_limit=throughput_limit, lease_ms=lease_ms)
    config, control = in_effect("q", chosen, DEFAULTS), Control(paused=paused, draining=draining)
    return TopicLevels(True, 0, 0, **levels), Policy(Topic("q", 1, 1), config, 1, chosen, control=control)


IDLE = holds()


@pytest.mark.parametrize(
    ("held", "lately", "found"),
    [
        (IDLE, QUIET, []),
        (holds(ready=9, oldest_ms=LATE_MS - 1), QUIET, []),
        (holds(ready=9, oldest_ms=LATE_MS), QUIET, ["nobody_claims bad"]),
        (holds(ready=9, oldest_ms=UNCOUNTED_MS - 1, in_flight=1), QUIET, ["waiting watch"]),
        (holds(ready=9, oldest_ms=UNCOUNTED_MS, in_flight=1), QUIET, ["nobody_claims watch"]),  # one may hang
        (holds(ready=9, oldest_ms=VERY_LATE_MS, in_flight=1), QUIET, ["nobody_claims bad"]),
        (holds(ready=9, oldest_ms=VERY_LATE_MS, in_flight=1), CLAIMS, ["waiting bad"]),
        (holds(ready=9, oldest_ms=LATE_MS), None, ["waiting watch"]),  # it is not known that nobody does
        (holds(ready=9, oldest_ms=LATE_MS), WORKS, ["waiting watch"]),
        (holds(ready=9, oldest_ms=LATE_MS), CLAIMS, ["waiting watch"]),  # and each comes back
        (holds(ready=9, oldest_ms=VERY_LATE_MS), WORKS, ["waiting bad"]),
        (holds(ready=9, oldest_ms=1_000, goal_ms=1_000), QUIET, ["nobody_claims bad"]),
        (holds(ready=9, oldest_ms=10_000, goal_ms=1_000), WORKS, ["waiting bad"]),
        (holds(ready=9, oldest_ms=10_000, goal_ms=1_000, throughput_limit=5), WORKS, ["throttled bad"]),
        (holds(ready=9, oldest_ms=VERY_LATE_MS, goal_ms=0), QUIET, []),
        (holds(ready=9, oldest_ms=VERY_LATE_MS, goal_ms=0, paused=True), QUIET, ["paused note"]),
        (holds(paused=True, ready=9, oldest_ms=1_000, goal_ms=1_000), QUIET, ["paused watch"]),
        (holds(ready=9, oldest_ms=LATE_MS, throughput_limit=5), WORKS, ["throttled watch"]),
        (holds(ready=9, oldest_ms=LATE_MS, throughput_limit=5), QUIET, ["nobody_claims bad"]),
        (holds(ready=9, oldest_ms=VERY_LATE_MS, takes_dead=True), QUIET, []),
        (holds(ready=9, oldest_ms=VERY_LATE_MS, takes_dead=True), WORKS, []),
        (holds(ready=9, oldest_ms=VERY_LATE_MS, takes_dead=True, paused=True), QUIET, ["paused note"]),
        (holds(takes_dead=True), RecentOutcomes(1, 0, 1, 0), ["failing bad"]),
        (holds(paused=True), QUIET, ["paused note"]),
        (holds(draining=True), WORKS, ["draining note"]),
        (holds(blocked=3), QUIET, ["stuck_groups bad"]),
        (holds(blocked=3, in_flight=1), QUIET, []),
        (holds(blocked=3, scheduled=1), QUIET, []),
        (holds(blocked=3), CLAIMS, []),
        (holds(blocked=3), None, []),
        (holds(blocked=3, in_flight=1, stuck=StuckGroups(LATE_MS, 1, 3, LATE_MS)), WORKS, ["stuck_groups watch"]),
        (holds(blocked=3, in_flight=1, stuck=StuckGroups(LATE_MS, 1, 3, VERY_LATE_MS)), WORKS, ["stuck_groups bad"]),
        (holds(blocked=3, stuck=StuckGroups(LATE_MS, 1, 3, LATE_MS)), QUIET, ["stuck_groups watch"]),
        (holds(blocked=3, in_flight=1, stuck=StuckGroups(LATE_MS - 1)), WORKS, []),
        (holds(blocked=3, in_flight=1, stuck=StuckGroups(LATE_MS)), WORKS, ["waiting watch"]),
        (holds(blocked=3, in_flight=1, stuck=StuckGroups(VERY_LATE_MS)), WORKS, ["waiting bad"]),
        (holds(blocked=3, in_flight=1, stuck=StuckGroups(LATE_MS), paused=True), WORKS, ["paused watch"]),
        (holds(blocked=3, ready=1, oldest_ms=LATE_MS, stuck=StuckGroups(LATE_MS)), WORKS, ["waiting watch"]),
        (holds(in_flight=1, long=LongLeases(1, 3_600_000)), WORKS, ["long_leases watch"]),
        (IDLE, RecentOutcomes(100, 99, 1, 0), ["failing watch"]),
        (IDLE, RecentOutcomes(100, 90, 10, 0), ["failing bad"]),
        (IDLE, RecentOutcomes(100, 90, 10, 9), ["dead_letters bad"]),
        (holds(paused=True), RecentOutcomes(1, 0, 1, 1), ["dead_letters bad", "paused note"]),
    ],
)
def test_each_rule(held: HeldJob, lately: RecentOutcomes | None, found: list[str]) -> None:
    assert [f"{one.code} {one.level}" for one in troubles(*held, lately)] == found


def test_its_sentences() -> None:
    assert [
        one.text for one in troubles(*holds(ready=1, oldest_ms=LATE_MS, paused=True), RecentOutcomes(2, 0, 2, 0))
    ] == [
        "2 jobs failed for good within 10 min, all of the jobs that ended.",
        "The topic is paused. 1 job is ready.",
    ]
    for oldest_ms, last in ((78_000, "1 min 18 s"), (3_600_000, "10 min")):  # not longer than there were jobs
        (idle,) = troubles(*holds(ready=5, oldest_ms=oldest_ms), QUIET)
        assert idle.text == f"5 jobs wait. No claim was counted in the last {last}."
    (hung,) = troubles(*holds(ready=5, oldest_ms=480_000, in_flight=1), QUIET)
    claimed = "No claim was counted in the last 8 min"
    assert hung.text == f"5 jobs wait. {claimed}. 1 job has been in flight since before."
    (stuck,) = troubles(*holds(blocked=9, in_flight=1, stuck=StuckGroups(1, 3, 3_026, 3_480_000)), WORKS)
    many = "the first job of each has been leased or failing for up to 58 min"
    assert stuck.text == f"3 groups don't move: {many}, and 3,026 jobs wait behind."
    (one,) = troubles(*holds(blocked=1, in_flight=1, stuck=StuckGroups(1, 1, 1, 90_000)), WORKS)
    its = "its first job has been leased or failing for 1 min 30 s"
    assert one.text == f"1 group doesn't move: {its}, and 1 job waits behind."
    (long,) = troubles(*holds(in_flight=1, long=LongLeases(2, 7_200_000), lease_ms=30_000), WORKS)
    own = "the topic's own lease length is 30 s. A worker that hangs keeps its jobs for so long."
    assert long.text == f"2 leases last for up to 2 h more; {own}"
    (late,) = troubles(*holds(ready=1200, oldest_ms=LATE_MS, throughput_limit=5), WORKS)
    assert late.text == "1,200 jobs wait: throughput_limit allows 5 per second."


@pytest.mark.parametrize(
    ("oldest_ms", "goal_ms", "level"),
    [
        (None, 1_000, None),
        (0, 0, None),
        (10**9, 0, None),
        (999, 1_000, None),
        (1_000, 1_000, Level.WATCH),
        (9_999, 1_000, Level.WATCH),
        (10_000, 1_000, Level.BAD),
        (315_360_000_000, 315_360_000_000, Level.WATCH),
    ],
)
def test_how_late_it_is_goes_by_its_goal(oldest_ms: int | None, goal_ms: int, level: Level | None) -> None:
    assert lateness(oldest_ms, goal_ms) is level


def ranked(held: HeldJob) -> tuple[int, int, float, int]:
    levels, policy = held
    return rank(troubles(levels, policy, QUIET), levels.oldest_ms, policy.config.wait_goal_ms)


def test_what_hurts_now_comes_first_and_then_what_waits_longest_by_its_goal() -> None:
    bad = ranked(holds(ready=1, oldest_ms=LATE_MS))
    five_times = ranked(holds(ready=1, oldest_ms=5_000, goal_ms=1_000, in_flight=1))
    twice = ranked(holds(ready=1, oldest_ms=120_000, goal_ms=60_000, in_flight=1))
    once = ranked(holds(ready=1, oldest_ms=LATE_MS, in_flight=1))
    two_troubles = ranked(holds(ready=1, oldest_ms=LATE_MS, in_flight=1, draining=True))
    note = ranked(holds(paused=True))
    older, younger, well = (ranked(holds(ready=1, oldest_ms=ms, goal_ms=0)) for ms in (10**9, 10**8, 0))
    in_order = [bad, two_troubles, five_times, twice, once, note, older, younger, well]
    assert sorted(set(in_order)) == in_order
