"""/admin/topics/{topic}: counts, charts, failures, workers and groups of a topic. Pause, resume, and release leases."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.outages import TOO_SLOW
from app.base.times import EPOCH
from app.errors import InvalidRequest, NotFound, TopicNotFound
from app.features.dead_letters.failures import FailureReader, Failures
from app.features.explain.explain import Explain
from app.features.jobs import first_job
from app.features.jobs.first_job import first_steps
from app.features.jobs.requests import Leases, release
from app.features.schedules.changes import Schedules
from app.features.schedules.page import ScheduleRow, row_of
from app.features.stats import rows as stats
from app.features.stats.rows import DepthStep, StatsStep
from app.features.topics.changes import configure, hold
from app.http.context import Context, context_of
from app.kernel import jobs
from app.kernel.audit.trail import Action
from app.kernel.counts import holders, triage
from app.kernel.counts.holders import LOOKED_AT, WaitingGroup, WorkerLeases
from app.kernel.counts.levels import Levels
from app.kernel.jobs import JobPlace
from app.kernel.logs import log
from app.kernel.model import Connection, Seq
from app.kernel.tenants.census import Census
from app.kernel.tenants.tenants import Stats
from app.kernel.topics import store
from app.kernel.topics.policy import Control, Policy, check_name, to_paused, to_resumed
from app.kernel.topics.settings import TopicType
from app.pages.frame import tabs
from app.pages.permissions import CHANGE_JOBS, CONFIGURE, CONTROL, SEE, SEE_SCHEDULES, allows, check_permission
from app.pages.render import page
from app.pages.session import fields_of

MOST: Final = 8  # entries per list
MOST_IDLE: Final = 20  # waiting workers that are listed
PATIENCE_MS: Final = 200  # for reading workers and groups; also how long the page waits for tenants' counts
CLUSTERS: Final = 5  # clusters of failures that are listed
BOUND: Final = 10_001  # due jobs are counted exactly below this
WAITS, PROCESSING = "Wait before a claim", "Processing time"
_SEQ: Final = re.compile(r"[0-9]{1,18}\Z")
SECONDS: Final = 3  # for reading statistics, and for counting tenants' jobs


class Around(msgspec.Struct, frozen=True):
    """Workers, groups, tenants and schedules of a queue. A list is None if reading it took too long.

    waiting: the number of calls to this process that wait for a job. idle: their workers' names, up to MOST_IDLE.
    idle_more: the number of other workers.
    """

    workers: list[WorkerLeases] | None
    waiting: int
    idle: list[str]
    idle_more: int
    groups: list[WaitingGroup] | None
    tenants: list[Stats] | None
    schedules: list[ScheduleRow]
    more: frozenset[str]  # names of the lists that are truncated

    @property
    def exact(self) -> bool:
        """Whether `workers` covers all leases of the queue."""
        return "workers" not in self.more and sum(one.held for one in self.workers or ()) < LOOKED_AT


async def read_around(request: Request, policy: Policy) -> Around:
    """Read the lists of a topic's page. Raises asyncpg's errors."""
    context, topic = context_of(request), policy.topic
    workers = groups = None
    try:
        async with context.pools.rest.acquire() as db, db.transaction(readonly=True):
            await db.execute(f"SET LOCAL statement_timeout = {PATIENCE_MS}")
            workers = await holders.holders(db, topic, MOST + 1)
            groups = await holders.waiting_groups(db, topic, MOST + 1, policy.config.wait_goal_ms)
    except TOO_SLOW:
        pass
    tenants = await _tenants(context, policy)
    clocks = []
    if allows(request, SEE_SCHEDULES, topic.name):
        # "$" matches the whole name instead of a prefix. Names can't contain it.
        clocks = await context.core(Schedules).page("", "", MOST + 1, [f"{topic.name}$"])
    waiting = context.engine.waiters.nodes(topic.name)
    idle = sorted(set(waiting))
    lists = {"workers": workers, "groups": groups, "tenants": tenants, "schedules": clocks}
    return Around(
        None if workers is None else workers[:MOST],
        len(waiting),
        idle[:MOST_IDLE],
        max(len(idle) - MOST_IDLE, 0),
        None if groups is None else groups[:MOST],
        None if tenants is None else tenants[:MOST],
        [row_of(one) for one in clocks[:MOST]],
        frozenset(name for name, found in lists.items() if found and len(found) > MOST),
    )


async def _tenants(context: Context, policy: Policy) -> list[Stats] | None:
    """Tenants' counts, at most 30 s old. Empty if there is only the default tenant."""
    lanes = await context.engine.lanes.of(context.pools.rest, policy.topic)
    if not any(lane.tenant for lane in lanes):
        return []

    async def count() -> list[Stats] | None:
        try:
            async with asyncio.timeout(SECONDS):
                return await context.core(Census).read(policy, limit=MOST + 1)
        except (TimeoutError, *TOO_SLOW):
            return None

    return await context.engine.readings.within(("tenants", policy.topic.id), count, PATIENCE_MS / 1000)


