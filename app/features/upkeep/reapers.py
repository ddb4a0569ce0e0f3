"""Run sweeps: by interval, by a cron schedule, on demand, and from the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from app.base import cron
from app.base.db.pool import open_pools
from app.base.loops import Loop
from app.base.metrics import Labels, catalogue
from app.base.metrics.catalogue import Family
from app.base.outages import UNREACHABLE
from app.errors import HoldfastError, InvalidSchedule, NotFound
from app.features.upkeep import runs
from app.features.upkeep.runner import Runner, RunOutcome, RunTimes
from app.features.upkeep.runs import DueTime, LastRun
from app.features.upkeep.sweeps import DELETE
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.engine import Core, Engine
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import DEFAULTS, Defaults

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.features.feature import Sweep

LOOK_SECONDS: Final = 5.0  # a schedule set by another process is known here within this time
REPORT_SECONDS: Final = 2.0
MOST_WAIT_MS: Final = 55_000  # for the end of a run on demand; many proxies give up after a minute


class SweepState(msgspec.Struct, frozen=True):
    """A sweep and its last run, None before the first."""

    sweep: Sweep
    last: LastRun | None


class CronSchedule:
    """A sweep's cron schedule, stored in PostgreSQL for all processes. Times are in UTC, by the database's clock.

    `default` is in effect until a schedule is set; "" for none.
    """

    def __init__(self, pools: Pools, runner: Runner, sweep: Sweep) -> None:
        self._pools = pools
        self._runner = runner
        self._sweep = sweep
        self.default = ""
        self.loop = Loop(f"follow the schedule of {sweep.name}", self.look, LOOK_SECONDS)

    async def get(self) -> str:
        """Read the schedule, "" for none."""
        stored = await runs.schedule(self._pools.rest, self._sweep.name, self._runner.times.dead_after)
        return self.default if stored.schedule is None else stored.schedule

    async def set(self, text: str, by: Actor) -> str:
        """Set the schedule, "" for none. Returns the normalized schedule. Raises InvalidSchedule."""
        try:
            expression = cron.parse(text)
        except ValueError as error:
            raise InvalidSchedule(f"{str(error)[0].upper()}{str(error)[1:]}.") from None
        async with self._pools.rest.acquire() as db, db.transaction():
            before, after = await runs.set_schedule(db, self._sweep.name, expression, self.default)
            if before != after:
                await trail.record(
                    db, by, Action.SCHEDULE_CHANGED, self._sweep.name, {"schedule": {"from": before, "to": after}}
                )
        self.loop.wake()
        return after

    async def look(self) -> float:
        """Run the sweep if it is due, or continue an abandoned run. Returns the seconds until the next look.

        Several times that passed while no process looked lead to one run.
        """
        stored = await runs.schedule(self._pools.rest, self._sweep.name, self._runner.times.dead_after)
        expression = self.default if stored.schedule is None else stored.schedule
        due = cron.last_due(expression, stored.at)
        if due is not None and due > stored.due_after:
            await self._runner.in_turn(self._sweep, due=DueTime(due, stored.schedule))
        elif stored.abandoned:
            await self._runner.in_turn(self._sweep)
        following = cron.next_due(expression, stored.at)
        if following is None:
            return LOOK_SECONDS
        return min(LOOK_SECONDS, (following - stored.at).total_seconds() + 0.01)


class Reapers(Core):
    """Runs the sweeps of a service, by interval and on demand. There are none before `start`."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.sweeps: dict[str, Sweep] = {}
        self._pools = engine.pools
        self._phase = 0.0
        self.runner = Runner(engine.pools, engine)
        self.deletion = CronSchedule(engine.pools, self.runner, DELETE)
        self._loops: list[Loop] = []
        engine.metrics.levels.append(self._levels)

    def start(self, sweeps: Sequence[Sweep], *, phase: float = 0.0, schedule: str = "") -> None:
        """Start running sweeps by their intervals, and `delete` by its schedule.

        phase: the part of a sweep's interval before its first run, from 0 to below 1. Each process of a service has its
        own phase, as they start together.
        schedule: the default schedule of deleting expired jobs.
        """
        self.sweeps = {sweep.name: sweep for sweep in sweeps}
        self._phase, self.deletion.default = phase, schedule
        self._loops = [*(self._loop(sweep, sweep.every) for sweep in sweeps if sweep.every), self.deletion.loop]
        for loop in self._loops:
            loop.start()

    async def drain(self) -> None:
        await asyncio.gather(*(loop.stop() for loop in self._loops), self.runner.stop())

    async def run(self, name: str, wait_seconds: float | None = None) -> RunOutcome:
        """Run a sweep by name with `Runner.run`. Raises NotFound."""
        return await self.runner.run(self.sweep_named(name), wait_seconds)

    def sweep_named(self, name: str) -> Sweep:
        """Return a sweep by name. Raises NotFound."""
        sweep = self.sweeps.get(name)
        if sweep is None:
            raise NotFound(f"Reaper {name[:80]!r} does not exist. The reapers are {', '.join(self.sweeps)}.")
        return sweep

    async def states(self) -> list[SweepState]:
        last = await runs.read(self._pools.rest, list(self.sweeps), self.runner.times.dead_after)
        return [SweepState(sweep, last.get(name)) for name, sweep in self.sweeps.items()]

    async def earlier(self, name: str) -> list[LastRun]:
        """Read a sweep's last runs of any process that moved something or failed, newest first. Raises NotFound."""
        return await runs.earlier(self._pools.rest, self.sweep_named(name).name)

    def _levels(self) -> Iterable[tuple[Family, Labels, float]]:
        for name, last in self.runner.last.items():
            yield catalogue.SWEEP_LAST, (name,), last

    def _loop(self, sweep: Sweep, every: float) -> Loop:
        async def once() -> None:
            # Skip the run if another process has just made one.
            await self.runner.in_turn(sweep, rested=every / 2)

        return Loop(f"run {sweep.name}", once, every, first=every * self._phase, jitter=0.2)


async def run_once(
    url: str,
    sweeps: Sequence[Sweep],
    report: Callable[[str, RunOutcome | Exception], None],
    *,
    defaults: Defaults = DEFAULTS,
    to_files: bool = False,
    times: RunTimes | None = None,
) -> bool:
    """Run sweeps in sequence, or join their runs. Returns whether all succeeded. A failure does not stop the others.

    report: called every two seconds with a sweep's progress, and with its outcome.
    """
    pools = await open_pools(url, hot=2, rest=3, prepared_statements=False)
    fine = True
    try:
        engine = Engine(pools, Policies(pools.rest, defaults), max_waiting=1_000, to_files=to_files)
        runner = Runner(pools, engine, times)
        try:
            for sweep in sweeps:
                outcome: RunOutcome | Exception = RunOutcome(0, running=True)
                while isinstance(outcome, RunOutcome) and outcome.running:
                    try:
                        outcome = await runner.run(sweep, REPORT_SECONDS)
                    except (*UNREACHABLE, HoldfastError) as error:
                        fine, outcome = False, error
                    report(sweep.name, outcome)
        finally:
            await runner.stop()
            engine.stop()
            await engine.drain()
    finally:
        await pools.close(5)
    return fine
