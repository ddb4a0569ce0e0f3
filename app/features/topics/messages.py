"""/api/topic-configs: configurations of topics in the messages dialect. docs/configuration.md"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, UnsetType

from app.base.keys import Scope
from app.errors import InvalidRequest, NotAQueue, NotFound, TopicNotFound
from app.features.topics.changes import amend, check_dead_letter, check_hook
from app.http.fields import cursor_to, name_after, page_size
from app.http.openapi import query
from app.http.route import Call
from app.kernel.topics import store
from app.kernel.topics.declarations import Declaration
from app.kernel.topics.policy import (
    OF_MESSAGES,
    AskedSettings,
    T,
    about,
    check_leases,
    check_name,
    extend,
    field,
    of_messages,
    value_in,
)
from app.kernel.topics.settings import (
    DEAD_LETTERS,
    DECLARED,
    MOST_DELIVERIES,
    PATTERN,
    Chosen,
    Exhaustion,
    TopicType,
)

# Two names for the same setting. A body can have one of each pair.
IN_SECONDS: Final = {name: one.setting.seconds for name, one in DECLARED.items() if one.setting.seconds}
PAIRS: Final = (("max_deliveries", "max_retries"), ("max_deliveries", "dlq_threshold"), *IN_SECONDS.items())
REPLACED: Final = tuple(name for name, one in DECLARED.items() if one.setting.replaced)
_FLAGS: Final = {one.setting.flag.name for one in DECLARED.values() if one.setting.flag is not None}
# These have their own rules in _exit.
RULED: Final = {"type", "max_deliveries", "dead_letter", "on_exhausted"}
_AFTER: Final = {  # settings whose place in answers differs from v0
    "idempotency_window_ms": ("result_ttl_ms", "event_ttl_ms", "dead_ttl_ms"),
    "priority": ("tenant_weights", "tenant_limits"),
}
_MOVED: Final = {*REPLACED, *RULED, *(name for names in _AFTER.values() for name in names)}
# A PUT leaves absent ones unchanged, and sets null ones to v0's default.
OF_V0: Final = tuple(one for name in DECLARED if name not in _MOVED for one in (name, *_AFTER.get(name, ())))
# The first settings in answers.
_FIRST: Final = (
    *("replayable", "durable", "max_retries", "dlq_threshold", "message_ttl_seconds", "max_depth", "throughput_limit"),
    *("replay_window_seconds", "visibility_timeout_seconds", "max_deliveries", "on_exhausted", "dead_letter"),
    *("ttl_ms", "lease_ms", "replay_window_ms", "durability"),
)


def _has(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _field_in_seconds(one: Declaration) -> tuple[Any, None]:
    setting = one.setting
    most = None if setting.bounds is None else setting.bounds[1] // 1000
    usual = None if one.optional else one.stored // 1000
    clamped = "" if setting.clamp is None else f" Clamped to {setting.clamp[0] / 1000:g} to {setting.clamp[1] // 1000}."
    return Annotated[Annotated[int, Meta(ge=0, le=most)] | None, about(setting.about + clamped, usual)], None


def _taking_settings(of: type[T]) -> type[T]:
    fields: dict[str, tuple[Any, Any]] = {name: field(one) for name, one in DECLARED.items() if not one.setting.v0}
    for name, seconds in IN_SECONDS.items():
        fields[seconds] = _field_in_seconds(DECLARED[name])
        clamped = "" if DECLARED[name].setting.clamp is None else ", clamped in the same way"
        fields[name] = Annotated[DECLARED[name].takes | None, about(f"Instead of {seconds}{clamped}.")], None
    return extend(of, fields)


@_taking_settings
class TopicConfigBody(AskedSettings, frozen=True, kw_only=True):
    """The body of a PUT. It replaces all settings of this dialect. For these, null or absent means the default: the
    service's if it has one. For v0's settings, absent means unchanged, and null means v0's default. on_exhausted needs
    max_deliveries. Unknown settings are a 400."""

    RULES: ClassVar[dict[str, Any]] = {
        "allOf": [
            *({"not": {"allOf": [_has(one), _has(other)]}} for one, other in PAIRS),
            {"anyOf": [{"not": _has("on_exhausted")}, _has("max_deliveries")]},
        ]
    }
    topic: Annotated[str | None, about("The name in the path.")] = None
    durable: Annotated[bool | None, about("true: durability fsync; false: disk.", True)] = None
    type: Annotated[Literal["log", "queue"] | None, about("queue, or absent. log is refused.")] = None
    dead_letter: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})] | None,
        about("The topic for dead letters, another topic. null: <topic>.dlq."),
    ] = None
    on_exhausted: Annotated[
        Literal["redeliver", "fail", "dead_letter"] | None,
        about("With max_deliveries: what happens to a job with no deliveries left. null: dead_letter."),
    ] = None
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_DELIVERIES)] | None,
        about("v0's setting, instead of max_retries and dlq_threshold: most deliveries of a job; 0: no limit."),
    ] = None


def _showing_settings(of: type[T]) -> type[T]:
    fields: dict[str, tuple[Any, Any]] = {}
    for name in _FIRST:
        kind = DECLARED[name].shows if name in DECLARED else bool if name in _FLAGS else int
        fields[name] = (kind, NODEFAULT) if kind is bool else (kind | UnsetType, UNSET)
    for name in OF_V0:
        one = DECLARED[name]
        absent = one.optional or one.stored == {}
        fields[name] = (one.shows | UnsetType, UNSET) if absent else (one.shows, NODEFAULT)
    return extend(of, fields)


@_showing_settings
class TopicConfig(msgspec.Struct, kw_only=True):
    """The settings of a topic, without defaults of the service, and without limits of 0. A setting with two names has
    v0's name if the other one can't express its value: ttl_ms for parts of a second, durability for classes other than
    fsync and disk, max_deliveries for a topic that was configured by v0. A PUT of the whole answer changes nothing."""

    topic: str


class TopicConfigs(msgspec.Struct):
    """A page of configurations by topic. The last page has no `next_cursor`."""

    items: list[TopicConfig]
    next_cursor: str | UnsetType = UNSET


class ParsedBody(msgspec.Struct):
    """A body, and the names of the fields that it has."""

    body: TopicConfigBody
    given: frozenset[str]


class Decoder:
    """Distinguishes null fields from absent ones."""

    _any = msgspec.json.Decoder(dict[str, Any])

    def decode(self, body: bytes, /) -> ParsedBody:
        """Decode a body. Raises msgspec.DecodeError."""
        fields = self._any.decode(body)
        return ParsedBody(msgspec.convert(fields, TopicConfigBody), frozenset(fields))


def must_be_clear(name: str, body: TopicConfigBody) -> None:
    """Check that a body does not contradict itself. Raises InvalidRequest, and NotAQueue if it asks for a log."""
    if body.topic not in {None, name}:
        raise InvalidRequest(f"topic is {body.topic!r} in the body and {name!r} in the path. Leave it out of the body.")
    check_leases(body)
    if body.type == TopicType.LOG.value:
        raise NotAQueue(name)
    for of_v0, other in PAIRS:
        if getattr(body, of_v0) is not None and getattr(body, other) is not None:
            raise InvalidRequest(f"{of_v0} and {other} set the same thing. Send only one of them.")
    if body.on_exhausted is not None and body.max_deliveries is None:
        raise InvalidRequest("on_exhausted needs max_deliveries. It can't be used with max_retries and dlq_threshold.")
    if body.dead_letter is not None and check_name(body.dead_letter) == name:
        raise InvalidRequest("A topic can't be its own dead-letter topic.", {"dead_letter": name})


def chosen_anew(topic: str, was: Chosen, asked: ParsedBody) -> Chosen:
    """Apply a body to a configuration."""
    body = asked.body
    replaced = {name: value_in(body, DECLARED[name]) for name in REPLACED}
    if not body.replayable:
        replaced["replay_window_ms"] = None
    settings = {name: getattr(OF_MESSAGES, name) if value is None else value for name, value in replaced.items()}
    for name in asked.given.intersection(OF_V0):
        value = value_in(body, DECLARED[name])
        settings[name] = DECLARED[name].stored if value is None else value
    return msgspec.structs.replace(was, **settings, **_exit(topic, was, asked), configured=True)


def _exit(name: str, was: Chosen, asked: ParsedBody) -> dict[str, Any]:
    """The settings for jobs with no deliveries left: v0's if the body has max_deliveries, else by max_retries and
    dlq_threshold."""
    body = asked.body
    dead_letter = body.dead_letter if "dead_letter" in asked.given else was.dead_letter
    if body.max_deliveries is None:
        return {"max_deliveries": None, "on_exhausted": Exhaustion.REDELIVER, "dead_letter": dead_letter}
    on_exhausted = Exhaustion.DEAD_LETTER
    if body.on_exhausted is not None:
        on_exhausted = Exhaustion(body.on_exhausted)
    elif "on_exhausted" not in asked.given and was.max_deliveries is not None and body.dead_letter is None:
        on_exhausted = was.on_exhausted
    if on_exhausted is Exhaustion.DEAD_LETTER and dead_letter is None:
        dead_letter = name + DEAD_LETTERS
    return {"max_deliveries": body.max_deliveries, "on_exhausted": on_exhausted, "dead_letter": dead_letter}


def config_of(topic: str, chosen: Chosen) -> TopicConfig:
    """Convert a configuration to this dialect."""
    hidden = {"max_deliveries", "on_exhausted"} if chosen.max_deliveries is None else {"max_retries", "dlq_threshold"}
    if not chosen.replayable:
        hidden.add("replay_window_ms")
    fields: dict[str, Any] = {}
    for name in (*REPLACED, *RULED - {"type"}, *OF_V0):
        if name not in hidden:
            fields |= _entry(DECLARED[name], getattr(chosen, name))
    return TopicConfig(topic=topic, **fields)


def _entry(one: Declaration, value: Any) -> dict[str, Any]:
    """A value under the name that can express it. Empty for a default of the service and for a limit of 0."""
    setting, plain = one.setting, value.value if isinstance(value, Enum) else value
    if value is None or value == {} or (setting.replaced and one.type is int and value == one.stored == 0):
        return {}
    if setting.seconds and value % 1000 == 0:
        return {setting.seconds: value // 1000}
    if setting.flag is None:
        return {one.name: plain}
    flag = {setting.flag.name: value is setting.flag.true}
    return flag if value in {setting.flag.true, setting.flag.false} else {**flag, one.name: plain}


MOST_SHOWN: Final = 1_000
PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": MOST_SHOWN})


async def page(call: Call) -> TopicConfigs:
    """List the configurations of queues by topic. Topics that were created by use and not configured are left out."""
    request, context = call.request, call.context
    size = page_size(request, MOST_SHOWN)
    policies = await store.configured_queues(
        context.pools.rest,
        name_after(request),
        size + 1,
        defaults=context.policies.defaults,
        allowed=context.access.prefixes(request, Scope.ADMIN),
    )
    items = [config_of(policy.topic.name, policy.chosen) for policy in policies[:size]]
    return TopicConfigs(items, cursor_to({"after": items[-1].topic}) if len(policies) > size else UNSET)


async def get(call: Call) -> TopicConfig:
    """Show the configuration of a topic."""
    context, name = call.context, call.topic
    # Not from the cache: this shows what is stored.
    policy = await store.get(context.pools.rest, check_name(name), context.policies.defaults)
    if policy is None:
        raise TopicNotFound(name)
    if policy.config.type is not TopicType.QUEUE:
        raise NotAQueue(name)
    if not policy.chosen.configured:
        raise _none_of(name)
    return config_of(name, policy.chosen)


async def put(call: Call, asked: ParsedBody) -> TopicConfig:
    """Configure a topic, and create it if it does not exist. All settings of this dialect are replaced. Settings of v0
    are only changed if they are given."""
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
    """Reset a topic to the service's defaults. The topic and its jobs stay."""
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
    return NotFound(f"Topic {name!r} is not configured. It uses the service's defaults.")
