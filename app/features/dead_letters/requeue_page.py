"""/admin/topics/{topic}/dead/requeue: how many jobs that would be, how fast and how carefully; and its beginning."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.features.dead_letters.page_filters import Asked, asked_of, wanted
from app.features.jobs.operation_requests import MAX_RATE
from app.features.jobs.operations import Canary
from app.features.jobs.redrives import COUNTED, Redrives
from app.http.context import context_of
from app.kernel.topics.policy import check_name
from app.pages.forms import describe_doubling, number
from app.pages.frame import tabs
from app.pages.permissions import REQUEUE, must_be_allowed
from app.pages.render import page
from app.pages.session import fields_of

MOST_FIRST: Final = 1_000
MOST_MINUTES: Final = 1_440


class Pace(msgspec.Struct, frozen=True):
    """How fast and how carefully, as it was typed."""

    rate: str = ""
    first: str = "10"
    percent: str = "10"
    minutes: str = "10"


async def ask(request: Request) -> Response:
    """The form, with a count of what is meant. Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable."""
    given = request.query_params
    asked = asked_of(given, given.getlist("seq"))
    # Who picks a few has looked at them.
    return await _form(request, asked, Pace() if asked.seqs is None else Pace(first="0"), {})


async def begin(request: Request) -> Response:
    """Begin it, and lead to its progress; or the form again: with what is wrong beside its fields, or where twice as
    many match by now."""
    fields = await fields_of(request)
    asked = asked_of(fields, [])
    pace = Pace(**{name: fields.get(name, "").strip()[:20] for name in Pace.__struct_fields__})
    wrong: dict[str, str] = {}
    rate = number(int, pace.rate or "0", "rate", (0, MAX_RATE), wrong)
    first = number(int, pace.first or "0", "first", (0, MOST_FIRST), wrong)
    percent = number(float, pace.percent or "10", "percent", (0, 100), wrong)
    minutes = number(int, pace.minutes or "10", "minutes", (1, MOST_MINUTES), wrong)
    if wrong:
        return await _form(request, asked, pace, wrong)
    context, name = context_of(request), check_name(request.path_params["topic"])
    key = must_be_allowed(request, REQUEUE, name)
    policy = await context.policies.queue(name)
    canary = Canary(first, percent, minutes * 60_000) if first else None
    starts = () if key is None else key.prefixes
    meant = await wanted(context, policy, asked, rate=rate, canary=canary, starts=starts)
    again = describe_doubling(fields, ["sure"], (await context.core(Redrives).count(meant)).count)
    if again:
        return await _form(request, asked, pace, {}, again)
    which, _ = await context.core(Redrives).begin(meant, context.access.actor(request))
    return RedirectResponse(f"/admin/topics/{name}/dead/operations/{which}", 303)


async def _form(request: Request, asked: Asked, pace: Pace, wrong: dict[str, str], again: str = "") -> Response:
    context, name = context_of(request), check_name(request.path_params["topic"])
    key = must_be_allowed(request, REQUEUE, name)
    policy = await context.policies.queue(name)
    starts = () if key is None else key.prefixes
    base = f"/admin/topics/{name}/dead"
    return page(
        request,
        "dead_requeue.html",
        400 if wrong else 409 if again else 200,
        title=f"Requeue from {name}",
        topic=name,
        tabs=tabs(request, name),
        base=base,
        back=base if asked == Asked() or asked.seqs is not None else asked.address(f"{base}/jobs"),
        asked=asked,
        matched=await context.core(Redrives).count(await wanted(context, policy, asked, starts=starts)),
        counted=COUNTED,
        pace=pace,
        wrong=wrong,
        again=again,
    )