class Span(msgspec.Struct, frozen=True):
    """The time range of the charts, and the length of a step."""

    title: str
    steps: int
    step: timedelta


SPANS: Final = {
    "1h": Span("hour", 60, timedelta(minutes=1)),
    "6h": Span("6 hours", 72, timedelta(minutes=5)),
    "24h": Span("day", 96, timedelta(minutes=15)),
    "7d": Span("week", 84, timedelta(hours=2)),
}


class Chart(msgspec.Struct, frozen=True):
    """A chart for static/charts.js. `nothing` is the text to show instead if there is no data."""

    title: str
    data: dict[str, object]
    nothing: str = ""


async def show(request: Request) -> Response:
    """Show the topic's page. Raises InvalidRequest, TopicNotFound, Unavailable."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    over = request.query_params.get("over", "1h")
    if over not in SPANS:
        raise InvalidRequest(f"over must be one of {', '.join(SPANS)}.")
    # Not from the cache: an operator who has just paused the topic must see it.
    policy = await store.get(context.pools.rest, name, context.policies.defaults)
    if policy is None:
        raise TopicNotFound(name)
    if policy.config.type is TopicType.LOG:
        states = await log.states(context.pools.rest, [(policy.topic, policy.config.ttl_ms)], BOUND)
        return page(
            request, "log.html", title=name, topic=name, tabs=tabs(request, name, is_log=True), log=states.get(name)
        )
    # In sequence, so that many open pages don't use up the pool.
    holding = await context.core(Levels).look_at(policy)
    charts = await _charts(context, policy, over)
    beside = await read_around(request, policy)
    _, verdict = await context.core(Explain).topic(policy)
    failures = await _failures(context, request, policy)
    dead = policy.config.dead_letter
    sent = request.query_params.get("sent", "")
    sent = sent if _SEQ.match(sent) else ""
    is_empty = not holding.count and not holding.dead and charts is not None and _is_quiet(charts)
    next_seq = int(sent or (holding.head_seq or 0) + 1)
    return page(
        request,
        "topic.html",
        title=name,
        topic=name,
        tabs=tabs(request, name, failed=holding),
        control=policy.control,
        may_control=allows(request, CONTROL, name),
        may_release=allows(request, CHANGE_JOBS, name),
        over=over,
        spans=SPANS,
        holding=holding,
        goal_ms=policy.config.wait_goal_ms,
        late=await _late(context, policy, holding.waited_ms),
        charts=charts,
        around=beside,
        reasons=verdict.reasons,
        failures=None if failures is None else failures.clusters[:CLUSTERS],
        dead_letter=dead,
        sent=sent,
        sent_state=await _state_of(context, policy, int(sent)) if sent else "",
        steps=first_steps(request, policy, next_seq) if is_empty or sent else None,
    )


async def send_test_job(request: Request) -> Response:
    """Enqueue a test job, and show it arriving. Raises TopicNotFound, NotAQueue, TopicFull, InvalidRequest."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    seq = await first_job.send_test_job(context, await context.policies.queue(name))
    return RedirectResponse(f"/admin/topics/{name}?sent={seq}", 303)


