"""Sweeps of the tables that no feature owns, and background loops of the engine.

Any number of processes may run the same sweep at once.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.db import sql
from app.base.loops import Loop
from app.base.pace import Pace
from app.features.feature import EASE, Sweep, drains
from app.http.signin import sessions
from app.kernel import purges
from app.kernel.counts import inspector
from app.kernel.enqueue import producer
from app.kernel.logs import log as records
from app.kernel.settle import exit_rows as exits
from app.kernel.topics import store
from app.kernel.topics.policy import Policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

BY_DAY: Final = ("lease_events", "archive", "results")
PARTITIONS_AHEAD: Final = 3  # days
EVENTS_KEPT: Final = 7  # days, if there are no topics
SWEEP_BATCH: Final = 500  # jobs per transaction, as claims may have to wait for it
PAGE: Final = 500
GROUPS_SECONDS: Final = 0.5
GROUPS_IDLE: Final = 15.0  # while this process has met no groups
USES_SECONDS: Final = 10.0
JITTER: Final = 0.2
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)

log = logging.getLogger(__name__)

_SQL: Final = sql.load_all(__package__)
_CREATE_PARTITIONS = _SQL["create_partitions"]
_ORPHANS = _SQL["orphans"]
_EVENTS_KEPT = _SQL["events_kept"]
_EXPIRING = _SQL["expiring"]
_KEYED_LEASES = _SQL["keyed_leases"]


async def partitions(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Create the partitions of the coming days. Returns how many."""
    pace = pace or Pace()
    for table in BY_DAY:
        await pace.batch(partial(pools.rest.fetchval, _CREATE_PARTITIONS, table, PARTITIONS_AHEAD))
    return pace.moved


async def retention(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Drop days of events and results that are older than topics keep. Returns how many.

    If days are archived to files, a day stays until its file is written. If a long read locks a day, the sweep fails,
    and a later one drops the day.
    """
    pace = pace or Pace()
    kept = await pools.rest.fetchval(_EVENTS_KEPT, EVENTS_KEPT)
    if kept is not None:
        await pace.batch(partial(purges.drop_days, pools.rest, "lease_events", kept, only_archived=engine.to_files))
    await pace.batch(partial(purges.drop_days_of_results, pools.rest, only_archived=engine.to_files))
    return pace.moved


async def expiry(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Mark jobs whose time to live has passed as expired. Returns how many."""
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
    """Fail or dead-letter jobs without deliveries left whose lease has ended. Returns how many."""
    pace = pace or Pace()
    async for policy in _queues(pools, engine):
        if policy.budget.ends:
            await pace.drain(partial(engine.exits.remove_all_exhausted, policy))
    return pace.moved


async def supersede(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """End jobs whose lease has ended and whose key has a newer waiting job. Returns how many."""
    pace = pace or Pace()
    after = ""
    while found := await pools.rest.fetch(_KEYED_LEASES, after, PAGE):
        for row in found:
            policy = await store.get(pools.rest, row["topic"], engine.policies.defaults) if row["leased"] else None
            if policy is not None:
                await pace.batch(partial(engine.exits.end_superseded, policy))
        after = found[-1]["topic"]
    return pace.moved


async def delete(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Delete the jobs that are marked as expired. Returns how many."""
    pace = pace or Pace()
    async for policy in _queues(pools, engine):
        place: tuple[datetime, int] | None = (_BEGINNING, 0)
        while place is not None:
            place = await _delete_from(pools, policy.topic.name, place, pace)
    return pace.moved


async def _delete_from(
    pools: Pools, topic: str, place: tuple[datetime, int], pace: Pace
) -> tuple[datetime, int] | None:
    """Delete the expired jobs in a topic's next batch of finished jobs. Returns where it ends, None for the last."""
    last: tuple[datetime, int] | None = None

    async def move() -> int:
        nonlocal last
        count, last = await exits.delete_expired(pools.rest, topic, place, SWEEP_BATCH)
        return count

    await pace.batch(move)
    return last


async def tallies(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Count every queue's jobs one by one, and correct its counts. Returns by how many jobs they were wrong.

    Counts are only wrong if the jobs table was written to without the service.
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
        log.warning("the counts of topic %s were wrong by %d jobs and were corrected", policy.topic.name, off)
    return off


async def _queues(pools: Pools, engine: Engine) -> AsyncIterator[Policy]:
    async for page in store.queues(pools.rest, PAGE, defaults=engine.policies.defaults):
        for policy in page:
            yield policy


def groups(engine: Engine) -> Loop:
    """Build the loop that unblocks the next job of a group if the process that removed the previous job did not.

    That process may have been killed, may not have known the topic's groups, or the next job may have been locked. The
    first pass runs at once, for groups that a killed service has left blocked.
    """

    async def once() -> float:
        await engine.groups.sweep()
        return GROUPS_SECONDS if engine.groups.any_met else GROUPS_IDLE

    loop = Loop("look for groups", once, GROUPS_SECONDS, gap=GROUPS_SECONDS, jitter=JITTER)
    engine.groups.departed.subscribe(loop.wake)
    return loop


def uses(engine: Engine) -> Loop:
    """Build the loop that records which topics were read and written to. A process that dies loses the last seconds.
    Without calls, no statement is sent."""

    async def once() -> None:
        await engine.uses.flush()

    return Loop("write down which topics are used", once, USES_SECONDS, first=USES_SECONDS)


MORE_EASE: Final = 6.0  # a million jobs may expire at once, and no caller waits for them
EXPIRY: Final = Sweep("expiry", expiry, 60, MORE_EASE, "marks jobs as expired once their time to live has passed")
DELETE: Final = Sweep("delete", delete, None, EASE, "deletes jobs that are marked as expired")
# Deletes idempotency keys, dedupe ids and sign-in attempts whose window has passed.
idempotency: Final = drains(records.sweep_keys, producer.sweep_dedupe, sessions.sweep_tries)
SWEEPS: Final = (
    Sweep("partitions", partitions, 3600, moves="creates the partitions of the coming days"),
    EXPIRY,
    Sweep(
        "exhaustion",
        exhaustion,
        60,
        EASE,
        "fails jobs, or moves them to the dead letters, once their last lease has ended",
    ),
    Sweep("superseded", supersede, 60, EASE, "ends jobs that a newer job with the same key has replaced"),
    DELETE,
    Sweep("retention", retention, 3600, moves="drops old days of the ledger and of results"),
    Sweep("tallies", tallies, 3600, moves="counts jobs one by one and corrects the counts"),
    Sweep("idempotency", idempotency, 60, EASE, "deletes old idempotency keys and dedupe ids"),
)
