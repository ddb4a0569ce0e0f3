"""A sweep's cron schedule: kept in PostgreSQL, the same for every process, and due by its clock, in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.base import cron
from app.base.loops import Loop
from app.errors import InvalidSchedule
from app.features.upkeep import runs
from app.features.upkeep.runs import Due
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.features.upkeep.runner import Runner, Sweep

LOOK_SECONDS: Final = 5.0  # within so long a schedule that was set elsewhere is known here


class Schedule:
    """Of one sweep. `default` stands for a schedule that was never set, "" for none."""

    def __init__(self, pools: Pools, runner: Runner, sweep: Sweep) -> None:
        self._pools = pools
        self._runner = runner
        self._sweep = sweep
        self.default = ""
        self.loop = Loop(f"follow the schedule of {sweep.name}", self.look, LOOK_SECONDS)

    async def get(self) -> str:
        """The schedule as of now; "" is none."""
        kept = await runs.schedule(self._pools.rest, self._sweep.name, self._runner.times.dead_after)
        return self.default if kept.schedule is None else kept.schedule

    async def set(self, text: str, by: Actor) -> str:
        """Set it, "" for none: as it is kept. Raises InvalidSchedule."""
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
        """Run the sweep if it is due, or go on with a run that was left behind: in how many seconds to look again.

        Of several times that went by while no process looked, one run is made.
        """
        kept = await runs.schedule(self._pools.rest, self._sweep.name, self._runner.times.dead_after)
        expression = self.default if kept.schedule is None else kept.schedule
        due = cron.last_due(expression, kept.at)
        if due is not None and due > kept.due_after:
            await self._runner.in_turn(self._sweep, due=Due(due, kept.schedule))
        elif kept.abandoned:
            await self._runner.in_turn(self._sweep)
        following = cron.next_due(expression, kept.at)
        if following is None:
            return LOOK_SECONDS
        return min(LOOK_SECONDS, (following - kept.at).total_seconds() + 0.01)
