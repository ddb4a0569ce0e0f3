"""The scenarios by name, and how one is played."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tools.bench.figures import Ratio
from tools.bench.scenarios import faults
from tools.bench.scenarios.faults import Fault
from tools.bench.scenarios.stand import Stand
from tools.bench.scenarios.steady import SLOT, Course, Steady

LEAST: Final = 0.95  # of the base rate, afterwards
SHARE: Final = 0.5  # of what it can, is the base rate
UNBOUNDED: Final = 200_000.0  # jobs a second, more than any can
BEFORE: Final = 0.5  # seconds until a load begins, in its own process


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each phase: until it is warm, of the base rate, of the fault, until all is over, of the rate then. And
    how much longer than it should a fault may take."""

    warm: float
    base: float
    fault: float
    settle: float
    after: float
    spare: float


FULL: Final = Times(2, 8, 12, 3, 8, 5)
QUICK: Final = Times(0.5, 1, 2, 1.5, 1.5, 2.5)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault, with so many times the load while it lasts, and the least share of the base rate then, if it has one."""

    fault: Fault
    factor: float = 1.0
    least_during: float | None = None


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "postgres_restart": Scenario(faults.postgres_restart),
    "pg_backend_kill": Scenario(faults.pg_backend_kill),
    "pool_exhaustion": Scenario(faults.pool_exhaustion),
    "crash_recovery": Scenario(faults.crash_recovery),
    "repeated_kills": Scenario(faults.repeated_kills),
    "idle_in_tx": Scenario(faults.idle_in_tx),
    "sustained_1_5x_load": Scenario(faults.nothing, factor=1.5),
    "four_active_readers": Scenario(faults.four_active_readers, least_during=0.9),
    "burst": Scenario(faults.nothing, factor=4.0),
}


@dataclass(frozen=True, slots=True)
class Played:
    """Rates are jobs acked a second. `recovered_s`: from the fault's end to the first second with 95 % of the base
    rate, None if there was none. `left`: jobs that nobody got in the end. `broken`: requests and connections that
    failed."""

    name: str
    base: float
    during: float
    after: float
    recovered_s: float | None
    enqueued: int
    left: int
    broken: int
    least_during: float | None

    @property
    def figures(self) -> Sequence[Ratio]:
        """What is promised of it."""
        after = Ratio(f"{self.name}: after", "jobs", [self.after], [self.base], LEAST)
        if self.least_during is None:
            return [after]
        return [Ratio(f"{self.name}: during", "jobs", [self.during], [self.base], self.least_during), after]

    @property
    def passed(self) -> bool:
        return self.left == 0 and all(figure.passed for figure in self.figures)


async def capacity(stand: Stand, seconds: float, payload: int) -> float:
    """Jobs a second that go through when producers send as fast as they are answered."""
    await stand.queue("capacity")
    load = Steady(stand.port, "capacity", time.monotonic() + BEFORE, UNBOUNDED, [(seconds, 1.0)], payload)
    course = await stand.drive(load)
    busy = max((slot for slot, jobs in enumerate(course.acked, 1) if jobs), default=0)
    if busy == 0:
        raise RuntimeError("no job went through")
    return course.rate(load.begins, load.begins + busy * SLOT)


async def play(stand: Stand, name: str, scenario: Scenario, times: Times, *, rate: float, payload: int) -> Played:
    """Play one under a load of `rate` jobs a second. Raises RuntimeError if the fault took too long to look at the rate
    after it."""
    await stand.queue(name)
    phases = [
        (times.warm + times.base, 1.0),
        (times.fault, scenario.factor),
        (times.settle + times.after + times.spare, 1.0),
    ]
    load = Steady(stand.port, name, time.monotonic() + BEFORE, rate, phases, payload)
    running = asyncio.create_task(stand.drive(load))
    fault_at = load.begins + times.warm + times.base
    await asyncio.sleep(fault_at - time.monotonic())
    await scenario.fault(stand, times.fault)
    over_at = time.monotonic()
    course: Course = await running
    base = course.rate(load.begins + times.warm, fault_at)
    settled = over_at + times.settle
    if settled + times.after > load.ends:
        raise RuntimeError(f"{name} took {over_at - fault_at:.1f} s, and not {times.fault:g}")
    return Played(
        name,
        base,
        course.rate(fault_at, over_at),
        course.rate(settled, settled + times.after),
        course.until(LEAST * base, over_at),
        course.enqueued,
        await stand.left(name),
        course.broken,
        scenario.least_during,
    )
