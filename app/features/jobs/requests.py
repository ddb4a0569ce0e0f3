"""Actions on jobs that both dialects and the pages share, with audit entries. docs/jobs.md, docs/dead-letters.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never
from uuid import UUID

import msgspec
from starlette.requests import Request

from app.base.keys import Key
from app.errors import KeyConflict, NotAQueue, NotFound, TopicNotFound
from app.features.jobs.changes import CancelCounts, Changes
from app.features.jobs.filters import must_be_live
from app.features.jobs.operations import First, Operation, OperationRequest
from app.features.jobs.redrives import Redrives
from app.features.jobs.requeues import RequeueOutcome
from app.http.access import must_cover
from app.http.context import Context, context_of
from app.http.route import Call
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.jobs import JobMatch, Status
from app.kernel.model import HeldJob, Seq
from app.kernel.purges import Purges
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import BIGINT_MAX, Exhaustion

MAX_RATE: Final = 100_000  # jobs a second


async def cancel_matching(request: Request, policy: Policy, match: JobMatch) -> CancelCounts:
    """Cancel the jobs that match now, in batches. Writes an audit entry first.

    After an error, the batches so far stay done. The caller must have checked the permission, and `match` with
    `must_be_live`.
    """
    context = context_of(request)
    detail = msgspec.to_builtins(match)
    by = context.access.actor(request)
    await trail.record(context.pools.rest, by, Action.JOBS_CANCELLED, policy.topic.name, {"filter": detail})
    return await context.core(Changes).cancel_matching(policy, match)


def cancels(policy: Policy, match: JobMatch, rate: int = 0) -> OperationRequest:
    """The request of an operation that cancels all matching jobs. Raises InvalidRequest.

    `rate`: jobs a second, 0 for no limit.
    """
    return OperationRequest((policy.topic.name, policy.topic.id), rate=rate, cancels=must_be_live(match))


class Leases(msgspec.Struct, frozen=True):
    """Leases to take back: by `seqs`, by a tenant's `group`, or all leases of the worker `node`.

    With seqs or a group, `node` takes only this worker's leases. With seqs, `visible_at` takes only leases that still
    end at these times, in ms since 1970.
    """

    seqs: Sequence[int] | None = None
    visible_at: Sequence[int] = ()
    group: str | None = None
    tenant: str = ""
    node: str | None = None


class TakenBack(NamedTuple):
    """How many leases were taken back, how many of their jobs ended, and the seqs that were skipped."""

    released: int
    ended: int
    skipped: list[int]


async def release(request: Request, policy: Policy, leases: Leases, *, refund: bool = False) -> TakenBack:
    """Take leases back. Writes an audit entry first. The caller must have checked the permission."""
    context, changes = context_of(request), context_of(request).core(Changes)
    detail = {name: value for name, value in msgspec.structs.asdict(leases).items() if value} | {"refund": refund}
    by = context.access.actor(request)
    await trail.record(context.pools.rest, by, Action.LEASES_RELEASED, policy.topic.name, detail)
    if leases.seqs is not None:
        leased = [HeldJob(Seq(min(seq, BIGINT_MAX)), None, leases.node) for seq in leases.seqs]
        done, ended = await changes.release(policy, leased, refund=refund, until_ms=leases.visible_at)
        return TakenBack(len(done), ended, [seq for i, seq in enumerate(leases.seqs) if i not in done])
    if leases.group is not None:
        counts = await changes.release_group(policy, leases.tenant, leases.group, leases.node, refund=refund)
        return TakenBack(*counts, [])
    assert leases.node is not None, "the caller names jobs, a group or a worker"
    return TakenBack(*await changes.release_node(policy, leases.node, refund=refund), [])


async def requeue_one(context: Context, policy: Policy, seq: Seq, starts: Sequence[str]) -> First | None:
    """Requeue a failed job. Returns where it is now, None if it has not failed.

    `starts`: prefixes of the topics that it may go to; empty allows all. Raises KeyConflict, TopicNotFound.
    """
    done = await context.core(Redrives).requeue((policy.topic.name, policy.topic.id), [seq], starts)
    if not done:
        return None
    (one,) = done
    match one.outcome:
        case RequeueOutcome.KEY_CONFLICT:
            raise KeyConflict("Not requeued: a pending message has the same key.", {"topic": one.topic})
        case RequeueOutcome.TOPIC_GONE:
            raise TopicNotFound(one.topic)
        case RequeueOutcome.REQUEUED:
            return one.job
        case _:
            assert_never(one.outcome)


def must_cover_letters(key: Key | None, policy: Policy) -> None:
    """Check that the key covers the topic's dead letters as well. Raises Forbidden."""
    if policy.config.dead_letter is not None:
        must_cover(key, policy.config.dead_letter)


async def queue_of_letters(context: Context, policy: Policy) -> tuple[str, int] | None:
    config = policy.config
    if config.on_exhausted is not Exhaustion.DEAD_LETTER or config.dead_letter is None:
        return None
    try:
        dead = await context.policies.queue(config.dead_letter)
    except (TopicNotFound, NotAQueue):
        return None
    return dead.topic.name, dead.topic.id


async def find_operation(context: Context, given: str, key: Key | None) -> Operation:
    """An operation by its id. Raises NotFound if there is none or the key does not cover its topic."""
    try:
        found = await context.core(Redrives).read(UUID(given))
    except ValueError:
        found = None
    if found is None or (key is not None and not key.covers(found.wanted.topic[0])):
        raise NotFound(f"There is no operation {given[:80]!r}.")
    return found


async def purge(request: Request, policy: Policy, statuses: Sequence[Status]) -> int:
    """Delete a topic's jobs by status. Writes an audit entry first. Returns how many were deleted."""
    context = context_of(request)
    actor, detail = context.access.actor(request), {"statuses": [one.value for one in statuses]}
    await trail.record(context.pools.rest, actor, Action.TOPIC_PURGED, policy.topic.name, detail)
    return await context.core(Purges).purge(policy, statuses)


class OperationCount(msgspec.Struct):
    """How many jobs match. exact: false if there may be more. id: the operation's id, null for a dry run."""

    id: str | None
    matched: int
    exact: bool


class BegunAnswer(OperationCount):
    """The operation runs in the background."""


async def begin_or_count(call: Call, wanted: OperationRequest, *, dry_run: bool) -> tuple[int, OperationCount]:
    """Begin an operation, or with `dry_run` count its jobs. Returns the HTTP status and the answer."""
    redrives = call.context.core(Redrives)
    if dry_run:
        matched = await redrives.count(wanted)
        return 200, OperationCount(None, matched.count, matched.exact)
    which, matched = await redrives.begin(wanted, call.context.access.actor(call.request))
    return 202, OperationCount(str(which), matched.count, matched.exact)
