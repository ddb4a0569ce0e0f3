"""/v0/topics: create, configure, list and delete topics; pause, resume and drain queues."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, UnsetType

from app.base.keys import Scope
from app.errors import TopicNotFound, Unauthorized
from app.features.topics.changes import Drains, configure, hold
from app.http.bounds import about
from app.http.context import Context
from app.http.departure import while_connected
from app.http.fields import cursor_to, flag, name_after, page_size, prefix, prefix_in
from app.http.openapi import query
from app.http.route import Call
from app.kernel.audit.trail import Action
from app.kernel.counts import inspector
from app.kernel.counts.inspector import QueueState
from app.kernel.logs import log
from app.kernel.logs.log import LogState
from app.kernel.purges import Purges
from app.kernel.schemas import store as schema_store
from app.kernel.schemas.schemas import Format, SchemaText
from app.kernel.topics import store
from app.kernel.topics.last_used import priority_of
from app.kernel.topics.policy import (
    AskedInFull,
    Control,
    Policy,
    T,
    check_name,
    extend,
    to_drained,
    to_paused,
    to_resumed,
)
from app.kernel.topics.settings import DECLARED, Config, TopicType
from app.kernel.topics.webhooks import Webhook

EXACT: Final = 10_000
MAX_WAIT_MS: Final = 60_000
PREFIX: Final = prefix("topics")
TOUCH: Final = query("touch", "Whether this call counts as a read of the topic.", {"type": "boolean", "default": True})
TOUCH_ALL: Final = query(
    "touch", "Whether this call counts as a read of the listed topics.", {"type": "boolean", "default": False}
)
IF_EMPTY: Final = query(
    "if_empty", "true: refuse to delete a topic with live jobs or records.", {"type": "boolean", "default": False}
)

_TENANT = Annotated[str, Meta(min_length=1, max_length=128)]

SETTINGS: Final = tuple(name for name, one in DECLARED.items() if one.setting.v0)


def _showing_settings(of: type[T]) -> type[T]:
    shown = {name: DECLARED[name] for name in SETTINGS}
    types = {name: one.shows | None if one.default is None else one.shows for name, one in shown.items()}
    return extend(of, {name: (of_it, NODEFAULT) for name, of_it in types.items()})


@_showing_settings
class ResolvedConfig(msgspec.Struct, kw_only=True):
    """A topic's full configuration, with defaults and clamps applied."""

    durable: bool
    webhook: Webhook | UnsetType = UNSET
    schema: dict[str, Any] | list[Any] | str | bool | UnsetType = UNSET
    schema_format: Literal["json_schema", "avro"] | UnsetType = UNSET


class PutAnswer(msgspec.Struct):
    """The configured topic."""

    topic: str
    created: bool
    config: ResolvedConfig


class QueueCounts(msgspec.Struct):
    """Counts of a queue. `ready` and `in_flight` are current."""

    ready: int
    in_flight: int
    dead_lettered: Annotated[
        int, about("Dead letters over the topic's life. The current number is `dead` in its stats.")
    ]


class StateAnswer(msgspec.Struct, kw_only=True):
    """A topic. `count` and `bytes` are of its live jobs or records."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    queue: QueueCounts | UnsetType = UNSET
    last_write_ts: int | None
    next_seq: int
    config: ResolvedConfig
    effective_priority: int
    last_read_ts: int | None


class ListItem(msgspec.Struct):
    """A topic in a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class ListAnswer(msgspec.Struct):
    """A page of topics by name. The last page has no `next_cursor`."""

    topics: list[ListItem]
    next_cursor: str | UnsetType = UNSET


