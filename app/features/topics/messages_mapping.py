"""What the two dialects call the settings of a topic, both ways. docs/messages.md has the table."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from app.errors import InvalidRequest, NotAQueue
from app.features.topics.messages_bodies import IN_SECONDS, OF_V0, PAIRS, TopicConfig, TopicConfigBody
from app.kernel.topics.config import check_name
from app.kernel.topics.declared import Declared
from app.kernel.topics.resolve import check_leases
from app.kernel.topics.settings import DEAD_LETTERS, DECLARED, Chosen, Durability, OnExhausted, TopicType

T = TypeVar("T")


class Wanted(msgspec.Struct):
    """A body, and which fields it has."""

    body: TopicConfigBody
    given: frozenset[str]


class Decoder:
    """Tells a field that is null from one that is absent."""

    _any = msgspec.json.Decoder(dict[str, Any])

    def decode(self, body: bytes, /) -> Wanted:
        """Raises msgspec.DecodeError."""
        fields = self._any.decode(body)
        return Wanted(msgspec.convert(fields, TopicConfigBody), frozenset(fields))


def must_be_clear(name: str, body: TopicConfigBody) -> None:
    """Raises InvalidRequest for what contradicts itself, and NotAQueue for who wants a log."""
    if body.topic not in {None, name}:
        raise InvalidRequest(f"topic is {body.topic!r} in the body and {name!r} in the path: leave it out of the body.")
    check_leases(body)
    if body.type == TopicType.LOG.value:
        raise NotAQueue(name)
    for of_v0, other in PAIRS:
        if getattr(body, of_v0) is not None and getattr(body, other) is not None:
            raise InvalidRequest(f"{of_v0} and {other} are two names of one thing: give one of them.")
    if body.on_exhausted is not None and body.max_deliveries is None:
        raise InvalidRequest("on_exhausted goes with max_deliveries: max_retries and dlq_threshold say it themselves.")
    if body.dead_letter is not None and check_name(body.dead_letter) == name:
        raise InvalidRequest("A topic can't be its own dead-letter topic.", {"dead_letter": name})


def chosen_anew(name: str, was: Chosen, asked: Wanted) -> Chosen:
    """What is chosen from now on, where `was` was."""
    body = asked.body
    left = {name: _millis(getattr(body, seconds), getattr(body, name)) for name, seconds in IN_SECONDS.items()}
    left |= {name: getattr(body, name) for name in ("max_retries", "dlq_threshold", "max_depth", "throughput_limit")}
    if not body.replayable:
        left["replay_window_ms"] = None
    kept = {name: getattr(body, name) for name in OF_V0 if name in asked.given}
    settings = {name: _stored(DECLARED[name], value) for name, value in (left | kept).items()}
    durable = Durability.DISK if body.durable is False else Durability.FSYNC
    settings["durability"] = durable if body.durability is None else Durability(body.durability)
    settings["replayable"] = bool(body.replayable)
    return msgspec.structs.replace(was, **settings, **_exit(name, was, asked), configured=True)


def _stored(one: Declared, value: Any) -> Any:
    return one.stored if value is None else one.to_stored(value)


def _exit(name: str, was: Chosen, asked: Wanted) -> dict[str, Any]:
    """How often jobs are delivered, and where they go then: in v0's words if max_deliveries is given, else as
    max_retries and dlq_threshold say."""
    body = asked.body
    dead_letter = body.dead_letter if "dead_letter" in asked.given else was.dead_letter
    if body.max_deliveries is None:
        return {"max_deliveries": None, "on_exhausted": OnExhausted.REDELIVER, "dead_letter": dead_letter}
    on_exhausted = OnExhausted.DEAD_LETTER
    if body.on_exhausted is not None:
        on_exhausted = OnExhausted(body.on_exhausted)
    elif "on_exhausted" not in asked.given and was.max_deliveries is not None and body.dead_letter is None:
        on_exhausted = was.on_exhausted
    if on_exhausted is OnExhausted.DEAD_LETTER and dead_letter is None:
        dead_letter = name + DEAD_LETTERS
    return {"max_deliveries": body.max_deliveries, "on_exhausted": on_exhausted, "dead_letter": dead_letter}


def _millis(seconds: int | None, millis: int | None) -> int | None:
    return millis if seconds is None else seconds * 1000


def shown_of(name: str, chosen: Chosen) -> TopicConfig:
    """As this dialect shows it."""
    of_v0 = chosen.max_deliveries is not None
    window_ms = chosen.replay_window_ms if chosen.replayable else None
    ttl, lease, window = map(_in_seconds, (chosen.ttl_ms, chosen.lease_ms, window_ms))
    of_v0_alone: dict[str, Any] = {field: _unless_none(getattr(chosen, field)) for field in OF_V0}
    plain = {Durability.FSYNC, Durability.DISK}
    return TopicConfig(
        topic=name,
        replayable=chosen.replayable,
        durable=chosen.durable,
        max_retries=UNSET if of_v0 else _unless_none(chosen.max_retries),
        dlq_threshold=UNSET if of_v0 else _unless_none(chosen.dlq_threshold),
        message_ttl_seconds=ttl[0],
        max_depth=chosen.max_depth or UNSET,
        throughput_limit=chosen.throughput_limit or UNSET,
        replay_window_seconds=window[0],
        visibility_timeout_seconds=lease[0],
        max_deliveries=_unless_none(chosen.max_deliveries),
        on_exhausted=chosen.on_exhausted.value if of_v0 else UNSET,
        dead_letter=UNSET if chosen.dead_letter is None else chosen.dead_letter,
        ttl_ms=ttl[1],
        lease_ms=lease[1],
        replay_window_ms=window[1],
        durability=UNSET if chosen.durability in plain else chosen.durability.value,
        **of_v0_alone,
    )


def _in_seconds(millis: int | None) -> tuple[int | UnsetType, int | UnsetType]:
    """As seconds, if it is whole ones; else as it is."""
    if millis is None:
        return UNSET, UNSET
    return (UNSET, millis) if millis % 1000 else (millis // 1000, UNSET)


def _unless_none(value: T | None) -> T | UnsetType:
    return UNSET if value is None or value == {} else value
