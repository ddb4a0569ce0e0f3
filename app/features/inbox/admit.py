"""Looks at what SQL users have inserted for topics with a schema: what fits becomes jobs, the rest is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from app.base.loops import Loop
from app.errors import TopicNotFound
from app.features.inbox import inbox

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.features.inbox.inbox import Row
    from app.kernel.engine import Engine

BATCH: Final = 500
TOPICS: Final = 100
SECONDS: Final = 0.5
IDLE: Final = 5.0  # while no topic has a schema
JITTER: Final = 0.2


def loop(engine: Engine) -> Loop:
    """The loop that looks at the inbox: again at once for as long as there is more."""

    async def once() -> float:
        if not await inbox.is_used(engine.pools.rest):
            return IDLE
        return 0.0 if await run_once(engine.pools, engine) else SECONDS

    return Loop("look at the inbox", once, SECONDS, jitter=JITTER)


async def run_once(pools: Pools, engine: Engine) -> int:
    """Look at up to BATCH rows of each topic: how many were settled. A topic that has no room is left for later."""
    settled, after = 0, ""
    while names := await inbox.topics(pools.rest, after, TOPICS):
        for name in names:
            settled += await _settle(pools, engine, name)
        after = names[-1]
    return settled


async def _settle(pools: Pools, engine: Engine, topic: str) -> int:
    try:
        policy = await engine.policies.get(topic)
        version = policy.schema_version
    except TopicNotFound:
        policy, version = None, None
    try:
        async with pools.rest.acquire() as db, db.transaction():
            rows = await inbox.take(db, topic, BATCH)
            fit: list[Row] = []
            faulty: list[tuple[str, Row]] = []
            for row in rows:
                fault = await engine.checks.fault(policy, row.payload, row.content_type) if policy is not None else None
                if fault is None:
                    fit.append(row)
                else:
                    faulty.append((f"{fault.path or '(the whole)'}: {fault.text}", row))
            if fit:
                try:
                    async with db.transaction():
                        await inbox.admit(db, topic, version, fit)
                except (asyncpg.UndefinedObjectError, asyncpg.WrongObjectTypeError) as error:
                    faulty += [(str(error), row) for row in fit]
            if faulty:
                await inbox.reject(db, topic, [reason for reason, _ in faulty], [row for _, row in faulty])
        engine.metrics.topic(topic).unfit.add(len(rows) - len(fit))
    except asyncpg.ConfigurationLimitExceededError:
        return 0  # they stay where they are
    finally:
        engine.policies.forget(topic)  # so that a schema that was changed is soon known
    return len(rows)
