"""Runs: one at a time of each sweep over all processes; who wants one that is under way joins it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.base.pace import Pace
from app.errors import ShuttingDown, Unavailable
from app.features.feature import Sweep
from app.features.upkeep import runs
from app.features.upkeep.runner import Runner, RunOutcome, RunTimes
from app.kernel.engine import Engine
from tests.engine.machines import new_machine
from tests.queue.calls import until

QUICK = RunTimes(beat=0.02, dead=0.3, look=0.01, longest_look=0.02)
PATIENT = RunTimes(beat=0.02, dead=10, look=0.01, longest_look=0.02)  # a busy machine has nobody taken for dead
DEAD = timedelta(seconds=QUICK.dead)


@dataclass
class Gate:
    """A sweep that moves one thing, and then goes on when it is let."""

    name: str
    begun: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False

    @property
    def sweep(self) -> Sweep:
        return Sweep(self.name, self.run, None)

    async def run(self, _pools: Pools, _engine: Engine, pace: Pace) -> int:
        self.begun += 1
        await pace.batch(self._one)
        await self.open.wait()
        if self.fails:
            raise ValueError("a mistake of ours")
        await pace.batch(self._one)
        return pace.moved

    async def _one(self) -> int:
        return 1

    async def running(self) -> bool:
        return self.begun > 0


@pytest.fixture
def gate(topic: str) -> Gate:
    """With a name that no other test has."""
    return Gate(topic)


@pytest.fixture
async def process(own: Pools) -> AsyncIterator[Callable[..., Runner]]:
    """Runners as other processes have them."""
    made: list[Runner] = []

    def make(times: RunTimes = PATIENT) -> Runner:
        machine = new_machine(own)
        made.append(Runner(machine.pools, machine.engine, times))
        return made[-1]

    yield make
    for runner in made:
        await runner.stop()


async def last(own: Pools, gate: Gate) -> runs.LastRun:
    return (await runs.read(own.rest, [gate.name], DEAD))[gate.name]


async def test_who_comes_meanwhile_joins_in_this_process_and_in_others(
    gate: Gate, process: Callable[..., Runner]
) -> None:
    here, there, third = (process() for _ in range(3))
    first = asyncio.create_task(here.run(gate.sweep))
    await until(gate.running, "it runs")
    others = [asyncio.create_task(runner.run(gate.sweep)) for runner in (here, there, there, third)]
    assert await here.run(gate.sweep, 0) == RunOutcome(1, running=True)

    async def seen_elsewhere() -> bool:
        return await there.run(gate.sweep, 0.01) == RunOutcome(1, running=True)

    await until(seen_elsewhere, "the other process knows how far it is")
    gate.open.set()
    assert await asyncio.gather(first, *others) == [RunOutcome(2)] * 5
    assert gate.begun == 1
    assert await there.run(gate.sweep) == RunOutcome(2), "a run that has ended is joined by nobody"
    assert gate.begun == 2


async def test_a_run_goes_on_when_who_asked_has_left(gate: Gate, process: Callable[..., Runner], own: Pools) -> None:
    runner = process()
    asking = asyncio.create_task(runner.run(gate.sweep))
    await until(gate.running, "it runs")
    asking.cancel()
    await asyncio.wait([asking])
    gate.open.set()
    assert await runner.run(gate.sweep) == RunOutcome(2)
    assert gate.begun == 1


async def test_of_many_that_want_a_turn_one_has_it(gate: Gate, process: Callable[..., Runner]) -> None:
    runners = [process() for _ in range(6)]
    turns = [asyncio.create_task(runner.in_turn(gate.sweep, rested=3600)) for runner in runners]
    await until(gate.running, "it runs")
    gate.open.set()
    assert sorted(await asyncio.gather(*turns)) == [False] * 5 + [True]
    assert gate.begun == 1
    there = process()
    assert not await there.in_turn(gate.sweep, rested=3600)
    assert gate.sweep.name in there.last, "it is known when it was"
    assert await there.in_turn(gate.sweep)
    assert gate.begun == 2


async def test_what_a_dead_process_left_is_gone_on_with(gate: Gate, process: Callable[..., Runner], own: Pools) -> None:
    dead_run = uuid4()
    assert await runs.begin(own.rest, gate.name, dead_run, dead=DEAD) == 0
    assert await runs.beat(own.rest, gate.name, dead_run, 40)
    before = await last(own, gate)
    gate.open.set()
    joined = process(QUICK)
    assert await joined.run(gate.sweep) == RunOutcome(42), "what it had moved counts"
    after = await last(own, gate)
    assert gate.begun == 1
    assert after.run != dead_run
    assert (after.started_at, after.moved, after.error) == (before.started_at, 42, None)
    assert after.finished_at is not None
    assert after.finished_at - before.started_at >= DEAD
    assert not await runs.beat(own.rest, gate.name, dead_run, 41), "it has lost its run"
    await runs.end(own.rest, gate.name, dead_run, 41, "late")
    assert await last(own, gate) == after


async def test_a_process_that_gave_no_sign_of_life_joins_who_took_its_run(
    gate: Gate, process: Callable[..., Runner], own: Pools
) -> None:
    runner = process(RunTimes(beat=1.0, dead=0.1, look=0.01, longest_look=0.02))  # too seldom
    slow = asyncio.create_task(runner.run(gate.sweep))
    await until(gate.running, "it runs")
    taken = uuid4()

    async def dead() -> bool:
        return await runs.begin(own.rest, gate.name, taken, dead=timedelta(seconds=0.1)) is not None

    await until(dead, "its run is taken")
    await runs.end(own.rest, gate.name, taken, 7)
    assert await slow == RunOutcome(7)
    assert gate.begun == 1


async def test_a_process_that_stops_leaves_its_run_to_those_who_wait(
    gate: Gate, process: Callable[..., Runner], own: Pools
) -> None:
    here, there = process(RunTimes(dead=3600)), process(RunTimes(dead=3600, look=0.01))
    asking = asyncio.create_task(here.run(gate.sweep))
    await until(gate.running, "it runs")
    joining = asyncio.create_task(there.run(gate.sweep))
    await here.stop()
    with pytest.raises(ShuttingDown):
        await asking
    gate.open.set()
    assert await joining == RunOutcome(3), "one before, two after"
    assert gate.begun == 2


async def test_a_failure_is_told_to_all_and_tried_again_at_once(
    gate: Gate, process: Callable[..., Runner], own: Pools
) -> None:
    gate.fails = True
    here, there = process(), process()
    first = asyncio.create_task(here.run(gate.sweep))
    await until(gate.running, "it runs")
    other = asyncio.create_task(there.run(gate.sweep))

    async def joined() -> bool:
        return await there.run(gate.sweep, 0.01) == RunOutcome(1, running=True)

    await until(joined, "the other has joined")
    gate.open.set()
    with pytest.raises(ValueError, match="a mistake of ours"):
        await first
    with pytest.raises(Unavailable, match="a mistake of ours"):
        await other
    assert (await last(own, gate)).error == "ValueError('a mistake of ours')"
    gate.fails = False
    assert await there.in_turn(gate.sweep, rested=3600)


async def test_a_batch_that_loses_a_race_goes_again() -> None:
    """And a run rests in proportion to its batches."""
    tries = 0

    async def move() -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise asyncpg.DeadlockDetectedError
        await asyncio.sleep(0.02)
        return 4 if tries == 3 else 0

    now = asyncio.get_running_loop().time
    began, pace = now(), Pace(ease=4)
    await pace.drain(move)
    assert (pace.moved, tries) == (4, 4)
    assert now() - began >= 0.12


async def test_earlier_runs_are_kept_that_moved_something_or_failed(own: Pools, topic: str) -> None:
    async def ran(moved: int, error: str | None = None) -> None:
        run = uuid4()
        assert await runs.begin(own.rest, topic, run, dead=DEAD) == 0
        await runs.end(own.rest, topic, run, moved, error)

    for moved in range(3):
        await ran(moved)
    await ran(0, "a mistake of ours")
    found = await runs.earlier(own.rest, topic)
    assert [(one.moved, one.error) for one in found] == [(0, "a mistake of ours"), (2, None), (1, None)]
    assert all(one.finished_at is not None and one.finished_at >= one.started_at for one in found)
    for moved in range(100, 100 + runs.MOST_KEPT):
        await ran(moved)
    kept = [one.moved for one in await runs.earlier(own.rest, topic)]
    assert kept == [*range(99 + runs.MOST_KEPT, 99, -1)]
    (count,) = await own.rest.fetch("SELECT count(*) AS n FROM holdfast.sweep_runs WHERE name = $1", topic)
    assert count["n"] == runs.MOST_KEPT


async def test_a_run_that_was_taken_over_is_kept_once(own: Pools, topic: str) -> None:
    first, second = uuid4(), uuid4()
    await runs.begin(own.rest, topic, first, dead=DEAD)
    await runs.leave(own.rest, topic, first, 5)
    assert await runs.begin(own.rest, topic, second, dead=DEAD) == 5
    await runs.end(own.rest, topic, first, 6)  # its process comes late
    await runs.end(own.rest, topic, second, 9)
    assert [one.moved for one in await runs.earlier(own.rest, topic)] == [9]
