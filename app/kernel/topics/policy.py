"""The policy of a topic: its settings in effect, and whether it is paused or draining. Also the settings in the body of
a PUT in v0. docs/semantics.md describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from app.errors import InvalidRequest
from app.kernel.enqueue.bounds import Bounds
from app.kernel.logs.log import Limits
from app.kernel.model import Batch, Budget, Topic
from app.kernel.topics.declarations import Declaration
from app.kernel.topics.settings import (
    DEAD_LETTERS,
    DECLARED,
    FIELDS,
    LEASE,
    MOST_OF_NAME,
    NAME,
    Chosen,
    Config,
    Durability,
    Exhaustion,
    TopicType,
)

if TYPE_CHECKING:
    from app.settings import Settings

T = TypeVar("T", bound=msgspec.Struct)

MOST_PAUSED: Final = 1_000  # tenants of one queue
# The end of the names of topics whose jobs all have a group and a dedupe id; by default the id is the payload's hash.
FIFO: Final = ".fifo"


# The stored settings of a topic that the messages dialect creates: a durable queue, the rest by the service's defaults.
OF_MESSAGES: Final = Chosen(type=TopicType.QUEUE, durability=Durability.FSYNC, configured=False)


class Control(msgspec.Struct, frozen=True):
    """How an operator has stopped a queue: it hands out no jobs, or no jobs of some tenants, or takes no new jobs. A
    new configuration does not change it."""

    paused: bool = False
    paused_tenants: tuple[str, ...] = ()  # ascending
    draining: bool = False


FREE: Final = Control()


def to_paused(tenant: str | None) -> Callable[[Control], Control]:
    """The change that pauses a topic, or one tenant of it. The change raises InvalidRequest."""

    def change(before: Control) -> Control:
        if tenant is None:
            return msgspec.structs.replace(before, paused=True)
        tenants = tuple(sorted({*before.paused_tenants, tenant}))
        if len(tenants) > MOST_PAUSED:
            raise InvalidRequest(f"At most {MOST_PAUSED} tenants can be paused one by one. Pause the topic instead.")
        return msgspec.structs.replace(before, paused_tenants=tenants)

    return change


def to_resumed(tenant: str | None) -> Callable[[Control], Control]:
    """The change that resumes a topic and ends its drain, or resumes one tenant."""

    def change(before: Control) -> Control:
        if tenant is None:
            return FREE
        return msgspec.structs.replace(
            before, paused_tenants=tuple(one for one in before.paused_tenants if one != tenant)
        )

    return change


def to_drained(before: Control) -> Control:
    """The change that makes a topic take no new jobs."""
    return msgspec.structs.replace(before, draining=True)


class Defaults(msgspec.Struct, frozen=True):
    """The service's defaults, for settings that a topic does not have."""

    max_retries: int = 3
    dlq_threshold: int = 3
    ttl_ms: int = 86_400_000
    lease_ms: int = 30_000


DEFAULTS: Final = Defaults()


def defaults_of(settings: Settings) -> Defaults:
    """The defaults from the service's configuration."""
    return Defaults(
        settings.max_retries,
        settings.dlq_threshold,
        settings.message_ttl_seconds * 1000,
        settings.visibility_timeout_seconds * 1000,
    )


class Policy(msgspec.Struct, frozen=True):
    """All that the engine needs to know of a topic. `config` is in effect, `chosen` is stored."""

    topic: Topic
    config: Config
    version: int  # counts the changes of the topic's row
    chosen: Chosen
    schema_version: int | None = None  # of the schema that payloads must fit; None: there is none (schemas/store.py)
    control: Control = FREE

    @property
    def max_retries(self) -> int:
        """Most deliveries of a job in terms of the messages dialect: 0 is one, or no limit if max_deliveries is 0."""
        config = self.config
        return config.max_deliveries if config.max_retries is None else config.max_retries

    @property
    def budget(self) -> Budget:
        """How many deliveries its jobs get, and whether they are limited."""
        return Budget(self.config.on_exhausted is not Exhaustion.REDELIVER, self.config.max_deliveries)

    @property
    def bounds(self) -> Bounds | None:
        """The limits of a queue; None: it has none."""
        config = self.config
        if config.max_depth == config.cap_records == config.cap_bytes == 0:
            return None
        evicts = config.discard == "old" and config.cap_records + config.cap_bytes > 0
        return Bounds(config.max_depth, config.cap_records, config.cap_bytes, evicts)

    @property
    def has_webhook(self) -> bool:
        """Whether the topic itself has a webhook, which gets the ends of all its jobs. Jobs may have their own."""
        hook = self.config.webhook
        return hook is not None and hook.url is not None

    @property
    def log_limits(self) -> Limits:
        """The limits of a log."""
        config = self.config
        return Limits(
            config.cap_records,
            config.cap_bytes,
            config.discard == "reject",
            config.ttl_ms,
            config.idempotency_window_ms,
        )


