"""/admin/topics/{topic}/jobs: a queue's jobs with a filter in the address, and the form that cancels all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.outages import TOO_SLOW
from app.errors import InvalidRequest
from app.features.jobs import filters
from app.features.jobs import operation_page as operation
from app.features.jobs.changes import LIVE
from app.features.jobs.filters import STATES, match_of, path_of
from app.features.jobs.operations import MatchCount, Operation, OperationRequest
from app.features.jobs.redrives import Redrives
from app.features.jobs.requests import MAX_RATE, cancels
from app.features.saved_views import page as saved
from app.http.context import Context, context_of
from app.http.fields import whole
from app.http.sight import as_seen, must_see_what_it_asks
from app.kernel.counts.levels import Levels
from app.kernel.counts.triage import TopicLevels
from app.kernel.jobs import LOOKED_AT, JobMatch, JobPage, JobView, list_page
from app.kernel.model import PayloadForm, form_of
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.forms import describe_doubling, number
from app.pages.frame import tabs
from app.pages.permissions import CHANGE_JOBS, REQUEUE, SEE, allows, check_permission
from app.pages.render import page
from app.pages.session import fields_of

MOST: Final = 50
SECONDS: Final = 3  # timeout of the search
OPERATIONS: Final = 20
RECENT: Final = timedelta(hours=1)
SAMPLE: Final = 10  # jobs whose payloads and workers give words to suggest
_SMALL: Final = 16 * 1024  # bytes of a payload that is decoded for suggestions
_PATHS: Final = 12
_NARROWING: Final = ("key", "tag", "tenant", "group")
_OF_REQUEUES: Final = {"error", "tag", "key", "tenant"}


class ListedJob(msgspec.Struct, frozen=True):
    """A job in the list.

    `left_ms`: when its lease or delay ends. `note`: its worker or its last error.
    `narrower`: for each field, the address of the list of jobs with the same value.
    """

    job: JobView
    age_ms: int
    left_ms: int | None
    note: str | None
    narrower: dict[str, str]


class StateChoice(msgspec.Struct, frozen=True):
    """A state to filter by. `count` is None if counting would take a scan."""

    word: str
    href: str
    here: bool
    count: int | None = None
    exact: bool = True


class ListQuery(msgspec.Struct, frozen=True):
    """The query in the address: the filter as typed, its values, and where the page begins.

    `wrong`: why the filter is not valid.
    """

    topic: str
    text: str
    values: dict[str, str]
    match: JobMatch
    oldest_first: bool
    after: int | None
    wrong: str = ""

    def address(self, values: dict[str, str] | None = None, *, oldest: bool | None = None, after: int = 0) -> str:
        """The address of the same list with another filter, order or start."""
        fields = {
            "q": self.text if values is None else filters.text_of(values),
            "order": "oldest" if (self.oldest_first if oldest is None else oldest) else "",
            "after": str(after) if after else "",
        }
        return address(self.topic, **fields)

    @property
    def may_end(self) -> bool:
        return bool(self.values) and self.values.get("state", LIVE[0]) in LIVE

    @property
    def requeue(self) -> str:
        """The address of the requeue of all these jobs, "" if the filter is not one that a requeue takes."""
        others = {name: value for name, value in self.values.items() if name != "state"}
        if self.values.get("state") != "failed" or others.keys() - _OF_REQUEUES or "" in others.values():
            return ""
        return f"/admin/topics/{self.topic}/dead/requeue" + (f"?{urlencode(others)}" if others else "")


def address(topic: str, q: str = "", order: str = "", after: str = "") -> str:
    """The address of a list of a topic's jobs; empty parameters are left out."""
    given = {name: value for name, value in (("q", q), ("order", order), ("after", after)) if value}
    return f"/admin/topics/{topic}/jobs" + (f"?{urlencode(given)}" if given else "")


async def show(request: Request) -> Response:
    """Render the list. A filter that is a number is a seq and leads to that job.

    Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable.
    """
    context, name = context_of(request), check_name(request.path_params["topic"])
    key = check_permission(request, SEE, name)
    query = _query_in(request.query_params, name)
    must_see_what_it_asks(key, name, query.match)
    if query.text.isascii() and query.text.isdigit():
        return RedirectResponse(f"{address(name)}/{query.text}", 303)
    policy = await context.policies.queue(name)
    found = JobPage([], None) if query.wrong else await _read_page(context, policy, query)
    jobs = [] if found is None else found.jobs
    holding = None if found is None else await context.core(Levels).look_at(policy)
    dead = policy.config.dead_letter
    return page(
        request,
        "jobs.html",
        400 if query.wrong else 200,
        title=f"Jobs of {name}",
        topic=name,
        tabs=tabs(request, name, failed=holding),
        query=query,
        base=address(name),
        ending=f"{address(name)}/cancel?{urlencode({'q': query.text})}" if query.may_end else "",
        may_cancel=allows(request, CHANGE_JOBS, name),
        may_requeue=allows(request, REQUEUE, name),
        operations=await _cancels(context, name),
        kept=await saved.of(request, query.address(), worth=not query.match.is_all and not query.wrong),
        any=not query.match.is_all,
        completions=filters.completions(query.text, _words_of([as_seen(key, name, job) for job in jobs[:SAMPLE]])),
        choices=_choices(query, holding),
        rows=None if found is None else [_row(query, one) for one in found.jobs],
        columns=[name for name in _NARROWING if any(getattr(job, name) for job in jobs)],
        here=query.address(after=query.after or 0),
        first=query.address() if query.after is not None else "",
        following="" if found is None or found.next_behind is None else query.address(after=found.next_behind),
        turned=query.address(oldest=not query.oldest_first),
        looked_at=LOOKED_AT,
        dead_letter=dead if dead is not None and allows(request, SEE, dead) else None,
    )