class DeleteAnswer(msgspec.Struct):
    """Whether the topic existed."""

    topic: str
    deleted: bool
    routers_removed: list[str]


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """The whole topic, or one tenant's jobs."""

    tenant: Annotated[_TENANT | None, about("Only this tenant's jobs.")] = None


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long to wait until the topic is empty."""

    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS, description="How long to wait until no job is left, in ms.")] = 0


class ControlAnswer(msgspec.Struct):
    """Whether the topic is paused or draining."""

    topic: str
    paused: Annotated[bool, about("Workers get no jobs from the topic.")]
    paused_tenants: Annotated[list[str], about("Workers get no jobs of these tenants.")]
    draining: Annotated[bool, about("The topic refuses new jobs.")]


class DrainAnswer(ControlAnswer, kw_only=True):
    """A draining topic, and the rest of its jobs."""

    left: Annotated[int, about("Jobs that are ready, scheduled, blocked or in flight.")]
    closes_in_ms: Annotated[
        int, about("Until then, another process that does not know of the drain yet may accept jobs.")
    ]
    empty: Annotated[bool, about("It has no jobs, and can't get any.")]


async def put(call: Call, body: AskedInFull) -> tuple[int, PutAnswer]:
    """Create a topic, or replace its configuration. Settings that are left out go back to their defaults."""
    name = check_name(call.topic)
    config, schema, created = await configure(call.request, call.context, name, body)
    return 201 if created else 200, PutAnswer(name, created, resolved_config(config, schema))


async def get(call: Call) -> StateAnswer:
    """Show a topic: its configuration and counts."""
    context, name = call.context, call.topic
    touch = flag(call.request, "touch", default=True)
    # Not from the cache: the answer is what is stored.
    policy = await store.get(context.pools.rest, check_name(name), context.policies.defaults)
    if policy is None:
        raise TopicNotFound(name)
    schema = None if policy.schema_version is None else await schema_store.get(context.pools.rest, name)
    extent, rest = await extent_of(context, policy)
    if touch:  # before last_read, so that this call counts
        context.engine.reads.note(policy.topic.id)
    last_read, last_write = (await context.engine.uses.last([policy.topic]))[policy.topic.id]
    fields = {**extent, **rest}
    if policy.config.type is TopicType.QUEUE:  # its newest job may be gone, or SQL users may have enqueued one
        known = [at for at in (last_write, fields["last_write_ts"]) if at is not None]
        fields["last_write_ts"] = max(known, default=None)
    return StateAnswer(
        topic=name,
        type=policy.config.type.value,
        **fields,
        next_seq=extent["head_seq"] + 1,
        config=resolved_config(
            policy.config, None if schema is None else SchemaText(Format(schema.format), schema.schema)
        ),
        effective_priority=_effective(policy, last_read),
        last_read_ts=last_read,
    )


async def page(call: Call) -> ListAnswer:
    """List topics by name."""
    request, context = call.request, call.context
    touch = flag(request, "touch", default=False)
    size = page_size(request)
    starts, after = prefix_in(request), name_after(request)
    allowed, defaults = context.access.prefixes(request, Scope.READ), context.policies.defaults
    policies = await store.page(context.pools.rest, starts, after, size + 1, defaults=defaults, allowed=allowed)
    listed = policies[:size]
    extents = await _extents(context, listed)
    if touch:
        for policy in listed:
            context.engine.reads.note(policy.topic.id)
    last = await context.engine.uses.last([policy.topic for policy in listed])
    items = [
        _item(policy, extents[policy.topic.name], last[policy.topic.id][0])
        for policy in listed
        if policy.topic.name in extents
    ]
    return ListAnswer(items, cursor_to({"after": listed[-1].topic.name}) if len(policies) > size else UNSET)


async def delete(call: Call) -> DeleteAnswer:
    """Delete a topic and all its content, leased jobs too. Content is deleted in batches. If a deletion is interrupted,
    a part is gone; repeat the call."""
    context = call.context
    if_empty = flag(call.request, "if_empty", default=False)
    name = check_name(call.topic)
    try:
        policy = await context.policies.get(name)
    except TopicNotFound:
        return DeleteAnswer(name, deleted=False, routers_removed=[])
    by = context.access.actor(call.request)
    deleted = await context.core(Purges).delete_topic(policy, if_empty=if_empty, by=by)
    return DeleteAnswer(name, deleted, routers_removed=[])


async def pause(call: Call, body: PauseBody) -> ControlAnswer:
    """Stop claims of the topic's jobs, or of one tenant's. Leases and enqueues go on."""
    held = await hold(call.request, call.topic, to_paused(body.tenant), Action.TOPIC_PAUSED)
    return ControlAnswer(**_state(call.topic, held))


async def resume(call: Call, body: PauseBody) -> ControlAnswer:
    """Allow claims and enqueues again, for the topic and all its tenants, or for one paused tenant."""
    held = await hold(call.request, call.topic, to_resumed(body.tenant), Action.TOPIC_RESUMED)
    return ControlAnswer(**_state(call.topic, held))


async def drain(call: Call, body: DrainBody) -> DrainAnswer:
    """Refuse new jobs until the topic is resumed. With `wait_ms`, the answer comes when no job is left, or after that
    time."""
    context, name = call.context, call.topic
    held = await hold(call.request, name, to_drained, Action.TOPIC_DRAINED)
    left = await while_connected(call.request, context.core(Drains).wait(name, body.wait_ms / 1000))
    if not context.access.still_good(call.key):
        raise Unauthorized("This key was revoked or has expired.")
    return DrainAnswer(**_state(name, held), left=left.jobs, closes_in_ms=left.closes_in_ms, empty=left.empty)


def _state(name: str, held: Control) -> dict[str, Any]:
    return {"topic": name, **msgspec.to_builtins(held)}


async def extent_of(context: Context, policy: Policy) -> tuple[dict[str, int], dict[str, Any]]:
    """Read a topic's first and last seq, count, bytes, last write, and a queue's counts. Raises TopicNotFound."""
    topic, db = policy.topic, context.pools.rest
    if policy.config.type is TopicType.LOG:
        log_state = (await log.states(db, [(topic, policy.config.ttl_ms)], EXACT)).get(topic.name)
        if log_state is None:
            raise TopicNotFound(topic.name)
        return _extent(log_state), {"last_write_ts": log_state.last_write_ms}
    state = (await inspector.states(db, [topic], EXACT)).get(topic.name)
    if state is None:
        raise TopicNotFound(topic.name)
    counts = await context.engine.counters.read(policy)
    extent = _extent(state)
    queue = QueueCounts(counts.ready, counts.in_flight, state.dead_lettered)
    return extent, {"count": counts.count, "queue": queue, "last_write_ts": state.last_write_ms}


def _extent(state: QueueState | LogState) -> dict[str, int]:
    return {
        "head_seq": state.head_seq,
        "earliest_seq": state.head_seq + 1 if state.earliest_seq is None else state.earliest_seq,
        "count": state.count,
        "bytes": state.bytes,
    }


async def _extents(context: Context, policies: list[Policy]) -> dict[str, dict[str, int]]:
    queues = [policy.topic for policy in policies if policy.config.type is TopicType.QUEUE]
    logs = [(policy.topic, policy.config.ttl_ms) for policy in policies if policy.config.type is TopicType.LOG]
    states = await inspector.states(context.pools.rest, queues, EXACT) if queues else {}
    log_states = await log.states(context.pools.rest, logs, EXACT) if logs else {}
    return {name: _extent(state) for name, state in states.items()} | {
        name: _extent(state) for name, state in log_states.items()
    }


def _item(policy: Policy, extent: dict[str, int], last_read: int | None) -> ListItem:
    name, priority = policy.topic.name, _effective(policy, last_read)
    return ListItem(topic=name, durable=policy.config.durable, effective_priority=priority, **extent)


def _effective(policy: Policy, last_read: int | None) -> int:
    config = policy.config
    if config.priority is not None:
        return min(max(config.priority, -1000), 1000)
    return priority_of(last_read) if config.auto_priority else 0


def resolved_config(config: Config, schema: SchemaText | None = None) -> Any:
    """Build a ResolvedConfig, in the order of the declarations."""
    first, *others = SETTINGS
    shown = {name: getattr(config, name) for name in (first, "durable", *others)}
    if schema is not None:
        shown |= {"schema": msgspec.Raw(schema.schema.encode()), "schema_format": schema.format}
    if config.webhook is None:
        del shown["webhook"]
    return shown