def check_name(name: str) -> str:
    """Check that a topic can have this name, and return it. Raises InvalidRequest."""
    if NAME.match(name) is None:
        raise InvalidRequest(
            "A topic's name starts with a letter or digit and has up to 255 letters, digits, '.', '_', ':' and '-'.",
            {"topic": name[:300]},
        )
    return name


def check_dead_letter(topic: str, dead_letter: str, remedy: str = "Name another dead_letter") -> None:
    """Check that a dead-letter topic can have this name. Raises InvalidRequest, whose message ends with `remedy`."""
    if NAME.match(dead_letter) is not None:
        return
    what = f"The name of the dead-letter topic, {dead_letter[:300]}, "
    if len(dead_letter) > MOST_OF_NAME and dead_letter == topic + DEAD_LETTERS:
        raise InvalidRequest(
            f"{what}would have {len(dead_letter)} characters; {MOST_OF_NAME} are allowed. {remedy}, or give the "
            f"topic a name of {MOST_OF_NAME - len(DEAD_LETTERS)} characters or fewer.",
            {"dead_letter": dead_letter},
        )
    raise InvalidRequest(
        f"{what}is not valid: it must start with a letter or digit and have up to {MOST_OF_NAME} letters, digits, '.', "
        f"'_', ':' and '-'. {remedy}.",
        {"dead_letter": dead_letter[:300]},
    )


def in_effect(name: str, chosen: Chosen, defaults: Defaults) -> Config:
    """The configuration in effect for a topic. docs/semantics.md, section 2, has the rule for deliveries."""
    filled: dict[str, Any] = {field: getattr(chosen, field) for field in FIELDS}
    filled["lease_ms"] = defaults.lease_ms if chosen.lease_ms is None else chosen.lease_ms
    filled["ttl_ms"] = defaults.ttl_ms if chosen.ttl_ms is None else chosen.ttl_ms
    if chosen.max_deliveries is None:
        retries = defaults.max_retries if chosen.max_retries is None else chosen.max_retries
        threshold = chosen.dlq_threshold
        if threshold is None:  # the topic's own max_retries, unless the service has no dead letters
            threshold = retries if chosen.max_retries is not None and defaults.dlq_threshold else defaults.dlq_threshold
        filled |= {"max_retries": retries, "dlq_threshold": threshold}
        filled["max_deliveries"] = max(min(retries, threshold or retries), 1)
        filled["on_exhausted"] = Exhaustion.FAIL
        if 0 < threshold <= retries:
            filled["on_exhausted"] = Exhaustion.DEAD_LETTER
            filled["dead_letter"] = chosen.dead_letter or name + DEAD_LETTERS
    return Config(**filled)


def of_messages(name: str) -> Chosen:
    """OF_MESSAGES, for a topic of this name. Raises InvalidRequest if no topic can have the name, if it is reserved for
    dead letters, or if it is too long for the name of its own dead-letter topic.
    """
    check_name(name)
    if name.endswith(DEAD_LETTERS):
        raise InvalidRequest(f"Names that end in {DEAD_LETTERS} are kept for dead letters.", {"topic": name})
    check_dead_letter(name, name + DEAD_LETTERS, "Create the topic with PUT /v0/topics/<topic> and another dead_letter")
    return OF_MESSAGES


def clamp_lease(lease_ms: int) -> int:
    """The nearest allowed length of a lease, in ms."""
    least, most = LEASE
    return min(max(lease_ms, least), most)


def check_groups(name: str, batch: Batch) -> None:
    """Check that each record has a group if the topic's name requires groups. Raises InvalidRequest.

    Enqueues.admit calls it for every batch, including schedules. The HTTP dialects call it before that, because they
    create a missing topic and must not create one for a batch that is refused.
    """
    if name.endswith(FIFO) and (len(batch.groups) < len(batch) or None in batch.groups):
        at = batch.groups.index(None) if None in batch.groups else len(batch.groups)
        raise InvalidRequest(
            f"Each record for {name!r} must have a group, because its name ends in {FIFO}. Record {at} has none.",
            {"topic": name, "record": at},
        )


