"""/admin/: Home. Topics in trouble, the worst first, and the state of the server."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.db import health
from app.base.keys import covers
from app.base.metrics import catalogue
from app.base.outages import UNREACHABLE
from app.base.times import duration
from app.errors import HoldfastError
from app.features.dead_letters.failures import FailureReader
from app.features.jobs.first_job import first_steps
from app.features.stats import overview
from app.features.stats.overview import Overview, Snapshot, Sort, TopicOverview
from app.http.context import Context, context_of
from app.kernel.counts.levels import Levels
from app.kernel.counts.triage import Level, TroubleCode
from app.pages.permissions import SEE, SEE_SERVER, allows, check_permission
from app.pages.render import page

MOST: Final = 50  # topics in the list
EXPLAINED: Final = 3  # the first topics show their most common error
OLD_SECONDS: Final = 120.0  # an older snapshot counts as missing
PATIENCE_SECONDS: Final = 1.0  # for reading one most common error
_FAILS: Final = {TroubleCode.DEAD_LETTERS, TroubleCode.FAILING}


class Hurt(msgspec.Struct, frozen=True):
    """A topic in trouble. `error`: the most common error in the last hour, "" if unknown; `cluster`: the error's id."""

    seen: TopicOverview
    level: str
    error: str
    cluster: str


class Fact(msgspec.Struct, frozen=True):
    """A short fact about the server. `level`: a trouble's level, "" for none."""

    name: str
    value: str
    level: str = ""
    href: str = ""


async def show(request: Request) -> Response:
    """Show Home. Raises Unavailable."""
    context = context_of(request)
    key = check_permission(request, SEE)
    view = await context.core(Overview).read()
    may_see = covers(key)
    seen = [one for one in view.topics if may_see(one.name)]
    troubled, more = overview.page([one for one in seen if one.troubles], Sort.WORST, "", MOST)
    hurts = [await _hurt(context, request, one, n < EXPLAINED) for n, one in enumerate(troubled)]
    facts = await _facts(context, whole=allows(request, SEE_SERVER))
    levels = {hurt.level for hurt in hurts} | {fact.level for fact in facts}
    return page(
        request,
        "home.html",
        title="Home",
        hurts=hurts,
        fails=_FAILS,
        more=more,
        hurting=sum(hurt.level != Level.NOTE.value for hurt in hurts),
        facts=facts,
        well=not levels & {Level.BAD.value, Level.WATCH.value},
        unknown=_unknown(view),
        topics=len(seen),
        steps=None if seen else first_steps(request),
        age_ms=None if view.age is None else round(view.age * 1000),
        jobs=sum(one.looked.count for one in seen if one.looked.is_queue),
        done=sum(sum(one.minutes.completed) for one in seen if one.minutes is not None) if view.flows_known else None,
    )


def _unknown(view: Snapshot) -> list[str]:
    """Missing data. With any of it, the page can't say that all is well."""
    found = []
    if view.age is None:
        found.append("Topics have not been read yet.")
    elif view.age > OLD_SECONDS:
        found.append(f"Topics were last read {duration(view.age * 1000)} ago.")
    elif view.unseen:
        unseen = "1 topic is" if view.unseen == 1 else f"{view.unseen:,} topics are"
        found.append(f"{unseen} over the limit of HOLDFAST_METRICS_TOPICS and not included.")
    if view.age is not None and not view.flows_known:
        found.append("Recent job statistics could not be read in time.")
    return found


async def _hurt(context: Context, request: Request, seen: TopicOverview, explain: bool) -> Hurt:
    error = cluster = ""
    policy, dead = seen.policy, seen.policy.config.dead_letter
    if explain and any(one.code in _FAILS for one in seen.troubles) and (dead is None or allows(request, SEE, dead)):
        # Optional: the page works without it.
        with contextlib.suppress(HoldfastError, *UNREACHABLE):
            found = await context.core(FailureReader).largest(policy, PATIENCE_SECONDS, lately=True)
            for one in found.clusters[:1] if found is not None else ():
                error, cluster = one.title, one.cluster
    return Hurt(seen, seen.troubles[0].level.value, error, cluster)


async def _facts(context: Context, *, whole: bool) -> list[Fact]:
    merged = await context.engine.metrics.gather()

    def level(family: catalogue.Family, missing: float | None = None) -> float | None:
        return next(iter(merged.levels.get(family.name, {}).values()), missing)

    facts = [Fact("PostgreSQL", "connected") if context.core(Levels).up else Fact("PostgreSQL", "unreachable", "bad")]
    redis = level(catalogue.REDIS)
    facts.append(Fact("Redis", "not used") if redis is None else _redis(bool(redis)))
    if whole:
        facts.append(await _horizon(context))
    versions = sorted({version for version, _ in merged.levels.get(catalogue.BUILD.name, {})})
    processes = int(level(catalogue.PROCESSES, 1) or 1)
    mixed = len(versions) > 1
    facts.append(Fact("Processes", f"{processes}, version {' and '.join(versions)}", "watch" if mixed else ""))
    return facts


def _redis(connected: bool) -> Fact:
    return Fact("Redis", "connected") if connected else Fact("Redis", "unreachable: changes spread slower", "watch")


async def _horizon(context: Context) -> Fact:
    href = "/admin/horizon"
    try:
        found = await health.read_horizon(context.pools.rest)
    except UNREACHABLE:
        return Fact("Vacuum horizon", "unknown", "watch", href)
    if found.level is health.HorizonLevel.OK:
        return Fact("Vacuum horizon", "not held back", "", href)
    return Fact("Vacuum horizon", found.verdict, found.level.value, href)