async def _cancels(context: Context, name: str) -> list[tuple[Operation, str]]:
    """The topic's cancels that are running or ended within RECENT, and the addresses of their pages."""
    since = datetime.now(UTC) - RECENT
    found = await context.core(Redrives).of_topic(name, OPERATIONS)
    mine = [one for one in found if one.wanted.cancels and (one.ended_at or one.started_at) > since]
    return [(one, operation.address(one)) for one in mine]


def _query_in(given: Mapping[str, str], name: str) -> ListQuery:
    order = given.get("order") or "newest"
    if order not in {"newest", "oldest"}:
        raise InvalidRequest("order must be newest or oldest.")
    after = whole(given, "after", 0) if given.get("after") else None
    if after is not None and not 0 <= after <= BIGINT_MAX:
        raise InvalidRequest("after must be the seq of a job.")
    text = given.get("q", "").strip()
    if text.isascii() and text.isdigit():
        return ListQuery(name, text, {}, JobMatch(), order == "oldest", after)
    try:
        values = filters.parse(text)
        match = match_of(*filters.parameters(values))
    except InvalidRequest as error:
        return ListQuery(name, text, {}, JobMatch(), order == "oldest", after, error.message)
    return ListQuery(name, text, values, match, order == "oldest", after)


async def _read_page(context: Context, policy: Policy, query: ListQuery) -> JobPage | None:
    try:
        async with context.pools.rest.acquire() as db, db.transaction(readonly=True):
            await db.execute(f"SET LOCAL statement_timeout = '{SECONDS}s'")
            return await list_page(
                db, policy.topic, query.match, oldest_first=query.oldest_first, behind=query.after, limit=MOST
            )
    except TOO_SLOW:
        return None


def _words_of(jobs: Sequence[JobView]) -> list[str]:
    nodes = {f"node:{filters.quote_value(job.node)}": 0 for job in jobs if job.state == "leased" and job.node}
    paths: dict[str, int] = {}
    for job in jobs:
        if len(job.payload) <= _SMALL and form_of(job.content_type) is PayloadForm.JSON:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                data = msgspec.json.decode(job.payload)
                fields = data if isinstance(data, dict) else {}
                plain = [key for key, value in fields.items() if key and not isinstance(value, dict | list)]
                paths |= {f"{filters.DATA}{path_of([key])}:": 0 for key in plain}
    return [*nodes, *list(paths)[:_PATHS]]


def _row(query: ListQuery, job: JobView) -> ListedJob:
    has = {name: getattr(job, name) for name in _NARROWING}
    narrower = {
        name: query.address(query.values | {name: value})
        for name, value in has.items()
        if value is not None and query.values.get(name) != value
    }
    now_ms = round(time.time() * 1000)
    left_ms = job.visible_ms - now_ms if job.state in {"leased", "scheduled"} else None
    note = job.node if job.state == "leased" else job.last_error
    return ListedJob(job, now_ms - job.created_ms, left_ms, note, narrower)


def _choices(query: ListQuery, holding: TopicLevels | None) -> list[StateChoice]:
    counts = (
        {}
        if holding is None
        else {
            "ready": (holding.ready, holding.exact),
            "leased": (holding.in_flight, holding.exact),
            "scheduled": (holding.scheduled, holding.exact),
            "blocked": (holding.blocked, True),
        }
    )
    others = {name: value for name, value in query.values.items() if name != "state"}
    now = query.values.get("state")
    every = StateChoice("all", query.address(others), now is None)
    return [every] + [
        StateChoice(state, query.address(others | {"state": state}), now == state, *counts.get(state, (None, True)))
        for state in STATES
    ]


async def ask_cancel(request: Request) -> Response:
    """Render the form of a cancel with a count of its jobs.

    Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable.
    """
    text = request.query_params.get("q", "")
    wanted = await _cancel_of(request, text, 0)
    return _cancel_form(request, text, await context_of(request).engine.core(Redrives).count(wanted))


async def begin_cancel(request: Request) -> Response:
    """Start the cancel and go to its progress. Ask again on errors, and if twice as many jobs match by now."""
    fields = await fields_of(request)
    context, name = context_of(request), check_name(request.path_params["topic"])
    text, typed = fields.get("q", ""), fields.get("rate", "").strip()[:20]
    wrong: dict[str, str] = {}
    rate = number(int, typed or "0", "rate", (0, MAX_RATE), wrong)
    wanted = await _cancel_of(request, text, rate)
    counted = await context.core(Redrives).count(wanted)
    again = describe_doubling(fields, ["sure"], counted.count)
    if wrong or again:
        return _cancel_form(request, text, counted, typed, wrong=wrong, again=again)
    which, _ = await context.core(Redrives).begin(wanted, context.access.actor(request))
    return RedirectResponse(f"/admin/topics/{name}/jobs/operations/{which}", 303)


async def _cancel_of(request: Request, text: str, rate: int) -> OperationRequest:
    name = check_name(request.path_params["topic"])
    match = match_of(*filters.parameters(filters.parse(text)))
    must_see_what_it_asks(check_permission(request, CHANGE_JOBS, name), name, match)
    policy = await context_of(request).policies.queue(name)
    return cancels(policy, match, rate)


def _cancel_form(
    request: Request,
    text: str,
    counted: MatchCount,
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
        back=address(name, text),
        counted=counted,
        rate=rate,
        wrong=wrong or {},
        again=again,
    )
