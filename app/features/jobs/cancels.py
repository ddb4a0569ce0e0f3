"""Cancels of many jobs, as operations do them: which jobs those are, batch by batch. docs/semantics.md, section 19."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from app.base.outages import UNREACHABLE
from app.errors import NotAQueue, TopicNotFound
from app.features.jobs import changes
from app.features.jobs.change_rows import Cancelled, cancel
from app.features.jobs.operations import Matched, Operation, State, Step
from app.features.jobs.redrive_rows import Place
from app.kernel import jobs as shown
from app.kernel.model import Topic

if TYPE_CHECKING:
    from app.kernel.jobs import Match
    from app.kernel.model import Connection
    from app.kernel.state import EngineState

LAST: Final = 9  # the stage behind all others
SECONDS: Final = 1.0  # that a count may go on to its next page


async def count(db: Connection, topic: tuple[str, int], match: Match, until: datetime, looks: int) -> Matched:
    """How many live jobs match that were enqueued until then; after a look at `looks`, or SECONDS, at least so many."""
    jobs, behind, end = 0, 0, time.monotonic() + SECONDS
    for looked in range(0, looks, shown.LOOKED_AT):
        if looked and time.monotonic() > end:
            break
        found = await _find(db, topic, match, shown.LOOKED_AT, until=until, behind=behind)
        jobs += len(found.seqs)
        if found.next_behind is None:
            return Matched(jobs, exact=True)
        behind = found.next_behind
    return Matched(jobs, exact=False)


async def batch(db: Connection, run: Operation, limit: int) -> tuple[Step, Cancelled]:
    """Cancel the next `limit` jobs, the oldest first, of those that one page looks at. `db` has a transaction."""
    match = run.wanted.cancels
    assert match is not None
    found = await _find(db, run.wanted.topic, match, limit, until=run.until, behind=run.at.seq)
    done = await cancel(db, _named(run.wanted.topic), found.seqs)
    gone, marked = len(done.gone), len(done.marked)
    more = found.next_behind is not None
    step = Step(
        State.RUNNING,
        run.stage if more else LAST,
        Place(seq=found.next_behind) if found.next_behind is not None else run.at,
        [],
        gone=gone,
        marked=marked,
        skipped=len(found.seqs) - gone - marked,
    )
    return step, done


async def told(state: EngineState, topic: tuple[str, int], done: Cancelled) -> None:
    """Tell whom it concerns, once it is committed."""
    with contextlib.suppress(TopicNotFound, NotAQueue, *UNREACHABLE):
        policy = await state.policies.queue(topic[0])
        if policy.topic.id == topic[1]:
            await changes.told(state, policy, done)


async def _find(
    db: Connection, topic: tuple[str, int], match: Match, limit: int, *, until: datetime, behind: int
) -> shown.Found:
    """Of all jobs of the topic: what an index has of those that are leased ends sooner. Their age counts until then."""
    meant = changes.live(replace(match, older_than_ms=None))
    return await shown.find(
        db, _named(topic), meant, oldest_first=True, behind=behind, limit=limit, by=until, one_by_one=True
    )


def _named(topic: tuple[str, int]) -> Topic:
    name, topic_id = topic
    return Topic(name, topic_id, 0)  # no statement here asks for its sequence
