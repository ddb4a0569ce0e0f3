"""PUT, GET and DELETE /v0/topics/:topic, and the list of topics."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest, TopicExistsIncompatible, TopicNotFound
from app.features.topics.configs import check_dead_letter, check_hook
from app.http import direct
from app.http.body import read_json
from app.http.context import Context, context_of
from app.http.fields import encode, flag, topic_in
from app.http.openapi import TOPIC, operation, query
from app.http.paging import CURSOR, PAGE_SIZE, cursor_of, cursor_to, foreign_cursor, page_size, prefix, prefix_in
from app.http.v0.bodies import DeleteAnswer, ListAnswer, ListItem, PutAnswer, QueueCounts, StateAnswer
from app.http.v0.config_bodies import config_shown
from app.http.v0.fields import answer
from app.kernel.counts import inspector
from app.kernel.counts.inspector import State
from app.kernel.logs import log
from app.kernel.logs.log import LogState
from app.kernel.purges import Purges
from app.kernel.schemas import store as schema_store
from app.kernel.schemas.schemas import Format, Text, text_of
from app.kernel.topics import store
from app.kernel.topics.config import Policy, check_name
from app.kernel.topics.last_used import priority_of
from app.kernel.topics.resolve import AskedInFull, resolve
from app.kernel.topics.settings import Config, TopicType

router = direct.router("topics")

EXACT: Final = 10_000
TOUCH = query("touch", "Whether this look counts as a read of the topic.", {"type": "boolean", "default": True})
TOUCH_ALL = query("touch", "Whether it counts as a read of those listed.", {"type": "boolean", "default": False})
IF_EMPTY = query(
    "if_empty", "true refuses to delete what holds live jobs or records.", {"type": "boolean", "default": False}
)

_body = msgspec.json.Decoder(AskedInFull)


@router.put(
    "/v0/topics/{topic}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=AskedInFull,
        body_required=False,
        answers={200: PutAnswer, 201: PutAnswer},
        errors=[400, 401, 403, 409, 413, 415, 503],
    ),
)
async def put(request: Request) -> Response:
    """Create a topic, or replace its configuration: what is left out goes back to its default."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.ADMIN, name)
    asked = await read_json(request, _body, context.settings.max_body_bytes, empty=b"{}")
    check_name(name)
    config, schema, created = await configure(request, context, name, asked)
    fields = {"topic": name, "created": created, "config": config_shown(config, schema)}
    return answer(encode(fields)[1:-1], began, status=201 if created else 200)


@router.get(
    "/v0/topics/{topic}",
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC, TOUCH], answers={200: StateAnswer}, errors=[400, 401, 403, 404, 503]),
)
async def get(request: Request) -> Response:
    """A topic's configuration, and what it holds."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.READ, name)
    touch = flag(request, "touch", default=True)
    # Not from the cache: what is shown here is what is stored.
    policy = await store.get(context.pools.rest, check_name(name), context.policies.defaults)
    if policy is None:
        raise TopicNotFound(name)
    schema = None if policy.schema_version is None else await schema_store.get(context.pools.rest, name)
    extent, rest = await extent_of(context, policy)
    fields: dict[str, Any] = {"topic": name, "type": policy.config.type, **extent, **rest}
    if touch:  # it counts itself
        context.engine.reads.note(policy.topic.id)
    last_read, last_write = (await context.engine.uses.last([policy.topic]))[policy.topic.id]
    if policy.config.type is TopicType.QUEUE:  # its newest job may be gone by now, or have come past the service
        known = [at for at in (last_write, fields["last_write_ts"]) if at is not None]
        fields["last_write_ts"] = max(known, default=None)
    fields |= {
        "next_seq": extent["head_seq"] + 1,
        "config": config_shown(policy.config, None if schema is None else Text(Format(schema.format), schema.schema)),
        "effective_priority": _effective(policy, last_read),
        "last_read_ts": last_read,
    }
    return answer(encode(fields)[1:-1], began)


async def extent_of(context: Context, policy: Policy) -> tuple[dict[str, int], dict[str, Any]]:
    """How far a topic goes and what it holds; and its last write, and a queue's counts, of one snapshot. Raises
    TopicNotFound."""
    topic, db = policy.topic, context.pools.rest
    if policy.config.type is TopicType.LOG:
        log_state = (await log.states(db, [(topic, policy.config.ttl_ms)], EXACT)).get(topic.name)
        if log_state is None:
            raise TopicNotFound(topic.name)
        return _log_extent(log_state), {"last_write_ts": log_state.last_write_ms}
    state = (await inspector.states(db, [topic], EXACT)).get(topic.name)
    if state is None:
        raise TopicNotFound(topic.name)
    counts = await context.engine.counters.read(policy)
    extent = _extent(state)
    queue = QueueCounts(counts.ready, counts.in_flight, state.dead_lettered)
    return extent, {"count": counts.count, "queue": queue, "last_write_ts": state.last_write_ms}


@router.get(
    "/v0/topics",
    response_class=Response,
    openapi_extra=operation(
        parameters=[
            prefix("topics"),
            PAGE_SIZE,
            CURSOR,
            TOUCH_ALL,
        ],
        answers={200: ListAnswer},
        errors=[400, 401, 403, 503],
    ),
)
async def page(request: Request) -> Response:
    """Topics by name, a page at a time."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check(request, Scope.READ)
    touch = flag(request, "touch", default=False)
    size = page_size(request)
    starts, after = prefix_in(request), _after(request)
    allowed, defaults = context.access.prefixes(request, Scope.READ), context.policies.defaults
    policies = await store.page(context.pools.rest, starts, after, size + 1, defaults=defaults, allowed=allowed)
    shown = policies[:size]
    extents = await _extents(context, shown)
    if touch:
        for policy in shown:
            context.engine.reads.note(policy.topic.id)
    last = await context.engine.uses.last([policy.topic for policy in shown])
    fields: dict[str, Any] = {
        "topics": [
            _item(policy, extents[policy.topic.name], last[policy.topic.id][0])
            for policy in shown
            if policy.topic.name in extents
        ]
    }
    if len(policies) > size:
        fields["next_cursor"] = cursor_to({"after": policies[size - 1].topic.name})
    return answer(encode(fields)[1:-1], began)


