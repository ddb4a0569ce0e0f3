"""A topic's configuration: what may be asked for, and the policy that follows. docs/semantics.md has the meaning."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.errors import InvalidRequest
from app.queue.log import Limits
from app.queue.model import Budget, Topic

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")
TEN_YEARS_MS: Final = 315_360_000_000
SEVEN_DAYS_MS: Final = 604_800_000
BIGINT_MAX: Final = 2**63 - 1

Millis = Annotated[int, Meta(ge=0, le=BIGINT_MAX)]


class TopicType(Enum):
    LOG = "log"
    QUEUE = "queue"


class Durability(Enum):
    """fsync: an answer comes after its commit is flushed. The other three don't wait, and are served alike."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class OnExhausted(Enum):
    """Where a job goes that has had its last delivery."""

    REDELIVER = "redeliver"
    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a PUT in the v0 dialect. Null or absent is the default; fields not listed are ignored."""

    type: Literal["log", "queue"] | None = None
    durable: bool | None = None
    durability: Literal["ephemeral", "memory", "disk", "fsync"] | None = None
    lease_ms: Millis | None = None
    claim_jitter_ms: Millis | None = None
    max_deliveries: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    dead_letter: str | None = None
    on_exhausted: Literal["redeliver", "fail", "dead_letter"] | None = None
    ttl_ms: Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None = None
    cap_records: Millis | None = None
    cap_bytes: Millis | None = None
    discard: Literal["old", "reject"] | None = None
    idempotency_window_ms: Annotated[int, Meta(ge=0, le=SEVEN_DAYS_MS)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    auto_priority: bool | None = None
    auto_create: bool | None = None
    dedupe_node: bool | None = None
    leases_durable: bool | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration in full: every default filled in, every clamp applied. Field names are the table's columns."""

    type: TopicType = TopicType.LOG
    durability: Durability = Durability.DISK
    lease_ms: int = 30_000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    on_exhausted: OnExhausted = OnExhausted.REDELIVER
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    idempotency_window_ms: int = 120_000
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    dedupe_node: bool = True
    leases_durable: bool = False

    @property
    def durable(self) -> bool:
        """Whether an answer waits for the flush of its commit."""
        return self.durability is Durability.FSYNC


FIELDS: Final = Config.__struct_fields__


class Policy(msgspec.Struct, frozen=True):
    """What the engine needs to know of a topic."""

    topic: Topic
    config: Config
    version: int  # counts the changes of this topic's row

    @property
    def budget(self) -> Budget:
        """How many deliveries its jobs get."""
        return Budget(self.config.on_exhausted is not OnExhausted.REDELIVER, self.config.max_deliveries)

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


def resolve(topic: str, asked: Asked) -> Config:
    """Fill in defaults and clamp. Raises InvalidRequest for a dead-letter topic that can't be one."""
    durability = Durability(asked.durability) if asked.durability else None
    if durability is None:
        durability = Durability.FSYNC if asked.durable else Durability.DISK
    if asked.dead_letter is not None:
        check_name(asked.dead_letter)
        if asked.dead_letter == topic:
            raise InvalidRequest("A topic can't be its own dead-letter topic.", {"dead_letter": topic})
    on_exhausted = OnExhausted(
        asked.on_exhausted or ("redeliver" if asked.dead_letter is None else OnExhausted.DEAD_LETTER.value)
    )
    if on_exhausted is OnExhausted.DEAD_LETTER and asked.dead_letter is None:
        raise InvalidRequest('on_exhausted "dead_letter" needs dead_letter, the name of a topic.')
    plain = {
        name: value
        for name in FIELDS
        if name not in {"type", "durability", "on_exhausted", "lease_ms", "claim_jitter_ms"}
        and (value := getattr(asked, name)) is not None
    }
    return Config(
        type=TopicType(asked.type or "log"),
        durability=durability,
        on_exhausted=on_exhausted,
        lease_ms=clamp_lease(30_000 if asked.lease_ms is None else asked.lease_ms),
        claim_jitter_ms=min(asked.claim_jitter_ms or 0, 5_000),
        **plain,
    )


def clamp_lease(lease_ms: int) -> int:
    """The nearest length that a lease may have, in ms."""
    return min(max(lease_ms, 100), 86_400_000)
