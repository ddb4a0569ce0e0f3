"""Requeues: of single jobs at once; of many, and cancels of many, as operations, which go on in batches whoever asked
for them has left.

An operation belongs to a process by its signs of life. What a batch does and how far the operation is by it are one
transaction, so whoever goes on with it neither leaves a job out nor takes it twice. docs/adr/0024.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import asyncpg
import msgspec

from app.base.outages import LOST_RACE, TOO_SLOW, UNREACHABLE
from app.errors import HoldfastError, TopicNotFound
from app.features.jobs import operations
from app.features.jobs import redrive_rows as redrive
from app.features.jobs.changes import LAST, CancelResult, cancel_batch, count_matching, report_cancels
from app.features.jobs.operations import MatchCount, Operation, OperationRequest, OperationState, OperationStep
from app.features.jobs.redrive_rows import RequeueOutcome, RequeueResult, Search, SearchPlace
from app.kernel import jobs
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.batching import tried_again
from app.kernel.engine import Core
from app.kernel.model import Seq

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.model import Connection

COUNTED: Final = 100_000  # jobs that are looked at to say how many match
LISTED: Final = 20_000  # and for a page of them
SAMPLE: Final = 100
ADOPTED: Final = 100  # operations at a time

log = logging.getLogger(__name__)


class Tempo(msgspec.Struct, frozen=True):
    """Most jobs that a batch requeues, and looks at; in seconds: what a batch of an operation with a rate is meant to
    take, between looks at a canary, before a batch that failed is tried again, and without a sign of life until an
    operation's process counts as dead."""

    batch: int = 500
    looks: int = 5_000
    tick: float = 0.2
    look: float = 0.25
    retry: float = 1.0
    dead: float = 5.0


class Behind(msgspec.Struct, frozen=True):
    """Where a page of what a requeue would take begins: in which of the places that it looks at, and behind what."""

    stage: int = 0
    at: SearchPlace = SearchPlace()