async def send_first_job(request: Request) -> Response:
    """Create the first queue with a test job, and show it arriving. Raises Forbidden, TopicExistsIncompatible."""
    context, name = context_of(request), first_job.QUEUE
    check_permission(request, CONFIGURE, name)
    check_permission(request, CHANGE_JOBS, name)
    await configure(request, context, name, first_job.first_config(), replace=False)
    seq = await first_job.send_test_job(context, await context.policies.queue(name))
    return RedirectResponse(f"/admin/topics/{name}?sent={seq}", 303)


async def pause(request: Request) -> Response:
    """Pause the topic. Raises TopicNotFound, NotAQueue."""
    return await _hold(request, to_paused(None), Action.TOPIC_PAUSED)


async def resume(request: Request) -> Response:
    """Resume the topic. Raises TopicNotFound, NotAQueue."""
    return await _hold(request, to_resumed(None), Action.TOPIC_RESUMED)


async def take_back(request: Request) -> Response:
    """Release the lease of a group's job, or all leases of a worker.

    Raises TopicNotFound, NotAQueue, InvalidRequest, and NotFound if there is no such lease.
    """
    fields, name = await fields_of(request), check_name(request.path_params["topic"])
    group, node = fields.get("group") or None, fields.get("node") or None
    if node is None:
        raise InvalidRequest("The form's field node is missing.")
    policy = await context_of(request).policies.queue(name)
    taken = await release(request, policy, Leases(group=group, tenant=fields.get("tenant", ""), node=node))
    if not taken.released:
        of_group = "" if group is None else f" of group {group}"
        raise NotFound(
            f"No lease was released: {node} holds no job{of_group} in {name}. The lease may have just ended."
        )
    return RedirectResponse(f"/admin/topics/{name}", 303)


async def _hold(request: Request, change: Callable[[Control], Control], action: Action) -> Response:
    name = check_name(request.path_params["topic"])
    await hold(request, name, change, action)
    return RedirectResponse(f"/admin/topics/{name}", 303)


async def _late(context: Context, policy: Policy, oldest_ms: int | None) -> str:
    """The trouble level of the oldest job's wait, "" for none. Topics for dead letters are never late."""
    level = triage.lateness(oldest_ms, policy.config.wait_goal_ms)
    if level is None:
        return ""
    await context.core(Levels).refresh()
    return "" if context.core(Levels).takes_dead(policy.topic.name) else level.value


async def _state_of(context: Context, policy: Policy, seq: int) -> str:
    place = JobPlace(policy.topic.name, policy.topic.id, Seq(seq))
    return next((job.state for job in await jobs.show(context.pools.rest, [place])), "")


def _is_quiet(charts: Sequence[Chart]) -> bool:
    """Whether the charts show no claims and no completed jobs."""
    return all(chart.nothing for chart in charts if chart.title in {WAITS, PROCESSING})


async def _failures(context: Context, request: Request, policy: Policy) -> Failures | None:
    """The largest clusters of failures. None if the visitor may not see the dead letters, or reading took too long."""
    dead = policy.config.dead_letter
    if dead is not None and not allows(request, SEE, dead):
        return None
    return await context.core(FailureReader).largest(policy, SECONDS)


async def _charts(context: Context, policy: Policy, over: str) -> list[Chart] | None:
    """The charts of a time range, at most 30 s old. None if reading took too long."""

    async def read() -> list[Chart] | None:
        try:
            async with context.pools.rest.acquire() as db, db.transaction(readonly=True):
                await db.execute(f"SET LOCAL statement_timeout = '{SECONDS}s'")
                return await _read_charts(db, policy, SPANS[over])
        except TOO_SLOW:
            return None

    return await context.engine.readings.within(("charts", policy.topic.id, over), read, SECONDS)


