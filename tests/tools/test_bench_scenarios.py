"""The scenarios' harness, on a scenario of a few seconds."""

from __future__ import annotations

import pytest

from tools.bench.scenarios.play import QUICK, SCENARIOS, Played, play
from tools.bench.scenarios.stand import standing
from tools.bench.scenarios.steady import Course, Steady

RATE = 200.0


def test_a_rate_is_of_whole_slots_and_a_recovery_is_a_second_of_it() -> None:
    course = Course(begins=100.0, acked=[10] * 10 + [0] * 15 + [5] * 20, enqueued=0, broken=0)
    assert course.rate(100, 101) == 100
    assert course.rate(100.5, 101.5) == 50
    assert course.until(50, 101) == 1.5
    assert course.until(51, 101) is None


def test_a_load_has_phases() -> None:
    load = Steady(1, "t", 100.0, 10.0, [(5, 1.0), (2, 4.0), (1, 1.0)], 256)
    assert load.ends == 108
    assert [load.factor(at) for at in (99, 104.9, 105, 107, 200)] == [1, 1, 4, 1, 1]


def test_a_scenario_passes_by_what_is_there_again_and_loses_nothing() -> None:
    def played(during: float, after: float, left: int, least: float | None) -> bool:
        return Played("x", 100.0, during, after, 0.0, 1, left, 0, least).passed

    assert played(0, 95, 0, None)
    assert not played(0, 94, 0, None)
    assert not played(0, 95, 1, None)
    assert not played(89, 100, 0, 0.9)


def test_there_are_nine_by_name() -> None:
    assert len(SCENARIOS) == 9
    assert all(scenario.fault.__doc__ for scenario in SCENARIOS.values())


@pytest.mark.alone
async def test_it_sees_what_goes_wrong_and_that_it_is_over() -> None:
    async with standing() as stand:
        played = await play(stand, "t", SCENARIOS["postgres_restart"], QUICK, rate=RATE, payload=256)
    assert played.broken > 0
    assert played.during < played.base / 2
    assert played.after > played.base / 2 > RATE / 4
    assert played.left == 0