class Redrives(Core):
    """The operations of this process."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.tempo = Tempo()
        self._owner = uuid4()
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._stopping = False

    async def requeue(
        self, topic: tuple[str, int], seqs: Sequence[int], starts: Sequence[str] = ()
    ) -> list[RequeueResult]:
        """Requeue jobs of a topic that are out, ascending by seq, all in one transaction; what is not out is left out
        of the answer. Raises what the database raises."""
        ttl_ms = self._engine.policies.defaults.ttl_ms
        db = self._engine.pools.rest

        async def run() -> list[RequeueResult]:
            return await redrive.requeue(db, topic, seqs, ttl_ms=ttl_ms, starts=starts)

        try:
            done = await tried_again(run)
        except (asyncpg.UndefinedObjectError, asyncpg.InternalServerError):
            done = await tried_again(run)  # its topic was deleted meanwhile, which is seen now
        await self._told(done)
        return done

    async def count(self, wanted: OperationRequest) -> MatchCount:
        """How many jobs would be requeued or cancelled now; of a deep topic, at least so many."""
        return await self._count(wanted, await self._until(wanted))

    async def page(
        self, wanted: OperationRequest, behind: Behind, limit: int
    ) -> tuple[list[jobs.JobPlace], Behind | None]:
        """Where up to `limit` jobs are that would be requeued now, the next in that order, though a page has them by
        seq; and where the next page begins, None behind the last. LISTED jobs are looked at in a place: a page may have
        fewer, or none, and another one follow."""
        searches = _searches(wanted, await self._until(wanted))
        found: list[jobs.JobPlace] = []
        at = behind.at
        for stage, search in enumerate(searches[behind.stage :], behind.stage):
            if len(found) == limit:
                return found, Behind(stage)
            part = await redrive.find(self._engine.pools.rest, search, at, looks=LISTED, limit=limit - len(found))
            found += [jobs.JobPlace(*search.topic, Seq(seq)) for seq in part.seqs]
            if part.more:
                return found, Behind(stage, part.last or at)
            at = SearchPlace()
        return found, None

    async def holds_letters(self, topic: tuple[str, int]) -> bool:
        """Whether a queue has others' dead letters: one, among the SAMPLE that died first, that nobody holds."""
        db = self._engine.pools.rest
        search = Search(topic, await redrive.until_time(db, 0), redrive.Filter())
        return bool((await redrive.find(db, search, SearchPlace(), looks=SAMPLE, limit=1)).seqs)

    async def of_topic(self, topic: str, limit: int) -> list[Operation]:
        """A topic's operations, in whichever process, those under way before others, the newest first."""
        return await operations.of_topic(self._engine.pools.rest, topic, limit)

    async def begin(self, wanted: OperationRequest, by: Actor) -> tuple[UUID, MatchCount]:
        """Begin an operation on what is out at this moment: its id, and how many jobs match. It goes on by itself."""
        new = uuid4()
        actor = (by.id, by.name, by.address)
        db = self._engine.pools.rest
        until = await self._until(wanted)
        matched = await self._count(wanted, until)
        async with db.acquire() as one, one.transaction():
            await operations.begin(one, new, self._owner, wanted, until=until, matched=matched, actor=actor)
            action = Action.REQUEUE_STARTED if wanted.cancels is None else Action.CANCEL_STARTED
            await trail.record(one, by, action, wanted.topic[0], _asked(new, wanted, matched))
        self._start(new)
        return new, matched

    async def read(self, which: UUID) -> Operation | None:
        """An operation as it is, in whichever process; None if there is none."""
        return await operations.read(self._engine.pools.rest, which)

    async def cancel(self, which: UUID, by: Actor) -> Operation | None:
        """Ask an operation to end after the batch that it is at: how it is; None if there is none."""
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            asked = await operations.cancel(db, which)
            found = await operations.read(db, which)
            if asked and found is not None:
                action = Action.REQUEUE_CANCELLED if found.wanted.cancels is None else Action.CANCEL_CANCELLED
                await trail.record(db, by, action, found.wanted.topic[0], {"id": str(which)})
        return found

    async def adopt(self) -> int:
        """Go on with operations whose process is dead: how many."""
        if self._stopping:
            return 0
        dead = timedelta(seconds=self.tempo.dead)
        found = await operations.adopt(self._engine.pools.rest, self._owner, dead, ADOPTED)
        for which in found:
            if which not in self._tasks:
                self._start(which)
        return len(found)

    def stop(self) -> None:
        """Leave what is under way to other processes; a batch that is not committed is rolled back."""
        self._stopping = True
        for task in self._tasks.values():
            task.cancel()

    async def drain(self) -> None:
        """Wait until all of it is left, or has ended."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start(self, which: UUID) -> None:
        if self._stopping:
            return
        task = self._tasks[which] = asyncio.create_task(self._run(which))
        task.add_done_callback(lambda _task: self._tasks.pop(which, None))

    async def _run(self, which: UUID) -> None:
        """OperationStep after step, until it has ended or is another process's."""
        due = time.monotonic()
        pause: float | None = 0.0
        try:
            while pause is not None:
                due = max(due + pause, time.monotonic() - self.tempo.tick)
                await asyncio.sleep(due - time.monotonic())
                try:
                    pause = await self._step(which)
                except (*UNREACHABLE, *LOST_RACE, *TOO_SLOW, HoldfastError) as error:
                    if self._stopping:  # a connection that breaks under a cancellation puts its own error in that place
                        raise asyncio.CancelledError from error
                    log.warning("operation %s: %r; trying again", which, error)
                    pause = self.tempo.retry
                except (asyncpg.UndefinedObjectError, asyncpg.InternalServerError):
                    pause = self.tempo.tick  # a topic was deleted meanwhile, which is seen the next time
        except asyncio.CancelledError:
            with contextlib.suppress(*UNREACHABLE):
                await asyncio.shield(operations.leave(self._engine.pools.rest, which, self._owner))
            raise
        except Exception as error:
            log.exception("operation %s failed", which)
            with contextlib.suppress(*UNREACHABLE):
                await self._failed(which, error)

    async def _step(self, which: UUID) -> float | None:
        """One transaction of it: after how many seconds the next one is due; None: there is none."""
        done: list[RequeueResult] = []
        ended = CancelResult()
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            run = await operations.hold(db, which, self._owner)
            if run is None:
                return None
            if run.cancelled:
                await _end(db, run, OperationState.CANCELLED, None, run.failed_again)
                return None
            if run.first_until is not None and run.state is OperationState.CANARY:
                return await self._watch(db, run)
            if run.stage == LAST:
                await _end(db, run, OperationState.DONE, None, run.failed_again)
                return None
            if run.wanted.cancels is None:
                step, done = await self._batch(db, run)
            else:
                step, ended = await cancel_batch(db, run, self._limit(run))
            await operations.advance(db, which, step)
            pause: float | None = step.done / run.wanted.rate if run.wanted.rate else 0.0
            if step.stage == LAST and step.state is OperationState.RUNNING:
                so_far = await operations.read(db, which)
                assert so_far is not None, "it is locked"
                await _end(db, so_far, OperationState.DONE, None, run.failed_again)
                pause = None
        await self._told(done)
        if run.wanted.cancels is not None:
            await report_cancels(self._engine, run.wanted.topic, ended)
        return pause

    def _limit(self, run: Operation) -> int:
        """Most jobs of a batch."""
        tempo, rate = self.tempo, run.wanted.rate
        return max(1, min(tempo.batch, int(rate * tempo.tick))) if rate else tempo.batch

    async def _batch(self, db: Connection, run: Operation) -> tuple[OperationStep, list[RequeueResult]]:
        wanted, limit = run.wanted, self._limit(run)
        canary = wanted.canary if run.state is OperationState.CANARY else None
        if canary is not None:
            limit = min(limit, canary.first - len(run.first))
        ask = partial(redrive.requeue, db, ttl_ms=self._engine.policies.defaults.ttl_ms, starts=wanted.starts)
        done: list[RequeueResult] = []
        stage, at, missing = run.stage, run.at, 0
        if wanted.seqs is not None:
            part = sorted(seq for seq in set(wanted.seqs) if seq > at.seq)[:limit]
            if part:
                for place, seqs in sorted((await redrive.find_out(db, wanted.topic, part, wanted.starts)).items()):
                    done += await ask(place, seqs)
                missing, at = len(part) - len(done), SearchPlace(seq=part[-1])
            stage = stage if len(part) == limit else LAST
        else:
            searches = _searches(wanted, run.until)
            search = searches[stage]
            found = await redrive.find(db, search, at, looks=self.tempo.looks, limit=limit)
            if found.seqs:
                done = await ask(search.topic, found.seqs, only_from=search.only_from)
            missing, at = len(found.seqs) - len(done), found.last or at
            if not found.more:
                stage, at = (LAST if search is searches[-1] else stage + 1), SearchPlace()
        moved = [one for one in done if one.outcome is RequeueOutcome.REQUEUED]
        first = [*run.first, *(one.job for one in moved if one.job is not None)] if canary is not None else run.first
        state, wait_ms = run.state, None
        if canary is not None and (len(first) >= canary.first or stage == LAST):
            if first:
                wait_ms = canary.timeout_ms
            else:
                state = OperationState.RUNNING
        skipped = len(done) - len(moved) + missing
        step = OperationStep(
            *(state, stage, at, first),
            requeued=len(moved),
            skipped=skipped,
            failed_again=run.failed_again,
            wait_ms=wait_ms,
        )
        return step, done

    async def _watch(self, db: Connection, run: Operation) -> float | None:
        """Look at the first jobs: is the rest to follow?"""
        canary, jobs = run.wanted.canary, len(run.first)
        assert canary is not None
        failed, gone = await redrive.canary(db, run.first)
        if failed * 100 > canary.stop_at_percent * jobs:
            why = f"{failed} of the first {jobs} failed again, which is more than {canary.stop_at_percent:g} per cent"
            await _end(db, run, OperationState.STOPPED, why, failed)
            return None
        state = OperationState.RUNNING if failed + gone == jobs else OperationState.CANARY
        if state is OperationState.CANARY and run.late:
            why = f"{jobs - failed - gone} of the first {jobs} had not ended within {canary.timeout_ms} ms"
            await _end(db, run, OperationState.STOPPED, why, failed)
            return None
        if state is OperationState.RUNNING and run.stage == LAST:
            await _end(db, run, OperationState.DONE, None, failed)
            return None
        await operations.advance(db, run.id, OperationStep(state, run.stage, run.at, run.first, failed_again=failed))
        return 0.0 if state is OperationState.RUNNING else self.tempo.look

    async def _failed(self, which: UUID, error: Exception) -> None:
        async with self._engine.pools.rest.acquire() as db, db.transaction():
            run = await operations.hold(db, which, self._owner)
            if run is not None:
                await _end(
                    db,
                    run,
                    OperationState.FAILED,
                    f"an error of the service's: {type(error).__name__}",
                    run.failed_again,
                )

    async def _until(self, wanted: OperationRequest) -> datetime:
        older = wanted.match.older_than_ms if wanted.cancels is None else wanted.cancels.older_than_ms or 0
        return await redrive.until_time(self._engine.pools.rest, older)

    async def _count(self, wanted: OperationRequest, until: datetime) -> MatchCount:
        db = self._engine.pools.rest
        if wanted.cancels is not None:
            return await count_matching(db, wanted.topic, wanted.cancels, until, COUNTED)
        if wanted.seqs is not None:
            places = await redrive.find_out(db, wanted.topic, wanted.seqs, wanted.starts)
            return MatchCount(sum(map(len, places.values())), exact=True)
        count, exact = 0, True
        for search in _searches(wanted, until):
            found = await redrive.find(db, search, SearchPlace(), looks=COUNTED, limit=COUNTED)
            count, exact = count + len(found.seqs), exact and not found.more
        return MatchCount(count, exact)

    async def _told(self, done: Sequence[RequeueResult]) -> None:
        """Wake who waits for these jobs, here and elsewhere."""
        counts: dict[tuple[str, int], int] = {}
        for one in done:
            if one.job is not None:
                place = (one.job.topic, one.job.topic_id)
                counts[place] = counts.get(place, 0) + 1
        for (name, topic_id), count in counts.items():
            with contextlib.suppress(TopicNotFound, *UNREACHABLE):
                policy = await self._engine.policies.get(name)
                if policy.topic.id == topic_id:
                    self._engine.note_move(policy.topic, ready=count)
                    await self._engine.groups.let_next_through(policy)
            self._engine.lanes.forget(topic_id)
            self._engine.marks.look_at_due(topic_id)
            self._engine.writes.note(topic_id)
            self._engine.waiters.announce(topic_id, count)


