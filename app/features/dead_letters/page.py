"""/admin/topics/{topic}/dead: failures by kind of error, and the latest requeues."""

from __future__ import annotations

import time
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.features.dead_letters.failures import LATELY, Failure, FailureReader
from app.features.jobs.redrives import Redrives
from app.http.context import Context, context_of
from app.kernel.counts.levels import Levels
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import TopicType
from app.pages.frame import tabs
from app.pages.permissions import PURGE, REQUEUE, SEE, allows
from app.pages.render import page

OPERATIONS: Final = 10
PATIENCE_SECONDS: Final = 3.0  # for each of two readings


class Cluster(msgspec.Struct, frozen=True):
    """A kind of error.

    `lately`: how many of its jobs failed within the last hour, None if unknown. `fresh`: whether all of them did.
    """

    failure: Failure
    lately: int | None
    lately_exact: bool
    fresh: bool


async def show(request: Request) -> Response:
    """Render the page. Raises TopicNotFound, NotAQueue, Unavailable."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    policy = await context.policies.queue(name)
    seen = may_see_letters(request, policy)
    looked = await context.core(Levels).look_at(policy)
    deleted = request.query_params.get("deleted", "")
    operations = await context.core(Redrives).of_topic(name, OPERATIONS)
    return page(
        request,
        "dead.html",
        title=f"Failed jobs of {name}",
        topic=name,
        tabs=tabs(request, name, failed=looked),
        looked=looked,
        seen=seen,
        clusters=await read(context, policy) if seen else None,
        operations=[one for one in operations if not one.wanted.cancels],
        dead_letter=policy.config.dead_letter,
        dead_linked=policy.config.dead_letter is not None and allows(request, SEE, policy.config.dead_letter),
        is_log=await _is_log(context, policy),
        may_requeue=allows(request, REQUEUE, name),
        may_purge=allows(request, PURGE, name),
        deleted=int(deleted) if deleted.isascii() and deleted.isdigit() and len(deleted) < 15 else None,
    )


async def read(context: Context, policy: Policy) -> list[Cluster] | None:
    """The topic's clusters, at most half a minute old. Those that grew most in the last hour come first.

    None if they can't be read in time.
    """
    reader = context.core(FailureReader)
    found = await reader.largest(policy, PATIENCE_SECONDS)
    if found is None:
        return None
    grown = await reader.largest(policy, PATIENCE_SECONDS, lately=True)
    lately = {} if grown is None else {one.cluster: one for one in grown.clusters}
    every = lately | {one.cluster: one for one in found.clusters}
    # If not all clusters were read, one that is missing in `grown` may have grown a little.
    cut = grown is None or grown.more
    clusters = [_cluster(one, lately.get(one.cluster), cut) for one in every.values()]
    return sorted(clusters, key=lambda one: (one.lately or 0, one.failure.count, one.failure.last_ms), reverse=True)


async def find(context: Context, policy: Policy, cluster: str) -> Cluster | None:
    """A cluster by its id, None if the page doesn't list it."""
    known = (await read(context, policy) or []) if cluster else []
    return next((one for one in known if one.failure.cluster == cluster), None)


def _cluster(one: Failure, lately: Failure | None, cut: bool) -> Cluster:
    since_ms = (time.time() - LATELY.total_seconds()) * 1000
    return Cluster(
        failure=one,
        lately=(None if cut else 0) if lately is None else lately.count,
        lately_exact=lately is None or not lately.at_least,
        fresh=one.first_ms > since_ms,
    )


def may_see_letters(request: Request, policy: Policy) -> bool:
    return policy.config.dead_letter is None or allows(request, SEE, policy.config.dead_letter)


async def _is_log(context: Context, policy: Policy) -> bool:
    found = (
        None if policy.config.dead_letter is None else await context.policies.get_before_auth(policy.config.dead_letter)
    )
    return found is not None and found.config.type is TopicType.LOG
