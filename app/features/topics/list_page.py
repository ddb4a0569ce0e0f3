"""/admin/topics: the list of topics with counts and rates, and the search of the palette."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import covers
from app.errors import InvalidRequest
from app.features.jobs.first_job import first_steps
from app.features.saved_views import page as saved
from app.features.stats import overview
from app.features.stats.overview import Overview, Sort, TopicOverview
from app.http.context import context_of
from app.kernel.topics import store
from app.pages.frame import side
from app.pages.permissions import SEE, check_permission
from app.pages.render import page

MOST: Final = 50
FOUND: Final = 12
RATE_MINUTES: Final = 5  # a rate is the average of these
_UNCOUNTED: Final = 2  # the last minutes may not be counted yet


class TopicRow(msgspec.Struct, frozen=True):
    """A row of the list. Rates are jobs per minute, None if unknown."""

    seen: TopicOverview
    came: float | None
    went: float | None


async def show(request: Request) -> Response:
    """Show a page of topics. Raises InvalidRequest, Unavailable."""
    given = request.query_params
    wanted, after = given.get("q", "").strip(), given.get("after", "")
    try:
        sort = Sort(given.get("sort", Sort.NAME.value))
    except ValueError:
        raise InvalidRequest(f"sort must be one of {', '.join(Sort)}.") from None
    view = await context_of(request).engine.core(Overview).read()
    may_see = covers(check_permission(request, SEE))
    mine = [one for one in view.topics if may_see(one.name)]
    chosen = [one for one in mine if wanted.lower() in one.name.lower()]
    listed, more = overview.page(chosen, sort, after, MOST)
    state = {"q": wanted, "sort": "" if sort is Sort.NAME else sort.value}
    return page(
        request,
        "topics.html",
        title="Topics",
        rows=[_row(one) for one in listed],
        wanted=wanted,
        sort=sort.value,
        kept=await saved.of(request, _address(**state), worth=any(state.values())),
        here=_address(**state, after=after),
        sorts={one.value: _address(**(state | {"sort": "" if one is Sort.NAME else one.value})) for one in Sort},
        first=_address(**state) if after else "",
        following=_address(**state, after=listed[-1].name) if more else "",
        count=len(chosen),
        any=bool(mine),
        steps=None if mine else first_steps(request),
        truncated=view.unseen,
        age_ms=None if view.age is None else round(view.age * 1000),
    )


async def find(request: Request) -> Response:
    """Find views, pages and topics whose names contain the text. Topics that the overview lacks are found by prefix."""
    context = context_of(request)
    wanted = request.query_params.get("q", "").strip()
    if "\0" in wanted:
        raise InvalidRequest("q must not contain a NUL character.")
    key = check_permission(request, SEE)
    allowed = () if key is None else key.prefixes
    first = await store.page(context.pools.rest, wanted, "", FOUND, defaults=context.policies.defaults, allowed=allowed)
    known = (await context.core(Overview).read()).topics
    may_see = covers(key)
    names = [one.topic.name for one in first if may_see(one.topic.name)]
    names += [one.name for one in known if wanted.lower() in one.name.lower() and may_see(one.name)]
    return page(
        request,
        "found.html",
        title="Results",
        views=[one for one in await saved.every(request) if wanted.lower() in one.name.lower()][:FOUND],
        pages=[(one.word, one.href) for one in side(request) if wanted.lower() in one.word.lower()],
        topics=list(dict.fromkeys(names))[:FOUND],
    )


def _row(seen: TopicOverview) -> TopicRow:
    if seen.minutes is None:
        return TopicRow(seen, None, None)
    counted = slice(-RATE_MINUTES - _UNCOUNTED, -_UNCOUNTED)
    came, went = sum(seen.minutes.enqueued[counted]), sum(seen.minutes.completed[counted])
    return TopicRow(seen, came / RATE_MINUTES, went / RATE_MINUTES)


def _address(**query: str) -> str:
    given = {name: value for name, value in query.items() if value}
    return "/admin/topics" + (f"?{urlencode(given)}" if given else "")
