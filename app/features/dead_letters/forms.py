"""/admin/topics/{topic}/dead/requeue and …/purge: the forms that requeue and delete many failed jobs.

A purge takes the jobs of a cluster, or jobs in the topic by status. The user must type the topic's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.keys import Scope
from app.features.dead_letters.failures import FailureReader
from app.features.dead_letters.page import find
from app.features.dead_letters.requeues import Selection, requeue_of, selection_in
from app.features.jobs import requests as job_requests
from app.features.jobs.operations import Canary
from app.features.jobs.redrives import COUNTED, Redrives
from app.features.jobs.requests import MAX_RATE, must_cover_letters
from app.http.context import Context, context_of
from app.kernel import jobs
from app.kernel.jobs import Status
from app.kernel.topics.policy import Policy, check_name
from app.pages.forms import describe_doubling, number
from app.pages.frame import tabs
from app.pages.permissions import PURGE, REQUEUE, check_permission
from app.pages.render import page
from app.pages.session import fields_of

MOST_FIRST: Final = 1_000
MOST_MINUTES: Final = 1_440
_OF_SOURCE: Final = (Status.FAILED,)  # other statuses in an ordinary topic are work, not dead letters


class RequeuePace(msgspec.Struct, frozen=True):
    """A requeue's rate and canary as typed."""

    rate: str = ""
    first: str = "10"
    percent: str = "10"
    minutes: str = "10"


async def ask_requeue(request: Request) -> Response:
    """Render the form with a count of the jobs. Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable."""
    given = request.query_params
    selection = selection_in(given, given.getlist("seq"))
    # A few jobs picked one by one need no canary.
    return await _requeue_form(
        request, selection, RequeuePace() if selection.seqs is None else RequeuePace(first="0"), {}
    )


async def requeue(request: Request) -> Response:
    """Start the requeue and go to its progress. Ask again on errors, and if twice as many jobs match by now."""
    fields = await fields_of(request)
    selection = selection_in(fields, [])
    pace = RequeuePace(**{name: fields.get(name, "").strip()[:20] for name in RequeuePace.__struct_fields__})
    wrong: dict[str, str] = {}
    rate = number(int, pace.rate or "0", "rate", (0, MAX_RATE), wrong)
    first = number(int, pace.first or "0", "first", (0, MOST_FIRST), wrong)
    percent = number(float, pace.percent or "10", "percent", (0, 100), wrong)
    minutes = number(int, pace.minutes or "10", "minutes", (1, MOST_MINUTES), wrong)
    if wrong:
        return await _requeue_form(request, selection, pace, wrong)
    context, name = context_of(request), check_name(request.path_params["topic"])
    key = check_permission(request, REQUEUE, name)
    policy = await context.policies.queue(name)
    canary = Canary(first, percent, minutes * 60_000) if first else None
    starts = () if key is None else key.prefixes
    wanted = await requeue_of(context, policy, selection.match, selection.seqs, rate=rate, canary=canary, starts=starts)
    again = describe_doubling(fields, ["sure"], (await context.core(Redrives).count(wanted)).count)
    if again:
        return await _requeue_form(request, selection, pace, {}, again)
    which, _ = await context.core(Redrives).begin(wanted, context.access.actor(request))
    return RedirectResponse(f"/admin/topics/{name}/dead/operations/{which}", 303)


async def _requeue_form(
    request: Request, selection: Selection, pace: RequeuePace, wrong: dict[str, str], again: str = ""
) -> Response:
    context, name = context_of(request), check_name(request.path_params["topic"])
    key = check_permission(request, REQUEUE, name)
    policy = await context.policies.queue(name)
    starts = () if key is None else key.prefixes
    wanted = await requeue_of(context, policy, selection.match, selection.seqs, starts=starts)
    base = f"/admin/topics/{name}/dead"
    return page(
        request,
        "dead_requeue.html",
        400 if wrong else 409 if again else 200,
        title=f"Requeue from {name}",
        topic=name,
        tabs=tabs(request, name),
        base=base,
        back=base if selection == Selection() or selection.seqs is not None else selection.address(f"{base}/jobs"),
        selection=selection,
        matched=await context.core(Redrives).count(wanted),
        counted=COUNTED,
        pace=pace,
        wrong=wrong,
        again=again,
    )


async def ask_purge(request: Request) -> Response:
    """Render the form. Raises InvalidRequest, Forbidden, TopicNotFound, NotAQueue, Unavailable."""
    return await _purge_form(request, selection_in(request.query_params).cluster, None, "", {})


async def purge(request: Request) -> Response:
    """Delete the jobs if the topic's name was typed. Ask again if not, and if there are twice as many by now.

    Raises the errors of `ask_purge`.
    """
    context, name = context_of(request), check_name(request.path_params["topic"])
    fields = await fields_of(request)
    cluster, typed = selection_in(fields).cluster, fields.get("typed", "")
    policy = await context.policies.queue(name)
    statuses = [one for one in await _purgeable(context, policy) if f"status-{one.value}" in fields]
    wrong = {}
    if typed != name:
        wrong["typed"] = "This is not the topic's name."
    if not cluster and not statuses:
        wrong["statuses"] = "Choose at least one status."
    if wrong:
        return await _purge_form(request, cluster, statuses, typed[:200], wrong)
    numbers = ["sure"] if cluster else [f"sure-{one.value}" for one in statuses]  # fields with the form's counts
    again = describe_doubling(fields, numbers, await _count(context, policy, cluster, statuses))
    if again:
        return await _purge_form(request, cluster, statuses, "", {"again": again})
    if cluster:
        key = context.access.check(request, Scope.DELETE, name)
        must_cover_letters(key, policy)
        deleted = await context.core(FailureReader).purge(policy, cluster, context.access.actor(request))
    else:
        deleted = await job_requests.purge(request, policy, statuses)
    return RedirectResponse(f"/admin/topics/{name}/dead?deleted={deleted}", 303)


async def _purge_form(
    request: Request, cluster: str, chosen: Sequence[Status] | None, typed: str, wrong: dict[str, str]
) -> Response:
    """Render the form. `chosen` None: all statuses that may be purged."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    key = check_permission(request, PURGE, name)
    policy = await context.policies.queue(name)
    must_cover_letters(key, policy)
    purgeable = await _purgeable(context, policy)
    (counts,) = await jobs.statuses(context.pools.rest, [policy.topic])
    base = f"/admin/topics/{name}/dead"
    return page(
        request,
        "dead_purge.html",
        409 if "again" in wrong else 400 if wrong else 200,
        title=f"Purge {name}",
        topic=name,
        tabs=tabs(request, name),
        base=base,
        back=Selection(cluster=cluster).address(f"{base}/jobs") if cluster else base,
        cluster=cluster,
        kind=await find(context, policy, cluster),
        statuses=[(one.value, counts.of(one), chosen is None or one in chosen) for one in purgeable],
        dead_letter=policy.config.dead_letter,
        typed=typed,
        wrong=wrong,
    )


async def _count(context: Context, policy: Policy, cluster: str, statuses: Sequence[Status]) -> int:
    if cluster:
        kind = await find(context, policy, cluster)
        return 0 if kind is None else kind.failure.count
    (counts,) = await jobs.statuses(context.pools.rest, [policy.topic])
    return sum(counts.of(one) for one in statuses)


async def _purgeable(context: Context, policy: Policy) -> Sequence[Status]:
    """The statuses that a purge may take: all in a topic with other topics' dead letters, otherwise only failed."""
    topic = policy.topic
    return tuple(Status) if await context.core(Redrives).holds_letters((topic.name, topic.id)) else _OF_SOURCE
