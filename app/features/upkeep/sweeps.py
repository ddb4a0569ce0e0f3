"""The sweeps. Each is made of bounded batches and says how much it moved; a loop, a route, a cron job and tests call
the same ones. Any number of them at once is right; `pace` is for what only one run at a time should tell."""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.db import sql
from app.base.pace import Pace
from app.features.inbox import inbox
from app.features.jobs import operations
from app.features.jobs import redrive_rows as redrive
from app.features.jobs.redrives import Redrives
from app.features.logs import store as watched
from app.http.signin import limiter
from app.kernel import days
from app.kernel.counts import inspector
from app.kernel.enqueue import producer
from app.kernel.logs import log as records
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exits import BATCH
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from app.kernel.user_events import rows as events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

BY_DAY: Final = ("lease_events", "archive", "results")
PARTITIONS_AHEAD: Final = 3  # days
EVENTS_KEPT: Final = 7  # days, where there is no topic
REJECTED_KEPT: Final = timedelta(days=14)
WRITES_KEPT: Final = timedelta(days=366)
OPERATIONS_KEPT: Final = timedelta(days=14)
USER_EVENTS_KEPT: Final = timedelta(minutes=5)
MOST_USER_EVENTS: Final = 100_000  # of all users
SWEEP_BATCH: Final = 500  # jobs of one transaction: what claims beside it may have to wait for
PAGE: Final = 500
LOG_BATCH: Final = 5_000  # records of one log in one transaction: appends to it wait so long
LOG_PASSES: Final = 200

log = logging.getLogger(__name__)

_SQL: Final = sql.load_all(__package__)
_CREATE_PARTITIONS = _SQL["create_partitions"]
_ORPHANS = _SQL["orphans"]
_EVENTS_KEPT = _SQL["events_kept"]
_EXPIRING = _SQL["expiring"]
_KEYED_LEASES = _SQL["keyed_leases"]


