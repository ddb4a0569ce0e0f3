"""Which sweeps there are, and what makes them run: time, beside the service; or somebody who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from app.base.db.pool import open_pools
from app.base.loops import Loop
from app.base.metrics import Labels, catalogue
from app.base.metrics.catalogue import Family
from app.base.outages import UNREACHABLE
from app.errors import HoldfastError, NotFound
from app.features.archive import sweep as archive
from app.features.stats import depths
from app.features.stats import sweep as stats
from app.features.upkeep import follow, runs, sweeps
from app.features.upkeep.runner import Outcome, Runner, Sweep, Times
from app.features.upkeep.runs import Last
from app.features.upkeep.schedule import Schedule
from app.kernel.engine import Core, Engine
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import DEFAULTS, Defaults

EASE: Final = 4.0  # a fifth of one connection's time
MORE_EASE: Final = 6.0  # of what may be a million jobs at one instant, and nobody waits for
TOLD_EVERY: Final = 2.0  # seconds
MOST_WAIT_MS: Final = 55_000  # for the end of a run that is asked for: below the minute after which proxies give up

EXPIRY: Final = Sweep("expiry", sweeps.expiry, 60, MORE_EASE)
DELETE: Final = Sweep("delete", sweeps.delete, None, EASE)
ARCHIVE: Final = Sweep("archive", archive.sweep, 3600, EASE)
SWEEPS: Final = (
    Sweep("partitions", sweeps.partitions, 3600),
    EXPIRY,
    Sweep("exhaustion", sweeps.exhaustion, 60, EASE),
    Sweep("superseded", sweeps.superseded, 60, EASE),
    DELETE,
    Sweep("finished", sweeps.finished, 3600, EASE),
    Sweep("retention", sweeps.retention, 3600),
    ARCHIVE,
    Sweep("tallies", sweeps.tallies, 3600),
    Sweep("logs", sweeps.logs, 30),
    Sweep("idempotency", sweeps.idempotency, 60, EASE),
    Sweep("watches", sweeps.watches, 60),
    Sweep("user_events", sweeps.user_events, 15),
    Sweep("requeues", sweeps.requeues, 20),
    Sweep("stats", stats.fill, 20, EASE),
    Sweep("depths", depths.look, 60, EASE),
    Sweep("old_stats", stats.forget, 3600, EASE),
)


class State(msgspec.Struct, frozen=True):
    """A sweep and its last run, None before the first."""

    sweep: Sweep
    last: Last | None


class Reapers(Core):
    """The sweeps of a running service: as tasks, and on demand."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pools = engine.pools
        self._phase = 0.0
        self.runner = Runner(engine.pools, engine)
        self.deletion = Schedule(engine.pools, self.runner, DELETE)
        self._loops: list[Loop] = []
        engine.metrics.levels.append(self._levels)

    def start(self, *, phase: float = 0.0, schedule: str = "") -> None:
        """Start one loop a sweep, and those that follow the schedule, look at the inbox and for
        groups, and write down what was read.

        `phase`, from 0 to below 1, is the part of a sweep's interval that passes before its first run: the workers of
        one service start together, and each has its own. `schedule` is when expired jobs are deleted, unless it is set.
        """
        self._phase, self.deletion.default = phase, schedule
        self._loops = [
            *(self._loop(sweep, sweep.every) for sweep in SWEEPS if sweep.every),
            self.deletion.loop,
            follow.inbox_rows(self._pools, self._engine),
            follow.groups(self._engine),
            follow.uses(self._engine),
        ]
        for loop in self._loops:
            loop.start()

    async def drain(self) -> None:
        """Stop them, and runs that were asked for; a statement under way is rolled back."""
        await asyncio.gather(*(loop.stop() for loop in self._loops), self.runner.stop())

    async def run(self, name: str, wait_seconds: float | None = None) -> Outcome:
        """As Runner.run, of the sweep with this name. Raises NotFound."""
        return await self.runner.run(named(name), wait_seconds)

    async def states(self) -> list[State]:
        """Every sweep, and how it went last, in whichever process."""
        last = await runs.read(self._pools.rest, [sweep.name for sweep in SWEEPS], self.runner.times.dead_after)
        return [State(sweep, last.get(sweep.name)) for sweep in SWEEPS]

    async def earlier(self, name: str) -> list[Last]:
        """Its last runs that moved something, or failed, in whichever process, the last one first. Raises NotFound."""
        return await runs.earlier(self._pools.rest, named(name).name)

    def _levels(self) -> Iterable[tuple[Family, Labels, float]]:
        for name, last in self.runner.last.items():
            yield catalogue.SWEEP_LAST, (name,), last

    def _loop(self, sweep: Sweep, every: float) -> Loop:
        async def once() -> None:
            # However many processes there are, what one has just done is done.
            await self.runner.in_turn(sweep, rested=every / 2)

        return Loop(f"run {sweep.name}", once, every, first=every * self._phase, jitter=0.2)


def named(name: str) -> Sweep:
    """A sweep. Raises NotFound."""
    for sweep in SWEEPS:
        if sweep.name == name:
            return sweep
    raise NotFound(f"There is no reaper {name[:80]!r}; there are {', '.join(sweep.name for sweep in SWEEPS)}.")


async def run_once(
    url: str,
    names: Sequence[str],
    told: Callable[[str, Outcome | Exception], None],
    *,
    defaults: Defaults = DEFAULTS,
    to_files: bool = False,
    times: Times | None = None,
) -> bool:
    """Run these sweeps one after the other, or join their runs; without names, all that run by themselves. For cron.

    `told` hears how far each is every two seconds, and its end; a sweep that fails stops no other. Whether none failed.
    """
    wanted = [named(name) for name in names] or [sweep for sweep in SWEEPS if sweep.every]
    pools = await open_pools(url, hot=2, rest=3, prepared_statements=False)
    fine = True
    try:
        engine = Engine(pools, Policies(pools.rest, defaults), max_waiting=1_000, to_files=to_files)
        runner = Runner(pools, engine, times)
        try:
            for sweep in wanted:
                outcome: Outcome | Exception = Outcome(0, running=True)
                while isinstance(outcome, Outcome) and outcome.running:
                    try:
                        outcome = await runner.run(sweep, TOLD_EVERY)
                    except (*UNREACHABLE, HoldfastError) as error:
                        fine, outcome = False, error
                    told(sweep.name, outcome)
        finally:
            await runner.stop()
            engine.stop()
            await engine.drain()
    finally:
        await pools.close(5)
    return fine
