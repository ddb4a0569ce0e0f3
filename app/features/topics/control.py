"""Holding a topic up and letting it go on, for whichever edge an operator comes by; and what is left of a queue that
takes in no more. docs/control.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.requests import Request

from app.base.db.pool import COMMAND_SECONDS
from app.http.context import context_of
from app.kernel.audit.trail import Action
from app.kernel.counts import inspector
from app.kernel.engine import Core, Engine
from app.kernel.topics import store
from app.kernel.topics.cache import TTL_SECONDS
from app.kernel.topics.policy import Control, Policy, check_name

LOOK_SECONDS: Final = 0.5
# By then every process knows of the drain, and what it let in before has ended.
CLOSE_SECONDS: Final = TTL_SECONDS + COMMAND_SECONDS


async def hold(request: Request, name: str, change: Callable[[Control], Control], action: Action) -> Control:
    """What `change` makes of how a topic is held up, with an entry in the audit trail. Who asks was let do that.

    Raises InvalidRequest, TopicNotFound, NotAQueue, and what `change` raises.
    """
    context = context_of(request)
    by = context.access.actor(request)
    control = await store.control(context.pools.rest, check_name(name), change, action, by)
    context.policies.changed(name)
    if action is Action.TOPIC_RESUMED:
        context.engine.resumed((await context.policies.queue(name)).topic.id)
    return control


class Left(NamedTuple):
    """Jobs that wait, are scheduled or blocked, or are worked on; in how many ms no process takes in any more, 0 once
    that is so; and whether that is the end: there are none, and none can come."""

    jobs: int
    closes_in_ms: int
    empty: bool


class Drains(Core):
    """Looks at drained queues."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.close_seconds = CLOSE_SECONDS

    async def wait(self, name: str, seconds: float) -> Left:
        """What is left of a queue, once that is nothing or after so many seconds. Raises TopicNotFound."""
        until = time.monotonic() + seconds
        left = await self._look(await self._shared.policies.queue(name))
        while not left.empty and time.monotonic() + LOOK_SECONDS <= until:
            await asyncio.sleep(LOOK_SECONDS)
            left = await self._look(await self._shared.policies.queue(name))
        return left

    async def _look(self, policy: Policy) -> Left:
        db = self._shared.pools.rest
        closing = await store.closing(db, policy.topic.name, self.close_seconds)
        # Whoever has put something in by SQL, and not committed yet. Asked before the count: it may be seen by then.
        writing = await inspector.drawers(db, policy.topic)
        counts = await self._shared.counters.read(policy)
        jobs = counts.ready + counts.scheduled + counts.blocked + counts.in_flight
        if closing is None:  # resumed meanwhile
            return Left(jobs, 0, empty=False)
        jobs += closing.unchecked
        return Left(jobs, closing.in_ms, empty=not (jobs or closing.in_ms or writing))
