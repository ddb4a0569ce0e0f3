"""Run sweeps. Each has at most one run at a time over all processes. Callers join a run in progress."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import msgspec

from app.base.loops import end_tasks
from app.base.metrics import catalogue
from app.base.outages import UNREACHABLE
from app.base.pace import Pace
from app.errors import ShuttingDown, Unavailable
from app.features.upkeep import runs
from app.features.upkeep.runs import NONE, DueTime, LastRun

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.features.feature import Sweep
    from app.kernel.engine import Engine

LEAVE_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class RunTimes(msgspec.Struct, frozen=True):
    """Intervals in seconds.

    beat: between heartbeats of a run. dead: a process without a heartbeat for this long counts as dead.
    look, longest_look: between looks at another process's run, at first and at most.
    """

    beat: float = 2.0
    dead: float = 30.0
    look: float = 0.05
    longest_look: float = 1.0

    @property
    def dead_after(self) -> timedelta:
        return timedelta(seconds=self.dead)


class RunOutcome(msgspec.Struct, frozen=True):
    """How much a run of any process has moved. `running`: it has not ended."""

    moved: int
    running: bool = False


class _SharedRun(msgspec.Struct):
    moved: int = 0
    pace: Pace | None = None  # set while this process drives it

    def so_far(self) -> int:
        return self.moved if self.pace is None else self.pace.moved


class Runner:
    """The runs that this process drives or has joined. They continue after their callers have left."""

    def __init__(self, pools: Pools, engine: Engine, times: RunTimes | None = None) -> None:
        self.times = times or RunTimes()
        self._pools = pools
        self._engine = engine
        self._under_way: dict[str, tuple[asyncio.Task[RunOutcome], _SharedRun]] = {}
        self.last: dict[
            str, float
        ] = {}  # time of each sweep's last success that this process knows of, in s since 1970

    async def run(self, sweep: Sweep, wait_seconds: float | None = None) -> RunOutcome:
        """Run a sweep or join its run, and wait for its end, up to `wait_seconds`.

        Raises Unavailable if another process's run failed, ShuttingDown, and the database's errors.
        """
        task, shared = self._under_way.get(sweep.name) or self._start(sweep)
        await asyncio.wait([task], timeout=wait_seconds)
        if not task.done():
            return RunOutcome(shared.so_far(), running=True)
        if task.cancelled():
            raise ShuttingDown("The service is stopping. The next run of this reaper continues this one.")
        return task.result()

    async def in_turn(self, sweep: Sweep, *, rested: float = 0, due: DueTime | None = None) -> bool:
        """Run a sweep, unless a run is in progress or the last one ended less than `rested` seconds ago.

        due: run only if no process has run it for this scheduled time. Returns whether it ran. Raises its errors.
        """
        if sweep.name in self._under_way:
            return False
        own = uuid4()
        moved = await self._begin(sweep, own, timedelta(seconds=rested), due)
        if moved is None:
            await self._note_last(sweep)
            return False
        if sweep.name in self._under_way:  # a caller came first, and joins the run that was begun here
            await self._drive(sweep, _SharedRun(moved), own, moved)
            return True
        task, _ = self._start(sweep, own, moved)
        await asyncio.wait([task])
        if task.cancelled():
            return False
        task.result()
        return True

    async def stop(self) -> None:
        """Abandon all runs, so that other processes can continue them. Statements in progress are rolled back."""
        await end_tasks(*(task for task, _ in self._under_way.values()))

    def _start(
        self, sweep: Sweep, own: UUID | None = None, moved: int = 0
    ) -> tuple[asyncio.Task[RunOutcome], _SharedRun]:
        shared = _SharedRun(moved)
        task = asyncio.create_task(self._go(sweep, shared, own))
        self._under_way[sweep.name] = task, shared

        def forget_task(ended: asyncio.Task[RunOutcome]) -> None:
            del self._under_way[sweep.name]
            if not ended.cancelled():
                ended.exception()  # else asyncio logs it if no caller waits

        task.add_done_callback(forget_task)
        return task, shared

    async def _go(self, sweep: Sweep, shared: _SharedRun, own: UUID | None) -> RunOutcome:
        """Drive the run that was begun as `own`. Without `own`, begin a run or join another process's."""
        moved, ended = shared.moved if own is not None else None, None
        while ended is None:
            if own is None:
                moved = await self._begin(sweep, own := uuid4())
            ended = None if moved is None else await self._drive(sweep, shared, own, moved)
            ended = ended or await self._join(sweep, shared)
            own = None
        return ended

    async def _begin(self, sweep: Sweep, own: UUID, rested: timedelta = NONE, due: DueTime | None = None) -> int | None:
        dead = self.times.dead_after
        try:
            return await runs.begin(self._pools.rest, sweep.name, own, dead=dead, rested=rested, due=due)
        except asyncio.CancelledError:
            await self._leave(sweep.name, own, None)  # the run may have begun
            raise

    async def _drive(self, sweep: Sweep, shared: _SharedRun, own: UUID, moved: int) -> RunOutcome | None:
        """Drive a run to its end. Returns None if another process has taken it over for want of a heartbeat."""
        pace = shared.pace = Pace(sweep.ease, moved)
        rest, name = self._pools.rest, sweep.name
        sweeping = asyncio.ensure_future(sweep.run(self._pools, self._engine, pace))
        beating = asyncio.create_task(self._beat(name, own, pace))
        began, outcome = time.monotonic(), "failed"
        try:
            await asyncio.wait([sweeping, beating], return_when=asyncio.FIRST_COMPLETED)
            if not sweeping.done():
                log.warning("%s was taken over by another process", name)
                return None
            beating.cancel()
            try:
                sweeping.result()
            except Exception as error:
                with contextlib.suppress(*UNREACHABLE):
                    await runs.end(rest, name, own, pace.moved, repr(error))
                raise
            await runs.end(rest, name, own, pace.moved)
            outcome = "ok"
            self.last[name] = time.time()
            log.log(logging.INFO if pace.moved else logging.DEBUG, "%s: %d", name, pace.moved)
            return RunOutcome(pace.moved)
        except asyncio.CancelledError:
            sweeping.cancel()
            await asyncio.wait([sweeping], timeout=LEAVE_SECONDS)
            await self._leave(name, own, pace.moved)
            raise
        finally:
            sweeping.cancel()
            beating.cancel()
            shared.moved, shared.pace = pace.moved, None
            metrics = self._engine.metrics
            metrics.counter(catalogue.SWEEP_RUNS, name, outcome).add()
            metrics.counter(catalogue.SWEEP_MOVED, name).add(pace.moved - moved)
            metrics.counter(catalogue.SWEEP_SECONDS, name).add(time.monotonic() - began)

    async def _leave(self, name: str, own: UUID, moved: int | None) -> None:
        with contextlib.suppress(*UNREACHABLE):
            await asyncio.wait_for(runs.leave(self._pools.rest, name, own, moved), LEAVE_SECONDS)

    async def _beat(self, name: str, own: UUID, pace: Pace) -> None:
        ours = True
        while ours:
            await asyncio.sleep(self.times.beat)
            try:
                ours = await runs.beat(self._pools.rest, name, own, pace.moved)
            except UNREACHABLE as error:
                log.warning("the heartbeat of %s failed: %r", name, error)

    async def _join(self, sweep: Sweep, shared: _SharedRun) -> RunOutcome | None:
        """Wait for the end of another process's run. Returns None if that process has died or stopped."""
        pause, joined = self.times.look, None
        while (last := await self._read(sweep)) is not None:
            joined = joined or last
            if last.started_at != joined.started_at:  # the joined run has ended, and another one has begun
                return RunOutcome(shared.moved)
            shared.moved = last.moved
            if last.finished_at is not None:
                if last.error is not None:
                    raise Unavailable(f"The run failed after it had moved {last.moved}: {last.error}")
                return RunOutcome(last.moved)
            if not last.running:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self.times.longest_look)
        return None

    async def _read(self, sweep: Sweep) -> LastRun | None:
        return (await runs.read(self._pools.rest, [sweep.name], self.times.dead_after)).get(sweep.name)

    async def _note_last(self, sweep: Sweep) -> None:
        last = await self._read(sweep)
        if last is not None and last.finished_at is not None and last.error is None:
            self.last[sweep.name] = last.finished_at.timestamp()
