"""What somebody asks of jobs by words, for whichever edge they come by. docs/jobs.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never

import msgspec
from starlette.requests import Request

from app.errors import KeyConflict, TopicNotFound
from app.features.jobs.changes import Changes, Counted
from app.features.jobs.filters import must_be_live
from app.features.jobs.operations import Wanted
from app.features.jobs.redrive_rows import First, Outcome
from app.features.jobs.redrives import Redrives
from app.features.jobs.releases import Releases
from app.http.context import Context, context_of
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.jobs import Match
from app.kernel.model import Held, Seq
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import BIGINT_MAX


async def cancel_matching(request: Request, policy: Policy, match: Match) -> Counted:
    """Cancel the jobs that match at this moment, in batches, with an entry in the audit trail ahead of it: what breaks
    off has done a part. Who asks was let do that; `match` is `must_be_live`."""
    context = context_of(request)
    detail = msgspec.to_builtins(match)
    by = context.access.actor(request)
    await trail.record(context.pools.rest, by, Action.JOBS_CANCELLED, policy.topic.name, {"filter": detail})
    return await context.core(Changes).cancel_matching(policy, match)


def cancels(policy: Policy, match: Match, rate: int = 0) -> Wanted:
    """A cancel of what matches, as an operation: `rate` jobs a second, 0 for as fast as it goes. Raises
    InvalidRequest."""
    return Wanted((policy.topic.name, policy.topic.id), rate=rate, cancels=must_be_live(match))


class Leases(msgspec.Struct, frozen=True):
    """Leases to take back: of jobs by seq, else of a tenant's group, else all that `node` holds. Beside seqs or a
    group, `node` means: only if this worker holds the lease; beside seqs, `visible_at` means: only if the lease still
    ends then, in ms since 1970."""

    seqs: Sequence[int] | None = None
    visible_at: Sequence[int] = ()
    group: str | None = None
    tenant: str = ""
    node: str | None = None


class TakenBack(NamedTuple):
    """Leases that were taken back; how many of their jobs ended; and the seqs that were left."""

    released: int
    ended: int
    skipped: list[int]


async def release(request: Request, policy: Policy, leases: Leases, *, refund: bool = False) -> TakenBack:
    """Take leases back. An entry goes into the audit trail ahead of it. Checking the caller's permission comes before
    this."""
    context, releases = context_of(request), context_of(request).engine.core(Releases)
    detail = {name: value for name, value in msgspec.structs.asdict(leases).items() if value} | {"refund": refund}
    by = context.access.actor(request)
    await trail.record(context.pools.rest, by, Action.LEASES_RELEASED, policy.topic.name, detail)
    if leases.seqs is not None:
        held = [Held(Seq(min(seq, BIGINT_MAX)), None, leases.node) for seq in leases.seqs]
        done, ended = await releases.release(policy, held, refund=refund, until_ms=leases.visible_at)
        return TakenBack(len(done), ended, [seq for i, seq in enumerate(leases.seqs) if i not in done])
    if leases.group is not None:
        counts = await releases.release_group(policy, leases.tenant, leases.group, leases.node, refund=refund)
        return TakenBack(*counts, [])
    assert leases.node is not None, "the caller names jobs, a group or a worker"
    return TakenBack(*await releases.release_node(policy, leases.node, refund=refund), [])


async def requeue_one(context: Context, policy: Policy, seq: Seq, starts: Sequence[str]) -> First | None:
    """Where a job is that was out, and has another life now; None if it is not out. `starts`: how the names of topics
    begin that it may go to, none for all. Raises KeyConflict, TopicNotFound."""
    done = await context.core(Redrives).requeue((policy.topic.name, policy.topic.id), [seq], starts)
    if not done:
        return None
    (one,) = done
    match one.outcome:
        case Outcome.KEY_CONFLICT:
            raise KeyConflict("A pending message has its key. It stays where it is.", {"topic": one.topic})
        case Outcome.TOPIC_GONE:
            raise TopicNotFound(one.topic)
        case Outcome.REQUEUED:
            return one.job
        case _:
            assert_never(one.outcome)
