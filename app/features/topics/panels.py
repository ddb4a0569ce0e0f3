"""What is around a queue: who works on it, whose its jobs are, which groups wait, and what comes by the clock."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.requests import Request

from app.base.outages import TOO_SLOW
from app.features.schedules.changes import Schedules
from app.features.schedules.page import Row, row
from app.http.context import Context, context_of
from app.kernel.counts import holders
from app.kernel.counts.holders import LOOKED_AT, Holder, WaitingGroup
from app.kernel.tenants.census import Census
from app.kernel.tenants.tenants import Stats
from app.kernel.topics.policy import Policy
from app.pages.permissions import SEE_SCHEDULES, allows

MOST: Final = 8  # of each that are shown
MOST_IDLE: Final = 20  # of workers that wait for a job
PATIENCE_MS: Final = 200  # that looking for workers and groups may take; and that a page waits for tenants' counts
SECONDS: Final = 3  # that counting tenants' jobs may take


class Around(msgspec.Struct, frozen=True):
    """None where something can't be had in time, empty lists where there is none. `waiting`: calls of this process that
    wait for a job; `idle`: whose they are, by name, and `idle_more` how many more there are."""

    workers: list[Holder] | None
    waiting: int
    idle: list[str]
    idle_more: int
    groups: list[WaitingGroup] | None
    tenants: list[Stats] | None
    schedules: list[Row]
    more: frozenset[str]  # of which lists there are more

    @property
    def exact(self) -> bool:
        """Whether these hold all that was looked at, and that is less than is looked at."""
        return "workers" not in self.more and sum(one.held for one in self.workers or ()) < LOOKED_AT


async def read(request: Request, policy: Policy) -> Around:
    """What is around a queue. Raises what asyncpg raises."""
    context, topic = context_of(request), policy.topic
    workers = groups = None
    try:
        async with context.pools.rest.acquire() as db, db.transaction(readonly=True):
            await db.execute(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
            workers = await holders.holders(db, topic, MOST + 1)
            groups = await holders.waiting_groups(db, topic, MOST + 1, policy.config.wait_goal_ms)
    except TOO_SLOW:
        pass
    tenants = await _tenants(context, policy)
    clocks = []
    if allows(request, SEE_SCHEDULES, topic.name):
        # A name has no "$", which ends one here.
        clocks = await context.core(Schedules).page("", "", MOST + 1, [f"{topic.name}$"])
    waiting = context.engine.waiters.nodes(topic.name)
    idle = sorted(set(waiting))
    lists = {"workers": workers, "groups": groups, "tenants": tenants, "schedules": clocks}
    return Around(
        None if workers is None else workers[:MOST],
        len(waiting),
        idle[:MOST_IDLE],
        max(len(idle) - MOST_IDLE, 0),
        None if groups is None else groups[:MOST],
        None if tenants is None else tenants[:MOST],
        [row(one) for one in clocks[:MOST]],
        frozenset(name for name, found in lists.items() if found and len(found) > MOST),
    )


async def _tenants(context: Context, policy: Policy) -> list[Stats] | None:
    """What tenants have, as of half a minute ago at most; nothing where there is but the default one."""
    lanes = await context.engine.lanes.of(context.pools.rest, policy.topic)
    if not any(lane.tenant for lane in lanes):
        return []

    async def count() -> list[Stats] | None:
        try:
            async with asyncio.timeout(SECONDS):
                return await context.core(Census).read(policy, limit=MOST + 1)
        except (TimeoutError, *TOO_SLOW):
            return None

    return await context.engine.kept.within(("tenants", policy.topic.id), count, PATIENCE_MS / 1000)
