"""What follows from a topic's settings: its policy. docs/semantics.md has the meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from app.errors import InvalidRequest
from app.kernel.enqueue.bounds import Bounds
from app.kernel.logs.log import Limits
from app.kernel.model import Budget, Topic
from app.kernel.topics.control import FREE, Control
from app.kernel.topics.settings import (
    DEAD_LETTERS,
    FIELDS,
    LEASE,
    MOST_OF_NAME,
    NAME,
    Chosen,
    Config,
    Durability,
    OnExhausted,
    TopicType,
)

if TYPE_CHECKING:
    from app.settings import Settings


class Defaults(msgspec.Struct, frozen=True):
    """What the service gives a topic that was left to it."""

    max_retries: int = 3
    dlq_threshold: int = 3
    ttl_ms: int = 86_400_000
    lease_ms: int = 30_000


DEFAULTS: Final = Defaults()


def defaults_of(settings: Settings) -> Defaults:
    """Those that the operator has set."""
    return Defaults(
        settings.max_retries,
        settings.dlq_threshold,
        settings.message_ttl_seconds * 1000,
        settings.visibility_timeout_seconds * 1000,
    )


class Policy(msgspec.Struct, frozen=True):
    """What the engine needs to know of a topic: `config` is in effect, whoever chose it; `chosen` is what is stored."""

    topic: Topic
    config: Config
    version: int  # counts the changes of this topic's row
    chosen: Chosen
    schema_version: int | None = None  # of the schema that payloads must fit; None: there is none. See checks.py
    control: Control = FREE

    @property
    def max_retries(self) -> int:
        """How often a job of it is tried, in the words of the messages dialect; 0 is once, or without end where that
        was chosen as max_deliveries."""
        config = self.config
        return config.max_deliveries if config.max_retries is None else config.max_retries

    @property
    def budget(self) -> Budget:
        """How many deliveries its jobs get."""
        return Budget(self.config.on_exhausted is not OnExhausted.REDELIVER, self.config.max_deliveries)

    @property
    def bounds(self) -> Bounds | None:
        """What it may hold, if it is a queue; None: any number of jobs."""
        config = self.config
        if config.max_depth == config.cap_records == config.cap_bytes == 0:
            return None
        evicts = config.discard == "old" and config.cap_records + config.cap_bytes > 0
        return Bounds(config.max_depth, config.cap_records, config.cap_bytes, evicts)

    @property
    def log_limits(self) -> Limits:
        """What it may hold, if it is a log."""
        config = self.config
        return Limits(
            config.cap_records,
            config.cap_bytes,
            config.discard == "reject",
            config.ttl_ms,
            config.idempotency_window_ms,
        )


def check_name(name: str) -> str:
    """The name, if a topic can have it. Raises InvalidRequest."""
    if NAME.match(name) is None:
        raise InvalidRequest(
            "A topic's name starts with a letter or digit and has up to 255 letters, digits, '.', '_', ':' and '-'.",
            {"topic": name[:300]},
        )
    return name


def check_dead_letter(topic: str, dead_letter: str, remedy: str = "Name another dead_letter") -> None:
    """Raises InvalidRequest, which says what to do, for what no dead-letter topic of this topic can be called."""
    if NAME.match(dead_letter) is not None:
        return
    what = f"The name of the dead-letter topic, {dead_letter[:300]}, "
    if len(dead_letter) > MOST_OF_NAME and dead_letter == topic + DEAD_LETTERS:
        raise InvalidRequest(
            f"{what}would have {len(dead_letter)} characters, and {MOST_OF_NAME} are the most. {remedy}, or give the "
            f"topic a name of {MOST_OF_NAME - len(DEAD_LETTERS)} characters or fewer.",
            {"dead_letter": dead_letter},
        )
    raise InvalidRequest(
        f"{what}is not valid: it must start with a letter or digit and have up to {MOST_OF_NAME} letters, digits, '.', "
        f"'_', ':' and '-'. {remedy}.",
        {"dead_letter": dead_letter[:300]},
    )


def in_effect(name: str, chosen: Chosen, defaults: Defaults) -> Config:
    """What counts for a topic. docs/semantics.md, section 2, has the rule for deliveries."""
    filled: dict[str, Any] = {field: getattr(chosen, field) for field in FIELDS}
    filled["lease_ms"] = defaults.lease_ms if chosen.lease_ms is None else chosen.lease_ms
    filled["ttl_ms"] = defaults.ttl_ms if chosen.ttl_ms is None else chosen.ttl_ms
    if chosen.max_deliveries is None:
        retries = defaults.max_retries if chosen.max_retries is None else chosen.max_retries
        threshold = chosen.dlq_threshold
        if threshold is None:  # the topic's own max_retries is the threshold, unless the service has no dead letters
            threshold = retries if chosen.max_retries is not None and defaults.dlq_threshold else defaults.dlq_threshold
        filled |= {"max_retries": retries, "dlq_threshold": threshold}
        filled["max_deliveries"] = max(min(retries, threshold or retries), 1)
        filled["on_exhausted"] = OnExhausted.FAIL
        if 0 < threshold <= retries:
            filled["on_exhausted"] = OnExhausted.DEAD_LETTER
            filled["dead_letter"] = chosen.dead_letter or name + DEAD_LETTERS
    return Config(**filled)


def of_messages(name: str) -> Chosen:
    """What is chosen for a topic that the messages dialect makes: a durable queue, the rest left to the service.

    Raises InvalidRequest for a name that no topic can have, or that is kept for dead letters, or leaves no room for the
    name of its own dead letters' topic.
    """
    check_name(name)
    if name.endswith(DEAD_LETTERS):
        raise InvalidRequest(f"Names that end in {DEAD_LETTERS} are kept for dead letters.", {"topic": name})
    check_dead_letter(name, name + DEAD_LETTERS, "Make the topic with PUT /v0/topics/<topic> and another dead_letter")
    return Chosen(type=TopicType.QUEUE, durability=Durability.FSYNC, configured=False)


def clamp_lease(lease_ms: int) -> int:
    """The nearest length that a lease may have, in ms."""
    least, most = LEASE
    return min(max(lease_ms, least), most)
