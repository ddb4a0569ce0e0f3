"""What people do to jobs that they don't hold: cancel them, change them. docs/semantics.md, section 19.

A job that is cancelled under a lease has no state of its own: its time to live ends now, so claims and sweeps pass it
over without knowing of cancels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import asyncpg
from msgspec.structs import replace

from app.errors import KeyConflict, NotFound, NotPending
from app.features.jobs import change_rows as changes
from app.features.jobs.change_rows import Cancelled, Change
from app.kernel import jobs as shown
from app.kernel.batching import tried_again
from app.kernel.counts import inspector
from app.kernel.engine import Core
from app.kernel.jobs import Match, Place, Shown
from app.kernel.model import Batch, Seq
from app.kernel.topics.policy import Policy

if TYPE_CHECKING:
    from app.kernel.engine import Core
    from app.kernel.state import EngineState

BATCH: Final = 1_000
LIVE: Final = ("ready", "scheduled", "blocked", "leased")


class Counted(NamedTuple):
    """How many jobs are gone, and how many are marked for their holders."""

    gone: int
    marked: int


class Changes(Core):
    """Knows who has to hear of it."""

    async def cancel(self, policy: Policy, seqs: Sequence[Seq]) -> Cancelled:
        """Cancel jobs: what waits is gone, what is leased is marked, and ends however its lease ends, but by an ack."""
        done = await tried_again(partial(changes.cancel, self._engine.verbs(policy), policy.topic, sorted(set(seqs))))
        await told(self._engine, policy, done)
        return done

    async def cancel_matching(self, policy: Policy, match: Match) -> Counted:
        """Cancel the jobs that match at this moment, the oldest first, in batches: other verbs come in between, and
        what breaks off has done a part."""
        db = self._engine.pools.rest
        drawn = (await inspector.draws(db, [policy.topic])).get(policy.topic.id)
        gone = marked = 0
        behind: int | None = 0
        while drawn is not None and behind is not None and behind < drawn.drawn:
            found = await shown.find(
                db, policy.topic, live(match), oldest_first=True, behind=behind, limit=BATCH, one_by_one=True
            )
            seqs = [seq for seq in found.seqs if seq <= drawn.drawn]
            if seqs:
                done = await self.cancel(policy, seqs)
                gone, marked = gone + len(done.gone), marked + len(done.marked)
            behind = found.next_behind
        return Counted(gone, marked)

    async def change(self, policy: Policy, seq: Seq, to: Change) -> Shown:
        """Change a job that waits: the job as it is then. Raises NotFound, NotPending, KeyConflict,
        SchemaViolation."""
        topic, db = policy.topic, self._engine.verbs(policy)
        if to.payload is not None and policy.schema_version is not None:
            await self._engine.checks.must_fit(policy, [to.payload.body], [to.payload.content_type])
        if to.priority is not None:
            job = await self.show(policy, seq)
            tenant = "" if job.original_topic is not None else job.tenant  # dead letters have a lane together
            lane = Batch(payloads=[b""], tenants=[tenant], priorities=[to.priority])
            await self._engine.lanes.ensure(db, topic, lane)
        began = time.monotonic()
        try:
            done = await tried_again(partial(changes.change, db, topic, seq, to))
        except asyncpg.UniqueViolationError:
            raise KeyConflict("Another job of its key waits already.", {"topic": topic.name, "seq": seq}) from None
        if done.status is None:
            raise no_job(policy, seq)
        if done.status != "pending":
            raise NotPending(topic.name, seq, done.status)
        self._engine.note_move(topic, ready=done.ready - (done.was == "ready"))
        # A claim may have passed it over meanwhile, for it was locked.
        self._engine.marks.note_change(topic.id, began)
        if done.due:
            self._engine.marks.look_at_due(topic.id)
        job = await self.show(policy, seq)
        if done.ready or done.due:
            self._engine.waiters.announce(topic.id, 1, None if job.original_topic is not None else {job.tenant})
        if job.state == "scheduled":
            self._engine.waiters.due_in(topic.id, max(job.visible_ms / 1000 - time.time(), 0))
        return job

    async def show(self, policy: Policy, seq: Seq) -> Shown:
        """A job. Raises NotFound."""
        place = Place(policy.topic.name, policy.topic.id, seq)
        for job in await shown.show(self._engine.pools.rest, [place]):
            return job
        raise no_job(policy, seq)


def live(match: Match) -> Match:
    """Of what matches, what is not over."""
    return match if match.states is not None else replace(match, states=LIVE)


async def told(state: EngineState, policy: Policy, done: Cancelled) -> None:
    """Count what was cancelled, and see to who waits behind it."""
    state.note_move(policy.topic, ready=-done.ready)
    state.metrics.topic(policy.topic.name).cancelled.add(len(done.gone))
    if done.gone or done.marked:
        await state.groups.let_next_through(policy)


def no_job(policy: Policy, seq: int) -> NotFound:
    """There is no such job, or not any more."""
    name = policy.topic.name
    return NotFound(f"There is no job {seq} in topic {name!r}.", {"topic": name, "seq": seq})
