"""Runs operations in the background: requeues and cancels of many jobs, in batches. docs/adr/0024.

An operation belongs to the process that sends its heartbeats. A batch and the operation's progress are one transaction,
so a process that takes over neither skips a job nor takes it twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import asyncpg
import msgspec

from app.base.outages import LOST_RACE, TOO_SLOW, UNREACHABLE
from app.errors import HoldfastError
from app.features.jobs import operations, requeues
from app.features.jobs.changes import CancelResult, cancel_batch, count_live, report_cancels
from app.features.jobs.operations import (
    LAST,
    Filter,
    MatchCount,
    Operation,
    OperationRequest,
    OperationState,
    OperationStep,
    SearchPlace,
)
from app.features.jobs.requeues import (
    RequeueResult,
    Search,
    count_matching,
    report_requeues,
    requeue_batch,
    searches_of,
)
from app.kernel import jobs
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.batching import retry_lost_race
from app.kernel.engine import Core
from app.kernel.model import Seq

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.model import Connection

COUNTED: Final = 100_000  # jobs searched at most for a count
LISTED: Final = 20_000  # jobs searched at most for a page
SAMPLE: Final = 100
ADOPTED: Final = 100  # operations at a time

log = logging.getLogger(__name__)


class Tempo(msgspec.Struct, frozen=True):
    """How operations are paced. Times are in seconds.

    `batch`: jobs in a batch at most. `looks`: jobs searched for a batch at most.
    `tick`: the length of a batch of an operation with a rate. `look`: the pause between checks of a canary.
    `retry`: the pause after a failed batch. `dead`: a process without a heartbeat for this long counts as dead.
    """

    batch: int = 500
    looks: int = 5_000
    tick: float = 0.2
    look: float = 0.25
    retry: float = 1.0
    dead: float = 5.0


class Behind(msgspec.Struct, frozen=True):
    """Where a page of jobs to requeue begins: the index of the search and the position in it."""

    stage: int = 0
    at: SearchPlace = SearchPlace()


class Redrives(Core):
    """The operations of this process, and requeues of single jobs."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.tempo = Tempo()
        self._owner = uuid4()
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._stopping = False

    async def requeue(
        self, topic: tuple[str, int], seqs: Sequence[int], starts: Sequence[str] = ()
    ) -> list[RequeueResult]:
        """Requeue failed jobs of a topic in one transaction. The result leaves out jobs that have not failed.

        `seqs`: in ascending order. Raises the database's errors.
        """
        ttl_ms = self._engine.policies.defaults.ttl_ms
        db = self._engine.pools.rest

        async def run() -> list[RequeueResult]:
            return await requeues.requeue(db, topic, seqs, ttl_ms=ttl_ms, starts=starts)

        try:
            done = await retry_lost_race(run)
        except (asyncpg.UndefinedObjectError, asyncpg.InternalServerError):
            done = await retry_lost_race(run)  # a topic was deleted meanwhile; the second run sees it
        await report_requeues(self._engine, done)
        return done

    async def count(self, wanted: OperationRequest) -> MatchCount:
        """How many jobs would be requeued or cancelled now. Not exact in a deep topic."""
        return await self._count(wanted, await self._until(wanted))

    async def page(
        self, wanted: OperationRequest, behind: Behind, limit: int
    ) -> tuple[list[jobs.JobPlace], Behind | None]:
        """Up to `limit` jobs that would be requeued next, and where the next page begins, None after the last.

        A page searches at most LISTED jobs in each place, so it may have fewer jobs than `limit`, or none, although
        another page follows.
        """
        searches = searches_of(wanted, await self._until(wanted))
        found: list[jobs.JobPlace] = []
        at = behind.at
        for stage, search in enumerate(searches[behind.stage :], behind.stage):
            if len(found) == limit:
                return found, Behind(stage)
            part = await requeues.find(self._engine.pools.rest, search, at, looks=LISTED, limit=limit - len(found))
            found += [jobs.JobPlace(*search.topic, Seq(seq)) for seq in part.seqs]
            if part.more:
                return found, Behind(stage, part.last or at)
            at = SearchPlace()
        return found, None

    async def holds_letters(self, topic: tuple[str, int]) -> bool:
        """Whether a queue has dead letters of other topics. Looks for one without a lease among the SAMPLE oldest."""
        db = self._engine.pools.rest
        search = Search(topic, await requeues.until_time(db, 0), Filter())
        return bool((await requeues.find(db, search, SearchPlace(), looks=SAMPLE, limit=1)).seqs)

    async def of_topic(self, topic: str, limit: int) -> list[Operation]:
        """A topic's operations in all processes, running ones first, then newest first."""
        return await operations.of_topic(self._engine.pools.rest, topic, limit)

    async def begin(self, wanted: OperationRequest, by: Actor) -> tuple[UUID, MatchCount]:
        """Begin an operation on the jobs that match now. Returns its id and how many jobs match."""
        new = uuid4()
        actor = (by.id, by.name, by.address)
        db = self._engine.pools.rest
        until = await self._until(wanted)
        matched = await self._count(wanted, until)
        async with db.acquire() as one, one.transaction():
            await operations.begin(one, new, self._owner, wanted, until=until, matched=matched, actor=actor)
            action = Action.REQUEUE_STARTED if wanted.cancels is None else Action.CANCEL_STARTED
            await trail.record(one, by, action, wanted.topic[0], _audit_detail(new, wanted, matched))
        self._start(new)
        return new, matched

    async def read(self, which: UUID) -> Operation | None:
        """An operation of any process, None if it doesn't exist."""
        return await operations.read(self._engine.pools.rest, which)

    async def cancel(self, which: UUID, by: Actor) -> Operation | None:
        """Ask an operation to end after its current batch. Returns it, None if it doesn't exist."""
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            is_new = await operations.cancel(db, which)
            found = await operations.read(db, which)
            if is_new and found is not None:
                action = Action.REQUEUE_CANCELLED if found.wanted.cancels is None else Action.CANCEL_CANCELLED
                await trail.record(db, by, action, found.wanted.topic[0], {"id": str(which)})
        return found

    async def adopt(self) -> int:
        """Continue operations whose process is dead. Returns how many."""
        if self._stopping:
            return 0
        dead = timedelta(seconds=self.tempo.dead)
        found = await operations.adopt(self._engine.pools.rest, self._owner, dead, ADOPTED)
        for which in found:
            if which not in self._tasks:
                self._start(which)
        return len(found)

    def stop(self) -> None:
        """Leave running operations to other processes. A batch that is not committed is rolled back."""
        self._stopping = True
        for task in self._tasks.values():
            task.cancel()

    async def drain(self) -> None:
        """Wait until all operations of this process have ended or were left to others."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, which: UUID) -> None:
        if self._stopping:
            return
        task = self._tasks[which] = asyncio.create_task(self._run(which))
        task.add_done_callback(lambda _task: self._tasks.pop(which, None))

    async def _run(self, which: UUID) -> None:
        """Run step after step until the operation has ended or belongs to another process."""
        due = time.monotonic()
        pause: float | None = 0.0
        try:
            while pause is not None:
                due = max(due + pause, time.monotonic() - self.tempo.tick)
                await asyncio.sleep(due - time.monotonic())
                try:
                    pause = await self._step(which)
                except (*UNREACHABLE, *LOST_RACE, *TOO_SLOW, HoldfastError) as error:
                    if self._stopping:  # a connection that breaks on cancellation hides the CancelledError
                        raise asyncio.CancelledError from error
                    log.warning("operation %s: a batch failed, trying again: %r", which, error)
                    pause = self.tempo.retry
                except (asyncpg.UndefinedObjectError, asyncpg.InternalServerError):
                    pause = self.tempo.tick  # a topic was deleted meanwhile; the next step sees it
        except asyncio.CancelledError:
            with contextlib.suppress(*UNREACHABLE):
                await asyncio.shield(operations.leave(self._engine.pools.rest, which, self._owner))
            raise
        except Exception as error:
            log.exception("operation %s failed", which)
            with contextlib.suppress(*UNREACHABLE):
                await self._fail(which, error)

    async def _step(self, which: UUID) -> float | None:
        """Run one transaction. Returns in how many seconds the next one is due, None if there is none."""
        requeued: list[RequeueResult] = []
        cancelled = CancelResult()
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            run = await operations.hold(db, which, self._owner)
            if run is None:
                return None
            if run.cancelled:
                await _end(db, run, OperationState.CANCELLED)
                return None
            if run.first_until is not None and run.state is OperationState.CANARY:
                return await self._watch(db, run)
            if run.stage == LAST:
                await _end(db, run, OperationState.DONE)
                return None
            limit = self._limit(run)
            if run.wanted.cancels is None:
                ttl_ms = self._engine.policies.defaults.ttl_ms
                step, requeued = await requeue_batch(db, run, limit, looks=self.tempo.looks, ttl_ms=ttl_ms)
            else:
                step, cancelled = await cancel_batch(db, run, limit)
            await operations.advance(db, which, step)
            pause: float | None = step.jobs_done / run.wanted.rate if run.wanted.rate else 0.0
            if step.stage == LAST and step.state is OperationState.RUNNING:
                so_far = await operations.read(db, which)
                assert so_far is not None, "it is locked"
                await _end(db, so_far, OperationState.DONE)
                pause = None
        await report_requeues(self._engine, requeued)
        if run.wanted.cancels is not None:
            await report_cancels(self._engine, run.wanted.topic, cancelled)
        return pause

    def _limit(self, run: Operation) -> int:
        tempo, rate = self.tempo, run.wanted.rate
        return max(1, min(tempo.batch, int(rate * tempo.tick))) if rate else tempo.batch

    async def _watch(self, db: Connection, run: Operation) -> float | None:
        """Check the canary's jobs, and stop the operation or let the other jobs follow."""
        canary, jobs = run.wanted.canary, len(run.first)
        assert canary is not None
        failed, gone = await requeues.canary(db, run.first)
        if failed * 100 > canary.stop_at_percent * jobs:
            why = f"{failed} of the first {jobs} jobs failed again, more than the allowed {canary.stop_at_percent:g}%"
            await _end(db, run, OperationState.STOPPED, why, failed)
            return None
        state = OperationState.RUNNING if failed + gone == jobs else OperationState.CANARY
        if state is OperationState.CANARY and run.late:
            why = f"{jobs - failed - gone} of the first {jobs} jobs did not end within {canary.timeout_ms} ms"
            await _end(db, run, OperationState.STOPPED, why, failed)
            return None
        if state is OperationState.RUNNING and run.stage == LAST:
            await _end(db, run, OperationState.DONE, failed_again=failed)
            return None
        await operations.advance(db, run.id, OperationStep(state, run.stage, run.at, run.first, failed_again=failed))
        return 0.0 if state is OperationState.RUNNING else self.tempo.look

    async def _fail(self, which: UUID, error: Exception) -> None:
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            run = await operations.hold(db, which, self._owner)
            if run is not None:
                await _end(db, run, OperationState.FAILED, f"internal error: {type(error).__name__}")

    async def _until(self, wanted: OperationRequest) -> datetime:
        older = wanted.match.older_than_ms if wanted.cancels is None else wanted.cancels.older_than_ms or 0
        return await requeues.until_time(self._engine.pools.rest, older)

    async def _count(self, wanted: OperationRequest, until: datetime) -> MatchCount:
        db = self._engine.pools.rest
        if wanted.cancels is None:
            return await count_matching(db, wanted, until, COUNTED)
        return await count_live(db, wanted.topic, wanted.cancels, until, COUNTED)


