"""Runs sweeps, each at most once at a time over all processes: who wants one that is under way joins it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import msgspec

from app.base import tasks
from app.base.metrics import catalogue
from app.base.outages import UNREACHABLE
from app.base.pace import Pace
from app.errors import ShuttingDown, Unavailable
from app.features.upkeep import runs
from app.features.upkeep.runs import NONE, Due, Last

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.features.feature import Sweep
    from app.kernel.engine import Engine

LEAVE_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class Times(msgspec.Struct, frozen=True):
    """In seconds: between signs of life of a run; without one until its process counts as dead; and between looks at
    a run of another process, the first and the longest."""

    beat: float = 2.0
    dead: float = 30.0
    look: float = 0.05
    longest_look: float = 1.0

    @property
    def dead_after(self) -> timedelta:
        return timedelta(seconds=self.dead)


class Outcome(msgspec.Struct, frozen=True):
    """What a run has moved, in whichever process; `running`: so far."""

    moved: int
    running: bool = False


class _Shared(msgspec.Struct):
    """What this process knows of a run that it makes or has joined."""

    moved: int = 0
    pace: Pace | None = None  # where it is this process's

    def so_far(self) -> int:
        return self.moved if self.pace is None else self.pace.moved


class Runner:
    """The runs that this process makes or has joined. They go on when those who asked for them have left."""

    def __init__(self, pools: Pools, engine: Engine, times: Times | None = None) -> None:
        self.times = times or Times()
        self._pools = pools
        self._engine = engine
        self._under_way: dict[str, tuple[asyncio.Task[Outcome], _Shared]] = {}
        self.last: dict[str, float] = {}  # when a sweep last succeeded, as far as is known here, in s since 1970

    async def run(self, sweep: Sweep, wait_seconds: float | None = None) -> Outcome:
        """Run a sweep or join a run, and wait up to `wait_seconds` for its end.

        Raises Unavailable where a run of another process failed, ShuttingDown, and what the database raises.
        """
        task, shared = self._under_way.get(sweep.name) or self._start(sweep)
        await asyncio.wait([task], timeout=wait_seconds)
        if not task.done():
            return Outcome(shared.so_far(), running=True)
        if task.cancelled():
            raise ShuttingDown("The service is stopping. Another process goes on with the run when it is asked to.")
        return task.result()

    async def in_turn(self, sweep: Sweep, *, rested: float = 0, due: Due | None = None) -> bool:
        """Run a sweep, unless a run is under way or the last one ended less than `rested` seconds ago; with `due`, for
        a scheduled time that nobody has seen to. Whether it ran. Raises what the sweep raises."""
        if sweep.name in self._under_way:
            return False
        own = uuid4()
        moved = await self._begin(sweep, own, timedelta(seconds=rested), due)
        if moved is None:
            await self._note_last(sweep)
            return False
        if sweep.name in self._under_way:  # somebody was quicker, and will join what was begun here
            await self._drive(sweep, _Shared(moved), own, moved)
            return True
        task, _ = self._start(sweep, own, moved)
        await asyncio.wait([task])
        if task.cancelled():
            return False
        task.result()
        return True

    async def stop(self) -> None:
        """Leave what is under way to other processes; a statement is rolled back."""
        await tasks.end(*(task for task, _ in self._under_way.values()))

    def _start(self, sweep: Sweep, own: UUID | None = None, moved: int = 0) -> tuple[asyncio.Task[Outcome], _Shared]:
        shared = _Shared(moved)
        task = asyncio.create_task(self._go(sweep, shared, own))
        self._under_way[sweep.name] = task, shared

        def done(ended: asyncio.Task[Outcome]) -> None:
            del self._under_way[sweep.name]
            if not ended.cancelled():
                ended.exception()  # seen, even if nobody waits

        task.add_done_callback(done)
        return task, shared

    async def _go(self, sweep: Sweep, shared: _Shared, own: UUID | None) -> Outcome:
        """Make the run that was begun as `own`, else begin one, else join: to its end."""
        moved, ended = shared.moved if own is not None else None, None
        while ended is None:
            if own is None:
                moved = await self._begin(sweep, own := uuid4())
            ended = None if moved is None else await self._drive(sweep, shared, own, moved)
            ended = ended or await self._join(sweep, shared)
            own = None
        return ended

    async def _begin(self, sweep: Sweep, own: UUID, rested: timedelta = NONE, due: Due | None = None) -> int | None:
        dead = self.times.dead_after
        try:
            return await runs.begin(self._pools.rest, sweep.name, own, dead=dead, rested=rested, due=due)
        except asyncio.CancelledError:
            await self._leave(sweep.name, own, None)  # it may have been begun
            raise

    async def _drive(self, sweep: Sweep, shared: _Shared, own: UUID, moved: int) -> Outcome | None:
        """Make a run; None if another process has taken it over, because this one gave no sign of life."""
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
            return Outcome(pace.moved)
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
        """Give signs of life until the run is not this process's any more."""
        ours = True
        while ours:
            await asyncio.sleep(self.times.beat)
            try:
                ours = await runs.beat(self._pools.rest, name, own, pace.moved)
            except UNREACHABLE as error:
                log.warning("%s can't give a sign of life: %r", name, error)

    async def _join(self, sweep: Sweep, shared: _Shared) -> Outcome | None:
        """Wait for the end of another process's run; None if it was left behind."""
        pause, joined = self.times.look, None
        while (last := await self._read(sweep)) is not None:
            joined = joined or last
            if last.started_at != joined.started_at:  # and ours had ended before
                return Outcome(shared.moved)
            shared.moved = last.moved
            if last.finished_at is not None:
                if last.error is not None:
                    raise Unavailable(f"The run failed, after it had moved {last.moved}: {last.error}")
                return Outcome(last.moved)
            if not last.running:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self.times.longest_look)
        return None

    async def _read(self, sweep: Sweep) -> Last | None:
        return (await runs.read(self._pools.rest, [sweep.name], self.times.dead_after)).get(sweep.name)

    async def _note_last(self, sweep: Sweep) -> None:
        last = await self._read(sweep)
        if last is not None and last.finished_at is not None and last.error is None:
            self.last[sweep.name] = last.finished_at.timestamp()
