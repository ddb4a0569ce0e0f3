"""Waiting: against theory, against hand-worked cases, and one against the other."""

from __future__ import annotations

import math
import random

import pytest

from spark.analysis.queueing import Service, erlang_c, nearest_rank, replay, wait_quantile, workers_needed


def test_erlang_c_is_that_of_the_tables() -> None:
    assert erlang_c(1, 0.8) == pytest.approx(0.8)  # of M/M/1 it is the load
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(10, 8.0) == pytest.approx(0.409180, abs=1e-6)  # Erlang's tables have 0.4092
    assert erlang_c(3, 3.0) == 1.0
    assert erlang_c(5, 0.0) == 0.0
    assert 0 < erlang_c(10_000, 9_900) < 1


def test_workers_needed_are_the_fewest() -> None:
    service = Service(mean=0.2)
    for rate in (0.1, 7, 50, 1_234.5):
        for goal in (0.01, 1, 30):
            count = workers_needed(rate, service, goal)
            assert wait_quantile(count, rate, service) <= goal
            assert count == 1 or wait_quantile(count - 1, rate, service) > goal
    assert workers_needed(0, service, 1) == 0


def test_one_worker_by_hand() -> None:
    """Arrivals at 0, 1, 2 and 10, of 3 s each: begun at 0, 3, 6 and 10."""
    assert replay([0, 1, 2, 10], [3, 3, 3, 3], 1) == [0, 2, 4, 0]
    assert replay([0, 1, 2, 10], [3, 3, 3, 3], 2) == [0, 0, 1, 0]
    assert replay([0, 1, 2, 10], [3, 3, 3, 3], 3) == [0, 0, 0, 0]


def test_higher_priorities_go_first_by_hand() -> None:
    """The worker is busy until 5; then the urgent one that came last, then the others in turn; none is interrupted."""
    arrivals, services = [0, 1, 2, 3], [5, 1, 1, 1]
    assert replay(arrivals, services, 1, ranks=[1, 1, 1, 0]) == [0, 5, 5, 2]
    # Of those that arrive at the moment that a worker is free, the urgent one goes first too.
    assert replay([0, 5, 5], [5, 1, 1], 1, ranks=[1, 1, 0]) == [0, 1, 0]
    # Somebody who is free takes what is there, and waits for nobody more urgent.
    assert replay([0, 0.5], [5, 1], 1, ranks=[1, 0]) == [0, 4.5]


@pytest.mark.parametrize(("workers", "rate"), [(1, 0.7), (4, 3.2), (20, 17.0)])
def test_a_replay_of_random_arrivals_waits_as_theory_says(workers: int, rate: float) -> None:
    dice = random.Random(42)
    arrivals, now = [], 0.0
    for _ in range(200_000):
        now += dice.expovariate(rate)
        arrivals.append(now)
    services = [dice.expovariate(1.0) for _ in arrivals]
    waits = sorted(replay(arrivals, services, workers)[20_000:])
    waited = sum(wait > 0 for wait in waits) / len(waits)
    assert waited == pytest.approx(erlang_c(workers, rate), rel=0.05)
    assert nearest_rank(waits, 95) == pytest.approx(wait_quantile(workers, rate, Service(1.0)), rel=0.1)


def test_recorded_times_say_how_they_vary() -> None:
    assert Service.of([2, 2, 2]) == Service(2, 0)
    assert Service.of([1, 3]) == Service(2, 0.25)
    assert math.isinf(wait_quantile(2, 3.0, Service(1.0)))
