"""Purges of what failed alike, for whichever edge an operator comes by. docs/failures.md."""

from __future__ import annotations

from starlette.requests import Request

from app.base.keys import Key
from app.features.dead_letters.reader import FailureReader
from app.features.jobs.operation_requests import must_cover_letters
from app.http.context import context_of
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.topics.policy import Policy


async def purge_cluster(request: Request, key: Key | None, policy: Policy, cluster: str) -> int:
    """Delete a cluster's jobs, with an entry in the audit trail ahead of it: how many. Raises Forbidden."""
    context = context_of(request)
    must_cover_letters(key, policy)
    detail = {"cluster": cluster}
    actor = context.access.actor(request)
    await trail.record(context.pools.rest, actor, Action.CLUSTER_PURGED, policy.topic.name, detail)
    return await context.core(FailureReader).purge(policy, cluster)
