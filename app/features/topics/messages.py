"""GET, PUT and DELETE /api/topic-configs/:topic, and the list of them."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest, NotAQueue, NotFound, TopicNotFound
from app.features.topics.configs import amend, check_dead_letter, check_hook
from app.features.topics.messages_bodies import TopicConfig, TopicConfigBody, TopicConfigs
from app.features.topics.messages_mapping import Decoder, chosen_anew, must_be_clear, shown_of
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.fields import topic_in
from app.http.messages.errors import operation
from app.http.openapi import TOPIC, query
from app.http.paging import CURSOR, cursor_of, cursor_to, foreign_cursor, page_size
from app.kernel.topics import store
from app.kernel.topics.config import check_name, of_messages
from app.kernel.topics.settings import Chosen, TopicType

router = direct.router("messages")

MOST_SHOWN: Final = 1_000
PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": MOST_SHOWN})


@router.get(
    "/api/topic-configs",
    response_class=Response,
    openapi_extra=operation(parameters=[PAGE_SIZE, CURSOR], answers={200: TopicConfigs}, errors=[400, 401, 403, 503]),
)
async def page(request: Request) -> Response:
    """What was chosen for queues, by topic, a page at a time. A topic that came about by being used is not there."""
    context = context_of(request)
    context.access.check(request, Scope.ADMIN)
    size = page_size(request, MOST_SHOWN)
    found = await store.configured(
        context.pools.rest,
        _after(request),
        size + 1,
        defaults=context.policies.defaults,
        allowed=context.access.prefixes(request, Scope.ADMIN),
    )
    shown = [shown_of(policy.topic.name, policy.chosen) for policy in found[:size]]
    more = cursor_to({"after": shown[-1].topic}) if len(found) > size else UNSET
    return _answer(TopicConfigs(shown, more))


@router.get(
    "/api/topic-configs/{topic}",
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC], answers={200: TopicConfig}, errors=[400, 401, 403, 404, 409, 503]),
)
async def get(request: Request) -> Response:
    """What was chosen for a topic."""
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.ADMIN, name)
    # Not from the cache: what is shown here is what is stored.
    policy = await store.get(context.pools.rest, check_name(name), context.policies.defaults)
    if policy is None:
        raise TopicNotFound(name)
    if policy.config.type is not TopicType.QUEUE:
        raise NotAQueue(name)
    if not policy.chosen.configured:
        raise _none_of(name)
    return _answer(shown_of(name, policy.chosen))


@router.put(
    "/api/topic-configs/{topic}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=TopicConfigBody,
        answers={200: TopicConfig},
        errors=[400, 401, 403, 409, 413, 415, 503],
    ),
)
async def put(request: Request) -> Response:
    """Configure a topic, which is made if there is none: what this dialect names is replaced, the rest of v0's settings
    stays unless it is given."""
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.ADMIN, name)
    asked = await read_json(request, Decoder(), context.settings.max_body_bytes)
    new = of_messages(name)
    must_be_clear(name, asked.body)
    check_dead_letter(request, asked.body.dead_letter)
    webhook, secret = check_hook(request, name, asked.body.webhook)
    asked.body = msgspec.structs.replace(asked.body, webhook=webhook)

    def change(was: Chosen | None) -> Chosen:
        return chosen_anew(name, _queue(name, new if was is None else was), asked)

    chosen = await amend(request, name, change, secret=secret)
    assert chosen is not None
    return _answer(shown_of(name, chosen))


@router.delete(
    "/api/topic-configs/{topic}",
    status_code=204,
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC], answers={204: None}, errors=[400, 401, 403, 404, 409, 503]),
)
async def delete(request: Request) -> Response:
    """Leave a topic to the service's defaults, as if it had come about by being used. It stays, with its jobs."""
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.ADMIN, name)
    new = of_messages(name)

    def change(was: Chosen | None) -> Chosen | None:
        return new if was is not None and _queue(name, was).configured else None

    if await amend(request, name, change) is None:
        raise _none_of(name)
    return Response(status_code=204)


def _queue(name: str, chosen: Chosen) -> Chosen:
    if chosen.type is not TopicType.QUEUE:
        raise NotAQueue(name)
    return chosen


def _none_of(name: str) -> NotFound:
    return NotFound(f"Nothing was chosen for topic {name!r}: the service's defaults hold.")


def _after(request: Request) -> str:
    place = cursor_of(request, dict[str, str])
    try:
        return "" if place is None else check_name(place["after"])
    except (KeyError, InvalidRequest):
        raise foreign_cursor() from None


def _answer(shown: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(shown), media_type="application/json")
