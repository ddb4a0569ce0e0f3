"""Holding a topic up and letting it go on, for whichever edge an operator comes by. docs/control.md."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request

from app.http.context import context_of
from app.kernel.audit.trail import Action
from app.kernel.topics import store
from app.kernel.topics.config import check_name
from app.kernel.topics.control import Control


async def hold(request: Request, name: str, change: Callable[[Control], Control], action: Action) -> Control:
    """What `change` makes of how a topic is held up, with an entry in the audit trail. Who asks was let do that.

    Raises InvalidRequest, TopicNotFound, NotAQueue, and what `change` raises.
    """
    context = context_of(request)
    by = context.access.actor(request)
    control = await store.control(context.pools.rest, check_name(name), change, action, by)
    context.policies.changed(name)
    if action is Action.TOPIC_RESUMED:
        context.engine.resumed((await context.policies.queue(name)).topic.id)
    return control
