"""/admin/topics/{topic}/jobs/cancel: how many jobs the list's filter matches, how fast they go; and its beginning."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.features.jobs import filters
from app.features.jobs import list_page as listing
from app.features.jobs.filters import match_of
from app.features.jobs.operation_requests import MAX_RATE
from app.features.jobs.operations import Matched, Wanted
from app.features.jobs.redrives import Redrives
from app.features.jobs.requests import cancels
from app.http.context import context_of
from app.http.sight import must_see_what_it_asks
from app.kernel.topics.policy import check_name
from app.pages.forms import describe_doubling, number
from app.pages.frame import tabs
from app.pages.permissions import CHANGE_JOBS, must_be_allowed
from app.pages.render import page
from app.pages.session import fields_of


async def ask(request: Request) -> Response:
    """The form, with a count of what is meant. Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable."""
    text = request.query_params.get("q", "")
    wanted = await _wanted(request, text, 0)
    return _form(request, text, await context_of(request).engine.core(Redrives).count(wanted))


async def begin(request: Request) -> Response:
    """Begin it, and lead to its progress; or the form again: with what is wrong beside its field, or where twice as
    many match by now."""
    fields = await fields_of(request)
    context, name = context_of(request), check_name(request.path_params["topic"])
    text, typed = fields.get("q", ""), fields.get("rate", "").strip()[:20]
    wrong: dict[str, str] = {}
    rate = number(int, typed or "0", "rate", (0, MAX_RATE), wrong)
    wanted = await _wanted(request, text, rate)
    counted = await context.core(Redrives).count(wanted)
    again = describe_doubling(fields, ["sure"], counted.count)
    if wrong or again:
        return _form(request, text, counted, typed, wrong=wrong, again=again)
    which, _ = await context.core(Redrives).begin(wanted, context.access.actor(request))
    return RedirectResponse(f"/admin/topics/{name}/jobs/operations/{which}", 303)


async def _wanted(request: Request, text: str, rate: int) -> Wanted:
    name = check_name(request.path_params["topic"])
    match = match_of(*filters.parameters(filters.parse(text)))
    must_see_what_it_asks(must_be_allowed(request, CHANGE_JOBS, name), name, match)
    policy = await context_of(request).policies.queue(name)
    return cancels(policy, match, rate)


def _form(
    request: Request,
    text: str,
    counted: Matched,
    rate: str = "",
    *,
    wrong: dict[str, str] | None = None,
    again: str = "",
) -> Response:
    name = request.path_params["topic"]
    return page(
        request,
        "jobs_cancel.html",
        400 if wrong else 409 if again else 200,
        title=f"Cancel jobs of {name}",
        topic=name,
        tabs=tabs(request, name),
        text=text,
        back=listing.address(name, text),
        counted=counted,
        rate=rate,
        wrong=wrong or {},
        again=again,
    )