@router.delete(
    "/v0/topics/{topic}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, IF_EMPTY],
        answers={200: DeleteAnswer},
        errors=[400, 401, 403, 409, 503],
    ),
)
async def delete(request: Request) -> Response:
    """Delete a topic and all that it holds, leased jobs too, for good. What it holds goes in batches: a deletion that
    breaks off has done a part, and can be repeated."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.DELETE, name)
    if_empty = flag(request, "if_empty", default=False)
    check_name(name)
    try:
        policy = await context.policies.get(name)
    except TopicNotFound:
        return _deleted(name, False, began)
    deleted = await context.core(Purges).delete_topic(policy, if_empty=if_empty, by=context.access.actor(request))
    return _deleted(name, deleted, began)


def _deleted(name: str, deleted: bool, began: float) -> Response:
    return answer(encode({"topic": name, "deleted": deleted, "routers_removed": []})[1:-1], began)


async def configure(
    request: Request, context: Context, name: str, asked: AskedInFull, *, replace: bool = True
) -> tuple[Config, Text | None, bool]:
    """Store what was asked for; the configuration in full, the schema, and whether the topic was created. Without
    `replace`, one that exists stays as it is.

    Raises InvalidRequest, InvalidSchema; Forbidden for a dead-letter topic that the key may not write to;
    TopicExistsIncompatible.
    """
    webhook, secret = check_hook(request, name, asked.webhook)
    config = resolve(name, msgspec.structs.replace(asked, webhook=webhook))
    check_dead_letter(request, config.dead_letter)
    schema = None if asked.schema is None else await asyncio.to_thread(_schema_asked, asked)
    store_it = store.put if replace else store.create
    try:
        created = await store_it(
            context.pools.rest, name, config, context.access.actor(request), schema=schema, secret=secret
        )
    except TopicExistsIncompatible as error:
        if asked.type is not None:
            raise
        hint = 'Send "type": "queue": without a type, a PUT is for a log.'
        raise TopicExistsIncompatible(f"{error.message} {hint}", error.detail) from None
    context.policies.changed(name)
    return config, schema, created


def _schema_asked(asked: AskedInFull) -> Text:
    form = None if asked.schema_format is None else Format(asked.schema_format)
    return text_of(encode(asked.schema).decode(), form)


def _extent(state: State) -> dict[str, int]:
    return {
        "head_seq": state.head_seq,
        "earliest_seq": state.head_seq + 1 if state.earliest_seq is None else state.earliest_seq,
        "count": state.count,
        "bytes": state.bytes,
    }


def _log_extent(state: LogState) -> dict[str, int]:
    return {
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "count": state.count,
        "bytes": state.bytes,
    }


async def _extents(context: Context, policies: list[Policy]) -> dict[str, dict[str, int]]:
    """Of topics by name; one that was just deleted is left out."""
    queues = [policy.topic for policy in policies if policy.config.type is TopicType.QUEUE]
    logs = [(policy.topic, policy.config.ttl_ms) for policy in policies if policy.config.type is TopicType.LOG]
    states = await inspector.states(context.pools.rest, queues, EXACT) if queues else {}
    log_states = await log.states(context.pools.rest, logs, EXACT) if logs else {}
    return {name: _extent(state) for name, state in states.items()} | {
        name: _log_extent(state) for name, state in log_states.items()
    }


def _item(policy: Policy, extent: dict[str, int], last_read: int | None) -> ListItem:
    name, priority = policy.topic.name, _effective(policy, last_read)
    return ListItem(topic=name, durable=policy.config.durable, effective_priority=priority, **extent)


def _effective(policy: Policy, last_read: int | None) -> int:
    config = policy.config
    if config.priority is not None:
        return min(max(config.priority, -1000), 1000)
    return priority_of(last_read) if config.auto_priority else 0


def _after(request: Request) -> str:
    place = cursor_of(request, dict[str, str])
    try:
        return "" if place is None else check_name(place["after"])
    except (KeyError, InvalidRequest):
        raise foreign_cursor() from None
