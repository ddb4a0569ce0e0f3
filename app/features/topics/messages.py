"""GET, PUT and DELETE /api/topic-configs/:topic, and the list of them."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from app.base.keys import Scope
from app.errors import NotAQueue, NotFound, TopicNotFound
from app.features.topics.configs import amend, check_dead_letter, check_hook
from app.features.topics.messages_config import (
    TopicConfig,
    TopicConfigs,
    Wanted,
    chosen_anew,
    config_of,
    must_be_clear,
)
from app.http.openapi import query
from app.http.paging import cursor_to, name_after, page_size
from app.http.route import Call
from app.kernel.topics import store
from app.kernel.topics.policy import check_name, of_messages
from app.kernel.topics.settings import Chosen, TopicType

MOST_SHOWN: Final = 1_000
PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": MOST_SHOWN})


async def page(call: Call) -> TopicConfigs:
    """What was chosen for queues, by topic, a page at a time. A topic that came about by being used is not there."""
    request, context = call.request, call.context
    size = page_size(request, MOST_SHOWN)
    policies = await store.configured(
        context.pools.rest,
        name_after(request),
        size + 1,
        defaults=context.policies.defaults,
        allowed=context.access.prefixes(request, Scope.ADMIN),
    )
    items = [config_of(policy.topic.name, policy.chosen) for policy in policies[:size]]
    return TopicConfigs(items, cursor_to({"after": items[-1].topic}) if len(policies) > size else UNSET)


async def get(call: Call) -> TopicConfig:
    """What was chosen for a topic."""
    context, name = call.context, call.topic
    # Not from the cache: what is shown here is what is stored.
    policy = await store.get(context.pools.rest, check_name(name), context.policies.defaults)
    if policy is None:
        raise TopicNotFound(name)
    if policy.config.type is not TopicType.QUEUE:
        raise NotAQueue(name)
    if not policy.chosen.configured:
        raise _none_of(name)
    return config_of(name, policy.chosen)


async def put(call: Call, asked: Wanted) -> TopicConfig:
    """Configure a topic, which is made if there is none: what this dialect names is replaced, the rest of v0's settings
    stays unless it is given."""
    request, name = call.request, call.topic
    new = of_messages(name)
    must_be_clear(name, asked.body)
    check_dead_letter(request, asked.body.dead_letter)
    webhook, secret = check_hook(request, name, asked.body.webhook)
    asked.body = msgspec.structs.replace(asked.body, webhook=webhook)

    def change(was: Chosen | None) -> Chosen:
        return chosen_anew(name, _queue(name, new if was is None else was), asked)

    chosen = await amend(request, name, change, secret=secret)
    assert chosen is not None
    return config_of(name, chosen)


async def delete(call: Call) -> None:
    """Leave a topic to the service's defaults, as if it had come about by being used. It stays, with its jobs."""
    name = call.topic
    new = of_messages(name)

    def change(was: Chosen | None) -> Chosen | None:
        return new if was is not None and _queue(name, was).configured else None

    if await amend(call.request, name, change) is None:
        raise _none_of(name)


def _queue(name: str, chosen: Chosen) -> Chosen:
    if chosen.type is not TopicType.QUEUE:
        raise NotAQueue(name)
    return chosen


def _none_of(name: str) -> NotFound:
    return NotFound(f"Nothing was chosen for topic {name!r}: the service's defaults hold.")