async def partitions(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Make the days of tables by day ahead of time: how many."""
    pace = pace or Pace()
    for table in BY_DAY:
        await pace.batch(partial(pools.rest.fetchval, _CREATE_PARTITIONS, table, PARTITIONS_AHEAD))
    return pace.moved


async def retention(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Drop the days of events and results that nobody is shown any more: how many. Where days are kept as files, one
    that is not yet stays. One that is being read for long fails it, and goes another time."""
    pace = pace or Pace()
    kept = await pools.rest.fetchval(_EVENTS_KEPT, EVENTS_KEPT)
    if kept is not None:
        await pace.batch(partial(days.drop, pools.rest, "lease_events", kept, only_archived=engine.to_files))
    await pace.batch(partial(days.drop_results, pools.rest, only_archived=engine.to_files))
    return pace.moved


async def expiry(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Mark jobs whose time to live has passed: how many."""
    pace = pace or Pace()
    after = ""
    while found := await pools.rest.fetch(_EXPIRING, after, PAGE):
        for row in found:
            policy = await store.get(pools.rest, row["topic"], engine.policies.defaults) if row["due"] else None
            if policy is not None:
                await pace.drain(partial(engine.exits.expire, policy, pools.rest, SWEEP_BATCH), SWEEP_BATCH)
        after = found[-1]["topic"]
    return pace.moved


async def exhaustion(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Take out jobs whose last delivery ended in silence: how many."""
    pace = pace or Pace()
    async for policy in _queues(pools, engine):
        if policy.budget.ends:
            await pace.drain(partial(engine.exits.exhaust_all, policy))
    return pace.moved


async def superseded(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """End jobs whose lease ended in silence while a newer one of their key waits: how many."""
    pace = pace or Pace()
    after = ""
    while found := await pools.rest.fetch(_KEYED_LEASES, after, PAGE):
        for row in found:
            policy = await store.get(pools.rest, row["topic"], engine.policies.defaults) if row["leased"] else None
            if policy is not None:
                await pace.batch(partial(engine.exits.supersede, policy))
        after = found[-1]["topic"]
    return pace.moved


async def delete(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Delete jobs that were marked as expired, however long ago: how many."""
    pace = pace or Pace()
    async for policy in _queues(pools, engine):
        place: tuple[datetime, int] | None = (_BEGINNING, 0)
        while place is not None:
            place = await _delete_from(pools, policy.topic.name, place, pace)
    return pace.moved


async def _delete_from(
    pools: Pools, topic: str, place: tuple[datetime, int], pace: Pace
) -> tuple[datetime, int] | None:
    """Delete the expired ones of the next finished jobs of a topic: where these end, None at the end."""
    last: tuple[datetime, int] | None = None

    async def move() -> int:
        nonlocal last
        count, last = await exits.delete_expired(pools.rest, topic, place, SWEEP_BATCH)
        return count

    await pace.batch(move)
    return last


async def finished(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Delete jobs that failed or expired longer ago than their topic keeps them, dead letters that nobody wanted for so
    long, rejected rows of the inbox, and what is left of writes of many connections: how many."""
    pace = pace or Pace()
    await pace.drain(partial(inbox.forget, pools.rest, REJECTED_KEPT, BATCH), BATCH)
    await pace.drain(partial(inbox.drop_staged, pools.rest, BATCH), BATCH)
    await pace.drain(partial(inbox.forget_writes, pools.rest, WRITES_KEPT, BATCH), BATCH)
    async for policy in _queues(pools, engine):
        keep = timedelta(milliseconds=policy.config.dead_ttl_ms)
        if keep:
            for sweep in (exits.sweep_finished, redrive.sweep):
                await pace.drain(partial(sweep, pools.rest, policy.topic.name, keep, SWEEP_BATCH), SWEEP_BATCH)
    return pace.moved


async def requeues(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Go on with operations whose process is dead, and forget those that ended long ago: how many."""
    pace = pace or Pace()
    await pace.batch(engine.core(Redrives).adopt)
    await pace.drain(partial(operations.sweep, pools.rest, OPERATIONS_KEPT, BATCH), BATCH)
    return pace.moved


async def tallies(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Count every queue's jobs one by one, and set its counts right: by how many they were off in all.

    They are right by themselves, unless somebody wrote to the jobs table past the service.
    """
    pace = pace or Pace()
    await pools.rest.fetchval(_ORPHANS)
    async for policy in _queues(pools, engine):
        await pace.batch(partial(_reconcile, pools, policy))
    return pace.moved


async def _reconcile(pools: Pools, policy: Policy) -> int:
    async with pools.rest.acquire() as db, db.transaction():
        off = await inspector.reconcile(db, policy.topic)
    if off:
        log.warning("the counts of topic %s were off by %d jobs, and are right again", policy.topic.name, off)
    return off


async def logs(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Take out of logs what is too old, and what is above caps that were lowered: how many records."""
    pace = pace or Pace()
    for _ in range(LOG_PASSES):
        overdue = await store.overdue_logs(pools.rest, PAGE)
        for policy in overdue:
            with contextlib.suppress(records.Gone):
                await pace.batch(partial(records.trim, pools.rest, policy.topic, policy.log_limits, LOG_BATCH))
        if not overdue:
            break
    return pace.moved


async def idempotency(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Forget idempotency keys, dedupe ids and tries to sign in whose window has passed: how many."""
    pace = pace or Pace()
    await pace.drain(partial(records.sweep_keys, pools.rest, BATCH), BATCH)
    await pace.drain(partial(producer.sweep_dedupe, pools.rest, BATCH), BATCH)
    await pace.drain(partial(limiter.sweep, pools.rest, BATCH), BATCH)
    return pace.moved


async def watches(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Forget watches whose time without a connection has passed: how many."""
    pace = pace or Pace()
    await pace.drain(partial(watched.sweep, pools.rest, BATCH), BATCH)
    return pace.moved


async def user_events(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Forget events for users that are old, or too many: how many."""
    pace = pace or Pace()
    await pace.drain(partial(events.sweep, pools.rest, USER_EVENTS_KEPT, MOST_USER_EVENTS, BATCH), BATCH)
    return pace.moved


async def _queues(pools: Pools, engine: Engine) -> AsyncIterator[Policy]:
    """Every queue, one by one."""
    async for page in store.queues(pools.rest, PAGE, defaults=engine.policies.defaults):
        for policy in page:
            yield policy


_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
