"""/admin/topics/{topic}/dead/purge: the jobs of a cluster, or those that a topic holds by their status, deleted for
good; by typing the topic's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.keys import Scope
from app.features.dead_letters import page as clusters
from app.features.dead_letters.page_filters import Asked, asked_of
from app.features.dead_letters.reader import FailureReader
from app.features.jobs import operation_requests as operations
from app.features.jobs.operation_requests import must_cover_letters
from app.features.jobs.redrives import Redrives
from app.http.context import Context, context_of
from app.kernel import jobs as shown
from app.kernel.jobs import Status
from app.kernel.topics.policy import Policy, check_name
from app.pages.forms import describe_doubling
from app.pages.frame import tabs
from app.pages.permissions import PURGE, must_be_allowed
from app.pages.render import page
from app.pages.session import fields_of

_OF_SOURCE: Final = (Status.FAILED,)  # what waits there is work, and no dead letter


async def ask(request: Request) -> Response:
    """The form. Raises InvalidRequest, Forbidden, TopicNotFound, NotAQueue, Unavailable."""
    return await _form(request, asked_of(request.query_params).cluster, None, "", {})


async def run(request: Request) -> Response:
    """Delete them, if the topic's name was typed and there are not twice as many by now; else the form again. Raises
    what `ask` raises."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    fields = await fields_of(request)
    cluster, typed = asked_of(fields).cluster, fields.get("typed", "")
    policy = await context.policies.queue(name)
    statuses = [one for one in await _offered(context, policy) if f"status-{one.value}" in fields]
    wrong = {}
    if typed != name:
        wrong["typed"] = "This is not the topic's name."
    if not cluster and not statuses:
        wrong["statuses"] = "Nothing is chosen."
    if wrong:
        return await _form(request, cluster, statuses, typed[:200], wrong)
    again = describe_doubling(fields, _shown_in(cluster, statuses), await _count(context, policy, cluster, statuses))
    if again:
        return await _form(request, cluster, statuses, "", {"again": again})
    if cluster:
        key = context.access.check(request, Scope.DELETE, name)
        must_cover_letters(key, policy)
        deleted = await context.core(FailureReader).purge(policy, cluster, context.access.actor(request))
    else:
        deleted = await operations.purge(request, policy, statuses)
    return RedirectResponse(f"/admin/topics/{name}/dead?deleted={deleted}", 303)


async def _form(
    request: Request, cluster: str, chosen: Sequence[Status] | None, typed: str, wrong: dict[str, str]
) -> Response:
    """`chosen` None: all that is offered."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    key = must_be_allowed(request, PURGE, name)
    policy = await context.policies.queue(name)
    must_cover_letters(key, policy)
    offered = await _offered(context, policy)
    (counts,) = await shown.statuses(context.pools.rest, [policy.topic])
    base = f"/admin/topics/{name}/dead"
    return page(
        request,
        "dead_purge.html",
        409 if "again" in wrong else 400 if wrong else 200,
        title=f"Purge {name}",
        topic=name,
        tabs=tabs(request, name),
        base=base,
        back=Asked(cluster=cluster).address(f"{base}/jobs") if cluster else base,
        cluster=cluster,
        kind=await clusters.find(context, policy, cluster),
        statuses=[(one.value, counts.of(one), chosen is None or one in chosen) for one in offered],
        dead_letter=policy.config.dead_letter,
        typed=typed,
        wrong=wrong,
    )


def _shown_in(cluster: str, statuses: Sequence[Status]) -> list[str]:
    """The form's fields with the numbers that it showed of what was chosen."""
    return ["sure"] if cluster else [f"sure-{one.value}" for one in statuses]


async def _count(context: Context, policy: Policy, cluster: str, statuses: Sequence[Status]) -> int:
    """How many jobs would be deleted, as the form counts them."""
    if cluster:
        kind = await clusters.find(context, policy, cluster)
        return 0 if kind is None else kind.failure.count
    (counts,) = await shown.statuses(context.pools.rest, [policy.topic])
    return sum(counts.of(one) for one in statuses)


async def _offered(context: Context, policy: Policy) -> Sequence[Status]:
    """What a purge may take of a topic that holds others' dead letters, and of one that doesn't."""
    topic = policy.topic
    return tuple(Status) if await context.core(Redrives).holds_letters((topic.name, topic.id)) else _OF_SOURCE
