"""What a PUT may have of a topic's settings, in v0's words, and the configuration that it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta

from app.errors import InvalidRequest
from app.kernel.topics.config import check_dead_letter
from app.kernel.topics.declared import Declared
from app.kernel.topics.settings import DECLARED, Config, Durability, OnExhausted

T = TypeVar("T", bound=msgspec.Struct)


def about(description: str, default: Any = None, **schema: Any) -> Meta:
    """What a setting means, and what it is if it is absent or null."""
    return Meta(
        description=description, extra_json_schema=schema if default is None else {"x-default": default, **schema}
    )


def extended(of: type[T], fields: dict[str, tuple[Any, Any]]) -> type[T]:
    """A struct with more fields: types and defaults by name. Those that it has itself stay."""
    more = [(name, *field) for name, field in fields.items() if name not in of.__annotations__]
    namespace = {"__doc__": of.__doc__}
    made: Any = msgspec.defstruct(
        of.__name__, more, bases=(of,), namespace=namespace, module=of.__module__, kw_only=True
    )
    return made  # type: ignore[no-any-return]


def field(one: Declared) -> tuple[Any, None]:
    """A setting in a body: null or absent is its default."""
    usual = None if one.setting.usual else msgspec.to_builtins(one.default)
    schema = {"enum": list(one.setting.only)} if one.setting.only else {}
    return Annotated[one.takes | None, about(one.about, usual, **schema)], None


def taking_settings(of: type[T]) -> type[T]:
    """Add v0's settings to a body."""
    return extended(of, {name: field(one) for name, one in DECLARED.items() if one.setting.v0})


@taking_settings
class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a topic in v0's words. Null or absent is the default; a setting that is not listed is a 400."""

    if TYPE_CHECKING:  # mypy does not see the fields that are added

        def __init__(self, **settings: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    RULES: ClassVar[dict[str, Any]] = {
        "if": {"required": ["on_exhausted"], "properties": {"on_exhausted": {"const": "dead_letter"}}},
        "then": {"required": ["dead_letter"], "properties": {"dead_letter": {"type": "string"}}},
    }
    durable: Annotated[bool | None, about("true is durability fsync, false is disk.", False)] = None


class AskedInFull(Asked, frozen=True, kw_only=True):
    """The body of a PUT in the v0 dialect. Null or absent is the default; a setting that is not listed is a 400."""

    schema: Annotated[
        dict[str, Any] | list[Any] | str | bool | None,
        about("What data must fit: a JSON Schema, or an Avro schema; up to 256 KiB. Absent: anything does."),
    ] = None
    schema_format: Annotated[
        Literal["json_schema", "avro"] | None, about("What schema is. Absent: as its shape says.")
    ] = None


def check_leases(asked: Asked) -> None:
    """Refuse leases that end with the service, which there are not. Raises InvalidRequest."""
    if asked.leases_durable is False:
        raise InvalidRequest(
            "leases_durable can't be false: leases always survive a restart here. Leave it out, or send true.",
            {"field": "leases_durable"},
        )


def resolve(topic: str, asked: Asked) -> Config:
    """Fill in defaults and clamp. Raises InvalidRequest for what can't be: a dead-letter topic, leases_durable."""
    check_leases(asked)
    given = {name: getattr(asked, name) for name, one in DECLARED.items() if one.setting.v0}
    settings = {name: DECLARED[name].to_stored(value) for name, value in given.items() if value is not None}
    if asked.durable:
        settings.setdefault("durability", Durability.FSYNC)
    if asked.dead_letter is not None:
        check_dead_letter(topic, asked.dead_letter)
        if asked.dead_letter == topic:
            raise InvalidRequest("A topic can't be its own dead-letter topic.", {"dead_letter": topic})
        settings.setdefault("on_exhausted", OnExhausted.DEAD_LETTER)
    elif asked.on_exhausted == OnExhausted.DEAD_LETTER.value:
        raise InvalidRequest('on_exhausted "dead_letter" needs dead_letter, the name of a topic.')
    return Config(**settings)
