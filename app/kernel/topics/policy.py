"""The policy of a topic: what follows from its settings, and from how it is held up; and the settings in the body of a
PUT in v0. docs/semantics.md has the meaning.
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

MOST_PAUSED: Final = 1_000  # tenants of a queue
FIFO: Final = (
    ".fifo"  # ends the names of topics whose jobs all have a group, and a dedupe id: by default the payload's hash
)


# What is chosen for a topic that the messages dialect makes: a durable queue, the rest left to the service.
OF_MESSAGES: Final = Chosen(type=TopicType.QUEUE, durability=Durability.FSYNC, configured=False)


class Control(msgspec.Struct, frozen=True):
    """How an operator holds a queue up: no claims, of all jobs or of some tenants' jobs; or no new jobs. A new
    configuration leaves that as it is."""

    paused: bool = False
    paused_tenants: tuple[str, ...] = ()  # ascending
    draining: bool = False


FREE: Final = Control()


def to_paused(tenant: str | None) -> Callable[[Control], Control]:
    """The change that stops claims, of the whole topic or of one tenant's jobs. It raises InvalidRequest."""

    def change(before: Control) -> Control:
        if tenant is None:
            return msgspec.structs.replace(before, paused=True)
        tenants = tuple(sorted({*before.paused_tenants, tenant}))
        if len(tenants) > MOST_PAUSED:
            raise InvalidRequest(f"At most {MOST_PAUSED} tenants can be paused one by one: pause the topic.")
        return msgspec.structs.replace(before, paused_tenants=tenants)

    return change


def to_resumed(tenant: str | None) -> Callable[[Control], Control]:
    """The change that ends everything that holds a queue up, or one tenant's pause."""

    def change(before: Control) -> Control:
        if tenant is None:
            return FREE
        return msgspec.structs.replace(
            before, paused_tenants=tuple(one for one in before.paused_tenants if one != tenant)
        )

    return change


def to_drained(before: Control) -> Control:
    """Take no new jobs."""
    return msgspec.structs.replace(before, draining=True)


class Defaults(msgspec.Struct, frozen=True):
    """The service's defaults, for what was not chosen for a topic."""

    max_retries: int = 3
    dlq_threshold: int = 3
    ttl_ms: int = 86_400_000
    lease_ms: int = 30_000


DEFAULTS: Final = Defaults()


def defaults_of(settings: Settings) -> Defaults:
    """The defaults that the operator has set."""
    return Defaults(
        settings.max_retries,
        settings.dlq_threshold,
        settings.message_ttl_seconds * 1000,
        settings.visibility_timeout_seconds * 1000,
    )


class Policy(msgspec.Struct, frozen=True):
    """What the engine needs to know of a topic. `config` is in effect; `chosen` is what is stored."""

    topic: Topic
    config: Config
    version: int  # counts the changes of this topic's row
    chosen: Chosen
    schema_version: int | None = None  # of the schema that payloads must fit; None: there is none. See schemas/store.py
    control: Control = FREE

    @property
    def max_retries(self) -> int:
        """Most deliveries of a job, in the messages dialect's words: 0 is one, or no limit if max_deliveries is 0."""
        config = self.config
        return config.max_deliveries if config.max_retries is None else config.max_retries

    @property
    def budget(self) -> Budget:
        """How many deliveries its jobs get, and whether that has an end."""
        return Budget(self.config.on_exhausted is not Exhaustion.REDELIVER, self.config.max_deliveries)

    @property
    def bounds(self) -> Bounds | None:
        """What a queue may hold; None: any number of jobs."""
        config = self.config
        if config.max_depth == config.cap_records == config.cap_bytes == 0:
            return None
        evicts = config.discard == "old" and config.cap_records + config.cap_bytes > 0
        return Bounds(config.max_depth, config.cap_records, config.cap_bytes, evicts)

    @property
    def has_webhook(self) -> bool:
        """Whether its webhook gets the ends of all its jobs, besides those of jobs with a webhook of their own."""
        hook = self.config.webhook
        return hook is not None and hook.url is not None

    @property
    def log_limits(self) -> Limits:
        """What a log may hold."""
        config = self.config
        return Limits(
            config.cap_records,
            config.cap_bytes,
            config.discard == "reject",
            config.ttl_ms,
            config.idempotency_window_ms,
        )


def check_name(name: str) -> str:
    """Check that a topic can have a name, and return it. Raises InvalidRequest."""
    if NAME.match(name) is None:
        raise InvalidRequest(
            "A topic's name starts with a letter or digit and has up to 255 letters, digits, '.', '_', ':' and '-'.",
            {"topic": name[:300]},
        )
    return name


def check_dead_letter(topic: str, dead_letter: str, remedy: str = "Name another dead_letter") -> None:
    """Check that a topic's dead-letter topic can have a name. Raises InvalidRequest, which tells the `remedy`."""
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
    """The configuration that counts for a topic. docs/semantics.md, section 2, has the rule for deliveries."""
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
        filled["on_exhausted"] = Exhaustion.FAIL
        if 0 < threshold <= retries:
            filled["on_exhausted"] = Exhaustion.DEAD_LETTER
            filled["dead_letter"] = chosen.dead_letter or name + DEAD_LETTERS
    return Config(**filled)