def _searches(wanted: OperationRequest, until: datetime) -> list[Search]:
    """Where it looks for jobs, one after the other: among the topic's dead letters, in whichever topic these are; among
    dead letters of others that the topic holds, if it is one for dead letters; and among what failed in place."""
    match, starts = wanted.match, wanted.starts
    places = [
        Search(wanted.topic, until, match, starts),
        Search(wanted.topic, until, match, starts, dead=False),
    ]
    if wanted.dead is not None:
        places.insert(0, Search(wanted.dead, until, match, starts, only_from=wanted.topic[0]))
    return places


async def _end(db: Connection, run: Operation, state: OperationState, reason: str | None, failed_again: int) -> None:
    if await operations.end(db, run.id, state, reason, failed_again):
        if run.wanted.cancels is None:
            action = Action.REQUEUE_ENDED
            counts = {"requeued": run.requeued, "skipped": run.skipped, "failed_again": failed_again}
        else:
            action = Action.CANCEL_ENDED
            counts = {"gone": run.gone, "marked": run.marked, "skipped": run.skipped}
        detail = {"id": str(run.id), "state": state.value, **counts, "reason": reason}
        await trail.record(db, trail.SERVICE, action, run.wanted.topic[0], detail)


def _asked(new: UUID, wanted: OperationRequest, matched: MatchCount) -> dict[str, object]:
    asked: dict[str, object] = {"id": str(new), "matched": matched.count, "rate": wanted.rate}
    if wanted.cancels is not None:
        return asked | {"filter": msgspec.to_builtins(wanted.cancels)}
    if wanted.seqs is not None:
        asked["seqs"] = len(wanted.seqs)
    return asked | {
        "filter": msgspec.to_builtins(wanted.match),
        "canary": None if wanted.canary is None else msgspec.to_builtins(wanted.canary),
    }