def about(description: str, default: Any = None, **schema: Any) -> Meta:
    """A setting's description, with its value if it is absent or null."""
    return Meta(
        description=description, extra_json_schema=schema if default is None else {"x-default": default, **schema}
    )


def extend(of: type[T], fields: dict[str, tuple[Any, Any]]) -> type[T]:
    """Add fields to a struct, as types and defaults by name. Its own fields stay."""
    more = [(name, *field) for name, field in fields.items() if name not in of.__annotations__]
    namespace = {"__doc__": of.__doc__}
    made: Any = msgspec.defstruct(
        of.__name__, more, bases=(of,), namespace=namespace, module=of.__module__, kw_only=True
    )
    return made  # type: ignore[no-any-return]


def field(one: Declaration) -> tuple[Any, None]:
    """A setting in a body. Null or absent is its default."""
    usual = None if one.setting.usual else msgspec.to_builtins(one.default)
    schema = {"enum": list(one.setting.only)} if one.setting.only else {}
    return Annotated[one.takes | None, about(one.about, usual, **schema)], None


def taking_settings(of: type[T]) -> type[T]:
    """Add v0's settings to a body."""
    return extend(of, {name: field(one) for name, one in DECLARED.items() if one.setting.v0})


@taking_settings
class AskedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a topic in v0. A setting that is null or absent has its default. An unknown setting is a 400."""

    if TYPE_CHECKING:  # mypy does not see the fields that are added

        def __init__(self, **settings: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    RULES: ClassVar[dict[str, Any]] = {
        "if": {"required": ["on_exhausted"], "properties": {"on_exhausted": {"const": "dead_letter"}}},
        "then": {"required": ["dead_letter"], "properties": {"dead_letter": {"type": "string"}}},
    }
    durable: Annotated[bool | None, about("true is durability fsync, false is disk.", False)] = None


class AskedInFull(AskedSettings, frozen=True, kw_only=True):
    """The body of a PUT in v0. A setting that is null or absent has its default. An unknown setting is a 400."""

    schema: Annotated[
        dict[str, Any] | list[Any] | str | bool | None,
        about("The schema that data must fit: a JSON Schema or an Avro schema, up to 256 KiB. Absent: any data fits."),
    ] = None
    schema_format: Annotated[
        Literal["json_schema", "avro"] | None, about("The kind of schema. Absent: it is recognized by its shape.")
    ] = None


def check_leases(asked: AskedSettings) -> None:
    """Refuse leases_durable: false. Raises InvalidRequest."""
    if asked.leases_durable is False:
        raise InvalidRequest(
            "leases_durable can't be false, because leases always survive a restart. Leave it out, or send true.",
            {"field": "leases_durable"},
        )


def value_in(body: AskedSettings, one: Declaration) -> Any:
    """The value to store for a setting in a body, under any of its names; None: the body has none."""
    setting, value = one.setting, getattr(body, one.name)
    if value is None and setting.seconds and (seconds := getattr(body, setting.seconds, None)) is not None:
        value = seconds * 1000
    if value is None and setting.flag is not None and (flag := getattr(body, setting.flag.name)) is not None:
        return setting.flag.true if flag else setting.flag.false
    return None if value is None else one.to_stored(value)


def resolve(topic: str, asked: AskedSettings) -> Config:
    """Make a full configuration. Raises InvalidRequest for an invalid dead-letter topic, or leases_durable: false."""
    check_leases(asked)
    given = {name: value_in(asked, one) for name, one in DECLARED.items() if one.setting.v0}
    settings = {name: value for name, value in given.items() if value is not None}
    if asked.dead_letter is not None:
        check_dead_letter(topic, asked.dead_letter)
        if asked.dead_letter == topic:
            raise InvalidRequest("A topic can't be its own dead-letter topic.", {"dead_letter": topic})
        settings.setdefault("on_exhausted", Exhaustion.DEAD_LETTER)
    elif asked.on_exhausted == Exhaustion.DEAD_LETTER.value:
        raise InvalidRequest('on_exhausted "dead_letter" needs dead_letter, the name of a topic.')
    return Config(**settings)