async def _read_charts(db: Connection, policy: Policy, span: Span) -> list[Chart]:
    counted_to, now = await stats.read_progress(db)
    before = now + (EPOCH - now) % span.step
    since = before - span.steps * span.step
    found = await stats.read_steps(db, policy.topic, (since, before), span.step)
    held = await stats.read_depths(db, policy.topic, (since, before), span.step)
    seconds = int(span.step.total_seconds())
    times = range(int(since.timestamp()), int(before.timestamp()), seconds)
    # Leave out steps with minutes that are not counted yet: they would look like a drop.
    counted = [at for at in times if (at + seconds) * 1000 <= counted_to]
    charts = curves(counted, {step.at // 1000: step for step in found}, seconds)
    return [*charts, depth(times, {one.at // 1000: one for one in held})]


def curves(times: Sequence[int], steps: dict[int, StatsStep], seconds: int) -> list[Chart]:
    """Charts of flow, waits and processing times. `times` and the keys of `steps` are the starts of steps, in s."""

    def rate(value: Callable[[StatsStep], int]) -> list[float]:
        return [round(value(steps[at]) * 60 / seconds, 2) if at in steps else 0 for at in times]

    def percentile(value: Callable[[StatsStep], int | None]) -> list[int | None]:
        return [value(steps[at]) if at in steps else None for at in times]

    flow = [
        _line("enqueued", "ready", rate(lambda step: step.enqueued)),
        _line("claimed", "claimed", rate(lambda step: step.wait.count)),
        _line("completed", "in-flight", rate(lambda step: step.completed)),
        _line("retried", "scheduled", rate(lambda step: step.retried)),
        _line("failed", "dead", rate(lambda step: step.failed)),
    ]
    waits = [
        _line("p50", "flow", percentile(lambda step: step.wait.p50_ms)),
        _line("p95", "ready", percentile(lambda step: step.wait.p95_ms)),
        _line("p99", "blocked", percentile(lambda step: step.wait.p99_ms)),
    ]
    works = [
        _line("p50", "flow", percentile(lambda step: step.processing.p50_ms)),
        _line("p95", "in-flight", percentile(lambda step: step.processing.p95_ms)),
        _line("p99", "blocked", percentile(lambda step: step.processing.p99_ms)),
    ]
    claims = any(step.wait.count for step in steps.values())
    acks = any(step.processing.count for step in steps.values())
    return [
        Chart("Jobs per minute", _data(times, "jobs", flow)),
        Chart(WAITS, _data(times, "ms", waits), "" if claims else "No jobs were claimed in this range."),
        Chart(PROCESSING, _data(times, "ms", works), "" if acks else "No jobs were completed in this range."),
    ]


def depth(times: Sequence[int], held: dict[int, DepthStep]) -> Chart:
    """A chart of the queue's depth at the ends of steps. `times` and the keys of `held` are starts of steps, in s."""

    def count(value: Callable[[DepthStep], int]) -> list[int | None]:
        return [value(held[at]) if at in held else None for at in times]

    lines = [
        _line("ready", "ready", count(lambda one: one.ready)),
        _line("in flight", "in-flight", count(lambda one: one.in_flight)),
        _line("scheduled", "scheduled", count(lambda one: one.scheduled)),
        _line("blocked", "blocked", count(lambda one: one.blocked)),
    ]
    nothing = "No depth samples in this range. Samples are taken once a minute."
    return Chart("Depth", _data(times, "jobs", lines), "" if held else nothing)


def _data(times: Sequence[int], unit: str, lines: Sequence[dict[str, object]]) -> dict[str, object]:
    return {"x": list(times), "unit": unit, "lines": lines}


def _line(name: str, tone: str, y: Sequence[float | None]) -> dict[str, object]:
    return {"name": name, "tone": tone, "y": y}