async def _end(
    db: Connection, run: Operation, state: OperationState, reason: str | None = None, failed_again: int | None = None
) -> None:
    """End the operation with an audit entry. `failed_again` None: as stored last."""
    failed_again = run.failed_again if failed_again is None else failed_again
    if await operations.end(db, run.id, state, reason, failed_again):
        if run.wanted.cancels is None:
            action = Action.REQUEUE_ENDED
            counts = {"requeued": run.requeued, "skipped": run.skipped, "failed_again": failed_again}
        else:
            action = Action.CANCEL_ENDED
            counts = {"gone": run.gone, "marked": run.marked, "skipped": run.skipped}
        detail = {"id": str(run.id), "state": state.value, **counts, "reason": reason}
        await trail.record(db, trail.SERVICE, action, run.wanted.topic[0], detail)


def _audit_detail(new: UUID, wanted: OperationRequest, matched: MatchCount) -> dict[str, object]:
    detail: dict[str, object] = {"id": str(new), "matched": matched.count, "rate": wanted.rate}
    if wanted.cancels is not None:
        return detail | {"filter": msgspec.to_builtins(wanted.cancels)}
    if wanted.seqs is not None:
        detail["seqs"] = len(wanted.seqs)
    return detail | {
        "filter": msgspec.to_builtins(wanted.match),
        "canary": None if wanted.canary is None else msgspec.to_builtins(wanted.canary),
    }
