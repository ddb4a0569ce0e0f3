"""Changes and cancels jobs and takes leases back, for operators. docs/semantics.md, sections 3 and 19.

A job that is cancelled while leased has no state of its own. Its time to live ends now, so claims and sweeps skip it
without knowing about cancels.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import asyncpg
import msgspec
from msgspec.structs import replace

from app.base.db import sql
from app.base.outages import UNREACHABLE
from app.errors import KeyConflict, NotAQueue, NotFound, NotPending, TopicNotFound
from app.features.jobs.operations import LAST, MatchCount, Operation, OperationState, OperationStep, SearchPlace
from app.kernel import jobs
from app.kernel.batching import retry_lost_race
from app.kernel.claim import consumer, ordering
from app.kernel.claim.consumer import MAX_RUNS, Return
from app.kernel.counts import holders, inspector
from app.kernel.engine import Core
from app.kernel.jobs import JobMatch, JobPlace, JobView
from app.kernel.model import Batch, Connection, HeldJob, Seq, Topic
from app.kernel.topics.policy import Policy

if TYPE_CHECKING:
    from app.kernel.state import EngineState

_SQL: Final = sql.load_all(__package__)
_CANCEL = _SQL["cancel_jobs"]
_CHANGE = _SQL["change_job"]
BATCH: Final = 1_000
LIVE: Final = ("ready", "scheduled", "blocked", "leased")

COUNT_SECONDS: Final = 1.0  # a count reads no further page after this time
TAKEN_BACK: Final = "An operator took the lease back."


class CancelResult(msgspec.Struct):
    """The result of a cancel. Jobs in neither set did not exist or had ended.

    `gone`: jobs that waited and are deleted. `marked`: leased jobs, which end with their leases.
    `ready`: how many of `gone` were ready.
    """

    gone: set[Seq] = msgspec.field(default_factory=set)
    marked: set[Seq] = msgspec.field(default_factory=set)
    ready: int = 0


async def cancel(db: Connection, topic: Topic, seqs: Sequence[Seq]) -> CancelResult:
    """Cancel jobs: delete waiting jobs, mark leased jobs. `seqs` must ascend, without duplicates."""
    assert all(a < b for a, b in itertools.pairwise(seqs)), "seqs must ascend: rows are locked in this order"
    done = CancelResult()
    left = list(seqs)
    for _ in range(MAX_RUNS):
        row = await db.fetchrow(_CANCEL, topic.name, topic.id, left)
        assert row is not None, "the statement returns one row always"
        done.gone.update(left[i - 1] for i in row["gone"])
        done.marked.update(left[i - 1] for i in row["marked"])
        done.ready += row["ready"]
        left = [left[i - 1] for i in row["picked"]]
        left = sorted(seq for seq in left if seq not in done.gone and seq not in done.marked)
        if not left:
            break
    return done


class Payload(msgspec.Struct, frozen=True):
    """A payload and its content type; None means application/json."""

    body: bytes
    content_type: str | None


class Change(msgspec.Struct, frozen=True):
    """The fields of a job to change. None leaves a field as it is.

    `clears`: which of "metadata" and "tag" to remove. The later of `delay_ms` and `run_at` counts.
    """

    payload: Payload | None = None
    metadata: str | None = None
    tag: str | None = None
    priority: int | None = None
    delay_ms: int | None = None
    run_at: datetime | None = None
    clears: frozenset[str] = frozenset()


class ChangeResult(msgspec.Struct, frozen=True):
    """The result of a change.

    `status`: None if there was no such job, `pending` if it was changed, otherwise the state that prevented it.
    `was`: the state before. `ready`: whether it is ready now. `due`: whether its scheduled time has passed.
    """

    status: str | None
    was: str | None
    ready: bool
    due: bool


async def change(db: Connection, topic: Topic, seq: Seq, to: Change) -> ChangeResult:
    """Change a waiting job. The lane of its new priority must exist.

    Raises UniqueViolationError if another job with its key waits.
    """
    payload = to.payload
    row = None
    while row is None or (not row["changed"] and row["status"] == "pending"):
        row = await db.fetchrow(
            _CHANGE,
            topic.name,
            topic.id,
            topic.sequence,
            seq,
            None if payload is None else payload.body,
            None if payload is None else payload.content_type,
            to.metadata is not None or "metadata" in to.clears,
            to.metadata,
            to.tag is not None or "tag" in to.clears,
            to.tag,
            to.priority,
            to.delay_ms,
            to.run_at,
        )
        assert row is not None, "the statement returns one row always"
    return ChangeResult(row["status"], row["was"], row["ready"], row["due"])


class CancelCounts(NamedTuple):
    """How many jobs were deleted (they waited), and how many were marked (they are leased)."""

    gone: int
    marked: int


class Changes(Core):
    """Changes and cancels jobs and takes leases back. Updates the counts and wakes waiting workers.

    A lease is ended like by a nack of its worker, by the lease's id, so a newer lease of the job is safe.
    """

    async def cancel(self, policy: Policy, seqs: Sequence[Seq]) -> CancelResult:
        """Cancel jobs. Waiting jobs are deleted. Leased jobs are marked: they end with their lease unless acked."""
        done = await retry_lost_race(partial(cancel, self._engine.verbs(policy), policy.topic, sorted(set(seqs))))
        await _count_cancels(self._engine, policy, done)
        return done

    async def cancel_matching(self, policy: Policy, match: JobMatch) -> CancelCounts:
        """Cancel the jobs that match now, oldest first, in batches. After an error, the batches so far stay done."""
        db = self._engine.pools.rest
        draws = (await inspector.draws(db, [policy.topic])).get(policy.topic.id)
        gone = marked = 0
        behind: int | None = 0
        while draws is not None and behind is not None and behind < draws.drawn:
            found = await jobs.find(
                db, policy.topic, live(match), oldest_first=True, behind=behind, limit=BATCH, one_by_one=True
            )
            seqs = [seq for seq in found.seqs if seq <= draws.drawn]
            if seqs:
                done = await self.cancel(policy, seqs)
                gone, marked = gone + len(done.gone), marked + len(done.marked)
            behind = found.next_behind
        return CancelCounts(gone, marked)

    async def change(self, policy: Policy, seq: Seq, to: Change) -> JobView:
        """Change a waiting job and return it. Raises NotFound, NotPending, KeyConflict, SchemaViolation."""
        topic, db = policy.topic, self._engine.verbs(policy)
        if to.payload is not None and policy.schema_version is not None:
            await self._engine.checks.must_fit(policy, [to.payload.body], [to.payload.content_type])
        if to.priority is not None:
            job = await self.show(policy, seq)
            tenant = "" if job.original_topic is not None else job.tenant  # dead letters share a lane
            lane = Batch(payloads=[b""], tenants=[tenant], priorities=[to.priority])
            await self._engine.lanes.ensure(db, topic, lane)
        began = time.monotonic()
        try:
            done = await retry_lost_race(partial(change, db, topic, seq, to))
        except asyncpg.UniqueViolationError:
            raise KeyConflict(
                "Another job with the same key waits already.", {"topic": topic.name, "seq": seq}
            ) from None
        if done.status is None:
            raise no_job(policy, seq)
        if done.status != "pending":
            raise NotPending(topic.name, seq, done.status)
        self._engine.note_move(topic, ready=done.ready - (done.was == "ready"))
        # A claim may have skipped the job while it was locked.
        self._engine.marks.note_change(topic.id, began)
        if done.due:
            self._engine.marks.look_at_due(topic.id)
        job = await self.show(policy, seq)
        if done.ready or done.due:
            self._engine.waiters.announce(topic.id, 1, None if job.original_topic is not None else {job.tenant})
        if job.state == "scheduled":
            self._engine.waiters.due_in(topic.id, max(job.visible_ms / 1000 - time.time(), 0))
        return job

    async def show(self, policy: Policy, seq: Seq) -> JobView:
        """Read a job. Raises NotFound."""
        place = JobPlace(policy.topic.name, policy.topic.id, seq)
        for job in await jobs.show(self._engine.pools.rest, [place]):
            return job
        raise no_job(policy, seq)

    async def release(
        self, policy: Policy, leased: Sequence[HeldJob], *, refund: bool, until_ms: Sequence[int] = ()
    ) -> tuple[set[int], int]:
        """Take leases back, so that the jobs are ready at once.

        Returns the indexes in `leased` whose lease was valid, and how many of those jobs ended instead. A job ends if
        it has no delivery left (unless `refund` gives it back) or was cancelled.

        `until_ms`: one deadline for each job. A lease with another deadline is skipped.
        """
        if until_ms:
            found = await consumer.leases(self._engine.pools.rest, policy.topic, leased)
            same = [i for i, lease in found.items() if lease.until_ms == until_ms[i]]
            named = [HeldJob(leased[i].seq, found[i].lease, leased[i].node) for i in same]
            done, ended = await self.release(policy, named, refund=refund)
            return {same[i] for i in done}, ended
        how = Return(delay_ms=0, error=TAKEN_BACK, refunds=None if refund else 0)
        out: set[int] = set()
        done = await self._engine.settlements.nack(policy, leased, [how] * len(leased), ended=out)
        return done, len(out)

    async def release_group(
        self, policy: Policy, tenant: str, group: str, node: str | None, *, refund: bool
    ) -> tuple[int, int]:
        """Take back the lease of a group's job if `node` holds it (None: any worker).

        Returns the number of leases, 0 or 1, and of jobs that ended.
        """
        lease = await holders.lease_of_group(self._engine.pools.rest, policy.topic, tenant, group)
        if lease is None or node not in {None, lease.node}:
            return 0, 0
        done, ended = await self.release(policy, [lease], refund=refund)
        return len(done), ended

    async def release_node(self, policy: Policy, node: str, *, refund: bool) -> tuple[int, int]:
        """Take back all leases of a worker in a topic, in batches. Returns the number of leases, and of ended jobs."""
        db, count, ends = self._engine.pools.rest, 0, 0
        lanes = await ordering.read_lanes(db, policy.topic)
        async for found in holders.leases_of_node(db, policy.topic, lanes, node):
            for first in range(0, len(found), BATCH):
                done, ended = await self.release(policy, found[first : first + BATCH], refund=refund)
                count, ends = count + len(done), ends + ended
        return count, ends


def live(match: JobMatch) -> JobMatch:
    """The match limited to jobs that have not ended."""
    return match if match.states is not None else replace(match, states=LIVE)


async def _count_cancels(state: EngineState, policy: Policy, done: CancelResult) -> None:
    state.note_move(policy.topic, ready=-done.ready)
    state.metrics.topic(policy.topic.name).cancelled.add(len(done.gone))
    if done.gone or done.marked:
        await state.groups.let_next_through(policy)


def no_job(policy: Policy, seq: int) -> NotFound:
    name = policy.topic.name
    return NotFound(f"There is no job {seq} in topic {name!r}.", {"topic": name, "seq": seq})


async def count_live(db: Connection, topic: tuple[str, int], match: JobMatch, until: datetime, most: int) -> MatchCount:
    """How many live jobs match that were enqueued by `until`. Not exact after `most` jobs or COUNT_SECONDS."""
    count, behind, end = 0, 0, time.monotonic() + COUNT_SECONDS
    for looked in range(0, most, jobs.LOOKED_AT):
        if looked and time.monotonic() > end:
            break
        found = await _find_live(db, topic, match, jobs.LOOKED_AT, until=until, behind=behind)
        count += len(found.seqs)
        if found.next_behind is None:
            return MatchCount(count, exact=True)
        behind = found.next_behind
    return MatchCount(count, exact=False)


async def cancel_batch(db: Connection, run: Operation, limit: int) -> tuple[OperationStep, CancelResult]:
    """Cancel up to `limit` jobs of an operation, oldest first, from one page of jobs. `db` must be in a transaction."""
    match = run.wanted.cancels
    assert match is not None
    found = await _find_live(db, run.wanted.topic, match, limit, until=run.until, behind=run.at.seq)
    done = await cancel(db, _topic_of(run.wanted.topic), found.seqs)
    gone, marked = len(done.gone), len(done.marked)
    more = found.next_behind is not None
    step = OperationStep(
        OperationState.RUNNING,
        run.stage if more else LAST,
        SearchPlace(seq=found.next_behind) if found.next_behind is not None else run.at,
        [],
        gone=gone,
        marked=marked,
        skipped=len(found.seqs) - gone - marked,
    )
    return step, done


async def report_cancels(state: EngineState, topic: tuple[str, int], done: CancelResult) -> None:
    """Count a batch's cancels and unblock their groups. Call it after the commit."""
    with contextlib.suppress(TopicNotFound, NotAQueue, *UNREACHABLE):
        policy = await state.policies.queue(topic[0])
        if policy.topic.id == topic[1]:
            await _count_cancels(state, policy, done)


async def _find_live(
    db: Connection, topic: tuple[str, int], match: JobMatch, limit: int, *, until: datetime, behind: int
) -> jobs.MatchingSeqs:
    """Find live jobs that were enqueued by `until`, which stands for the match's older_than_ms.

    Searches job by job: the index of leased jobs is limited to some of them.
    """
    live_match = live(replace(match, older_than_ms=None))
    return await jobs.find(
        db, _topic_of(topic), live_match, oldest_first=True, behind=behind, limit=limit, by=until, one_by_one=True
    )


def _topic_of(topic: tuple[str, int]) -> Topic:
    name, topic_id = topic
    return Topic(name, topic_id, 0)  # no statement here needs its sequence
