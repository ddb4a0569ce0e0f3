"""What the routes of topics' configurations take and give. What v0 has keeps its name and meaning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, UnsetType

from app.kernel.topics.declared import Declared
from app.kernel.topics.resolve import Asked, T, about, extended, field
from app.kernel.topics.settings import DECLARED, MOST_DELIVERIES, PATTERN

# Two names of one thing: at most one of each pair is given.
IN_SECONDS: Final = {name: one.setting.seconds for name, one in DECLARED.items() if one.setting.seconds}
PAIRS: Final = (("max_deliveries", "max_retries"), ("max_deliveries", "dlq_threshold"), *IN_SECONDS.items())
# What a PUT replaces all: null or absent is the default. Of the others absent is as it was, null is v0's default.
REPLACED: Final = {
    *("type", "durability", *IN_SECONDS, "max_depth", "throughput_limit", "replayable"),
    *("max_deliveries", "max_retries", "dlq_threshold", "dead_letter", "on_exhausted"),
}
_AFTER: Final = {  # answers have some after others than v0's
    "idempotency_window_ms": ("result_ttl_ms", "event_ttl_ms", "dead_ttl_ms"),
    "priority": ("tenant_weights", "tenant_limits"),
}
_MOVED: Final = {name for names in _AFTER.values() for name in names}
OF_V0: Final = tuple(
    one for name in DECLARED if name not in REPLACED and name not in _MOVED for one in (name, *_AFTER.get(name, ()))
)


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _in_seconds(one: Declared) -> tuple[Any, None]:
    setting = one.setting
    most = None if setting.bounds is None else setting.bounds[1] // 1000
    usual = None if one.optional else one.stored // 1000
    clamped = "" if setting.clamp is None else f" Clamped to {setting.clamp[0] / 1000:g} to {setting.clamp[1] // 1000}."
    return Annotated[Annotated[int, Meta(ge=0, le=most)] | None, about(setting.about + clamped, usual)], None


def _taking_settings(of: type[T]) -> type[T]:
    fields: dict[str, tuple[Any, Any]] = {name: field(one) for name, one in DECLARED.items() if not one.setting.v0}
    for name, seconds in IN_SECONDS.items():
        fields[seconds] = _in_seconds(DECLARED[name])
        clamped = "" if DECLARED[name].setting.clamp is None else ", clamped as that is"
        fields[name] = Annotated[DECLARED[name].takes | None, about(f"In place of {seconds}{clamped}.")], None
    return extended(of, fields)


@_taking_settings
class TopicConfigBody(Asked, frozen=True, kw_only=True):
    """The body of a PUT. What this dialect has a name for is all replaced: null or absent is the default, the service's
    where it has one. The rest is v0's: absent leaves it as it is, null is v0's default. on_exhausted goes with
    max_deliveries. A setting that is not listed is a 400."""

    RULES: ClassVar[dict[str, Any]] = {
        "allOf": [
            *({"not": {"allOf": [_given(one), _given(other)]}} for one, other in PAIRS),
            {"anyOf": [{"not": _given("on_exhausted")}, _given("max_deliveries")]},
        ]
    }
    topic: Annotated[str | None, about("The name in the path, as answers have it.")] = None
    durable: Annotated[bool | None, about("true is durability fsync, false is disk.", True)] = None
    type: Annotated[Literal["log", "queue"] | None, about("A queue, also if absent; log is refused.")] = None
    dead_letter: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})] | None,
        about("Where dead letters go: another topic. null: <topic>.dlq."),
    ] = None
    on_exhausted: Annotated[
        Literal["redeliver", "fail", "dead_letter"] | None,
        about("With max_deliveries: what becomes of a job whose deliveries are spent. null: dead_letter."),
    ] = None
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_DELIVERIES)] | None,
        about("v0's word, in place of max_retries and dlq_threshold: most deliveries of a job; 0: no limit."),
    ] = None


def _showing_settings(of: type[T]) -> type[T]:
    fields: dict[str, tuple[Any, Any]] = {}
    for name in OF_V0:
        one = DECLARED[name]
        absent = one.optional or one.stored == {}
        fields[name] = (one.shows | UnsetType, UNSET) if absent else (one.shows, NODEFAULT)
    return extended(of, fields)


@_showing_settings
class TopicConfig(msgspec.Struct, kw_only=True):
    """What was chosen for a topic. What was left to the service is not there; nor is a limit that there is not. Of two
    names of one thing the second stands where the first can't say it: ttl_ms for what is no whole second, durability
    for a class that is neither fsync nor disk, max_deliveries for a topic that v0 has configured. The whole can be PUT
    again, and changes nothing."""

    topic: str
    replayable: bool
    durable: bool
    max_retries: int | UnsetType = UNSET
    dlq_threshold: int | UnsetType = UNSET
    message_ttl_seconds: int | UnsetType = UNSET
    max_depth: int | UnsetType = UNSET
    throughput_limit: int | UnsetType = UNSET
    replay_window_seconds: int | UnsetType = UNSET
    visibility_timeout_seconds: int | UnsetType = UNSET
    max_deliveries: int | UnsetType = UNSET
    on_exhausted: str | UnsetType = UNSET
    dead_letter: str | UnsetType = UNSET
    ttl_ms: int | UnsetType = UNSET
    lease_ms: int | UnsetType = UNSET
    replay_window_ms: int | UnsetType = UNSET
    durability: str | UnsetType = UNSET


class TopicConfigs(msgspec.Struct):
    """A page of configurations by topic; `next_cursor` is absent on the last one."""

    items: list[TopicConfig]
    next_cursor: str | UnsetType = UNSET