def of_messages(name: str) -> Chosen:
    """OF_MESSAGES, for a topic of this name.

    Raises InvalidRequest for a name that no topic can have, or that is kept for dead letters, or leaves no room for the
    name of its own dead letters' topic.
    """
    check_name(name)
    if name.endswith(DEAD_LETTERS):
        raise InvalidRequest(f"Names that end in {DEAD_LETTERS} are kept for dead letters.", {"topic": name})
    check_dead_letter(name, name + DEAD_LETTERS, "Make the topic with PUT /v0/topics/<topic> and another dead_letter")
    return OF_MESSAGES


def clamp_lease(lease_ms: int) -> int:
    """The nearest length that a lease may have, in ms."""
    least, most = LEASE
    return min(max(lease_ms, least), most)


def check_groups(name: str, batch: Batch) -> None:
    """Check that each record has a group where the topic's name asks for groups. Raises InvalidRequest.

    Enqueues.admit does it for every batch, schedules' too. The HTTP edges have done it before, by the name alone: they
    make a topic that is absent, and none may be made for a batch that is refused.
    """
    if name.endswith(FIFO) and (len(batch.groups) < len(batch) or None in batch.groups):
        at = batch.groups.index(None) if None in batch.groups else len(batch.groups)
        raise InvalidRequest(
            f"Each record for {name!r} must have a group, since its name ends in {FIFO}: record {at} has none.",
            {"topic": name, "record": at},
        )


def about(description: str, default: Any = None, **schema: Any) -> Meta:
    """A setting's description, and its value if it is absent or null."""
    return Meta(
        description=description, extra_json_schema=schema if default is None else {"x-default": default, **schema}
    )


def extend(of: type[T], fields: dict[str, tuple[Any, Any]]) -> type[T]:
    """Add fields to a struct: types and defaults by name. Its own fields stay."""
    more = [(name, *field) for name, field in fields.items() if name not in of.__annotations__]
    namespace = {"__doc__": of.__doc__}
    made: Any = msgspec.defstruct(
        of.__name__, more, bases=(of,), namespace=namespace, module=of.__module__, kw_only=True
    )
    return made  # type: ignore[no-any-return]


def field(one: Declaration) -> tuple[Any, None]:
    """A setting in a body: null or absent is its default."""
    usual = None if one.setting.usual else msgspec.to_builtins(one.default)
    schema = {"enum": list(one.setting.only)} if one.setting.only else {}
    return Annotated[one.takes | None, about(one.about, usual, **schema)], None


def taking_settings(of: type[T]) -> type[T]:
    """Add v0's settings to a body."""
    return extend(of, {name: field(one) for name, one in DECLARED.items() if one.setting.v0})


@taking_settings
class AskedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a topic in v0's words. Null or absent is the default; a setting that is not listed is a 400."""

    if TYPE_CHECKING:  # mypy does not see the fields that are added

        def __init__(self, **settings: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    RULES: ClassVar[dict[str, Any]] = {
        "if": {"required": ["on_exhausted"], "properties": {"on_exhausted": {"const": "dead_letter"}}},
        "then": {"required": ["dead_letter"], "properties": {"dead_letter": {"type": "string"}}},
    }
    durable: Annotated[bool | None, about("true is durability fsync, false is disk.", False)] = None


class AskedInFull(AskedSettings, frozen=True, kw_only=True):
    """The body of a PUT in the v0 dialect. Null or absent is the default; a setting that is not listed is a 400."""

    schema: Annotated[
        dict[str, Any] | list[Any] | str | bool | None,
        about("What data must fit: a JSON Schema, or an Avro schema; up to 256 KiB. Absent: anything does."),
    ] = None
    schema_format: Annotated[
        Literal["json_schema", "avro"] | None, about("What schema is. Absent: as its shape says.")
    ] = None


def check_leases(asked: AskedSettings) -> None:
    """Refuse leases_durable: false, since leases always survive a restart. Raises InvalidRequest."""
    if asked.leases_durable is False:
        raise InvalidRequest(
            "leases_durable can't be false: leases always survive a restart here. Leave it out, or send true.",
            {"field": "leases_durable"},
        )


def value_in(body: AskedSettings, one: Declaration) -> Any:
    """The value that a body has for a setting, under any of its names, as it is stored; None: no value."""
    setting, value = one.setting, getattr(body, one.name)
    if value is None and setting.seconds and (seconds := getattr(body, setting.seconds, None)) is not None:
        value = seconds * 1000
    if value is None and setting.flag is not None and (flag := getattr(body, setting.flag.name)) is not None:
        return setting.flag.true if flag else setting.flag.false
    return None if value is None else one.to_stored(value)


def resolve(topic: str, asked: AskedSettings) -> Config:
    """Make a full configuration. Raises InvalidRequest for a dead-letter topic that can't be, or leases_durable."""
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
