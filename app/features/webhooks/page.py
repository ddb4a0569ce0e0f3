"""/admin/webhooks: topics with webhooks, waiting deliveries, and failed deliveries."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.features.dead_letters.failures import FailureReader, Failures
from app.features.stats.overview import Overview
from app.http.context import context_of
from app.kernel import jobs
from app.kernel.counts.levels import Levels
from app.kernel.counts.triage import TopicLevels
from app.kernel.topics import store
from app.kernel.topics.webhooks import DELIVERIES
from app.pages.render import page

MOST: Final = 200  # topics in the list
PATIENCE_SECONDS: Final = 3.0  # for reading failures


class TopicHook(msgspec.Struct, frozen=True):
    """The webhook of a topic. `url` is "" if each record sets its own."""

    topic: str
    url: str
    events: str


async def show(request: Request) -> Response:
    context = context_of(request)
    policy = await store.get(context.pools.rest, DELIVERIES, context.policies.defaults)
    holding: TopicLevels | None = None
    failures: Failures | None = None
    given_up = 0
    if policy is not None:
        holding = await context.core(Levels).look_at(policy)
        (statuses,) = await jobs.statuses(context.pools.rest, [policy.topic])
        given_up = statuses.failed
        failures = await context.core(FailureReader).largest(policy, PATIENCE_SECONDS)
    view = await context.core(Overview).read()
    hooks = [
        TopicHook(one.name, hook.url or "", ", ".join(hook.on))
        for one in view.topics
        if (hook := one.policy.config.webhook) is not None
    ]
    return page(
        request,
        "webhooks.html",
        title="Webhooks",
        topic=DELIVERIES,
        holding=holding,
        given_up=given_up,
        failures=failures,
        hooks=hooks[:MOST],
        more=max(len(hooks) - MOST, 0),
        unseen=view.unseen,
    )
