"""Waiting times, by theory (Erlang C) and by simulating recorded deliveries. Pure; times are in seconds."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_WORKERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Service:
    """The duration of deliveries: mean, and squared coefficient of variation (0: constant, 1: exponential)."""

    mean: float
    variation: float = 1.0

    @classmethod
    def of(cls, times: Sequence[float]) -> Service:
        """From recorded times, at least one."""
        mean = math.fsum(times) / len(times)
        variance = math.fsum((time - mean) ** 2 for time in times) / len(times)
        return cls(mean, variance / mean**2 if mean else 0.0)


def erlang_c(workers: int, load: float) -> float:
    """The share of arrivals that wait in M/M/c; `load` = rate x mean service time. 1 if workers can't keep up."""
    if load <= 0:
        return 0.0
    if workers <= load:
        return 1.0
    # Erlang B by recursion, which neither overflows nor loses digits; then C from B.
    blocked = 1.0
    for n in range(1, workers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / workers * (1 - blocked))


def wait_quantile(workers: int, rate: float, service: Service, quantile: float = 0.95) -> float:
    """The wait that this share of arrivals does not exceed; infinite if workers can't keep up.

    Exact for M/M/c. For other service times it is scaled like the mean wait by Allen and Cunneen: (1 + variation) / 2.
    """
    load = rate * service.mean
    waits = erlang_c(workers, load)
    if waits <= 1 - quantile:
        return 0.0
    if workers <= load:
        return math.inf
    return service.mean / (workers - load) * (1 + service.variation) / 2 * math.log(waits / (1 - quantile))


def workers_needed(rate: float, service: Service, goal: float, quantile: float = 0.95) -> int:
    """The fewest workers with which this share of arrivals waits at most `goal`; 0 if nothing arrives."""
    if rate <= 0 or service.mean <= 0:
        return 0
    low, high = int(rate * service.mean), int(rate * service.mean) + 1  # low is too few: at most the load
    while wait_quantile(high, rate, service, quantile) > goal:
        if high >= MOST_WORKERS:
            return MOST_WORKERS
        low, high = high, min(2 * high, MOST_WORKERS)
    while high - low > 1:
        middle = (low + high) // 2
        if wait_quantile(middle, rate, service, quantile) > goal:
            low = middle
        else:
            high = middle
    return high


def replay(
    arrivals: Sequence[float], services: Sequence[float], workers: int, ranks: Sequence[int] | None = None
) -> list[float]:
    """The wait of each delivery with this number of workers. `arrivals` ascend; `services` are their durations.

    A free worker takes the arrived job with the lowest rank, and within a rank the earliest one, as a claim does
    (docs/semantics.md, section 4). No job is interrupted. Raises ValueError for less than one worker.
    """
    if workers < 1:
        raise ValueError("at least one worker is needed")
    if ranks is None or len(set(ranks)) <= 1:
        return _first_come(arrivals, services, workers)
    waits = [0.0] * len(arrivals)
    free = [-math.inf] * workers  # when each worker becomes free
    waiting: list[tuple[int, int]] = []
    next_one, count = 0, len(arrivals)
    while next_one < count or waiting:
        at = free[0]
        if not waiting:
            at = max(at, arrivals[next_one])
        while next_one < count and arrivals[next_one] <= at:
            heapq.heappush(waiting, (ranks[next_one], next_one))
            next_one += 1
        _, taken = heapq.heappop(waiting)
        waits[taken] = at - arrivals[taken] if at > arrivals[taken] else 0.0
        heapq.heapreplace(free, max(at, arrivals[taken]) + services[taken])
    return waits


def _first_come(arrivals: Sequence[float], services: Sequence[float], workers: int) -> list[float]:
    free = [-math.inf] * workers
    waits = []
    for arrival, service in zip(arrivals, services, strict=True):
        begins = max(arrival, free[0])
        waits.append(begins - arrival)
        heapq.heapreplace(free, begins + service)
    return waits


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The percentile by nearest rank of sorted values; 0 if there are none."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0.0
