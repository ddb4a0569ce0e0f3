"""Runs the sweeps: in a loop beside the service, or once for cron."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.db.pool import UNREACHABLE, open_pools
from app.engine.engine import Engine
from app.errors import HoldfastError
from app.metrics import catalogue
from app.metrics.catalogue import Family
from app.metrics.numbers import Labels
from app.reapers import sweeps
from app.topics.cache import Policies
from app.topics.config import DEFAULTS, Defaults

if TYPE_CHECKING:
    from app.db.pool import Pools

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep, and how often it runs, in seconds."""

    name: str
    run: Callable[[Pools, Engine], Awaitable[int]]
    every: float


SWEEPS: Final = (
    Sweep("partitions", sweeps.partitions, 3600),
    Sweep("expiry", sweeps.expiry, 60),
    Sweep("exhaustion", sweeps.exhaustion, 60),
    Sweep("retention", sweeps.retention, 3600),
    Sweep("tallies", sweeps.tallies, 3600),
    Sweep("logs", sweeps.logs, 5),
    Sweep("idempotency", sweeps.idempotency, 60),
    Sweep("watches", sweeps.watches, 60),
)


class Reapers:
    """The sweeps as tasks of a running service.

    `phase`, from 0 to below 1, is the part of a sweep's interval that passes before its first run: the workers of one
    service start together, and each has its own.
    """

    def __init__(self, pools: Pools, engine: Engine, *, phase: float = 0.0) -> None:
        self._pools = pools
        self._engine = engine
        self._phase = phase
        self._tasks: list[asyncio.Task[None]] = []
        self._last: dict[str, float] = {}  # when a sweep last succeeded, in s since 1970
        engine.metrics.levels.append(self._levels)

    def start(self) -> None:
        """Start one loop a sweep."""
        self._tasks = [asyncio.create_task(self._loop(sweep)) for sweep in SWEEPS]

    async def stop(self) -> None:
        """Stop them; a statement under way is rolled back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _levels(self) -> Iterable[tuple[Family, Labels, float]]:
        for name, last in self._last.items():
            yield catalogue.SWEEP_LAST, (name,), last

    async def _loop(self, sweep: Sweep) -> None:
        await asyncio.sleep(sweep.every * self._phase)
        metrics = self._engine.metrics
        runs = {outcome: metrics.counter(catalogue.SWEEP_RUNS, sweep.name, outcome) for outcome in ("ok", "failed")}
        moved, seconds = (
            metrics.counter(catalogue.SWEEP_MOVED, sweep.name),
            metrics.counter(catalogue.SWEEP_SECONDS, sweep.name),
        )
        while True:
            began = time.monotonic()
            outcome = "failed"
            try:
                done = await sweep.run(self._pools, self._engine)
                log.log(logging.INFO if done else logging.DEBUG, "%s: %d", sweep.name, done)
                pause = sweep.every
                outcome = "ok"
                moved.add(done)
                self._last[sweep.name] = time.time()
            except (*UNREACHABLE, HoldfastError) as error:
                log.warning("%s: %r; trying again", sweep.name, error)
                pause = min(sweep.every, 5.0)
            except Exception:
                log.exception("%s failed; trying again", sweep.name)
                pause = sweep.every
            runs[outcome].add()
            seconds.add(time.monotonic() - began)
            # Apart from those of other services, that started at the same moment.
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311


async def run_all(url: str, defaults: Defaults = DEFAULTS) -> dict[str, int]:
    """Run each sweep once: name → how much it did. For cron. Raises what the database raises."""
    pools = await open_pools(url, hot=2, rest=2, prepared_statements=False)
    try:
        engine = Engine(pools, Policies(pools.rest, defaults), max_waiting=1_000)
        return {sweep.name: await sweep.run(pools, engine) for sweep in SWEEPS}
    finally:
        await pools.close(5)
