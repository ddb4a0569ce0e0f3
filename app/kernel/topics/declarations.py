"""How a topic's setting is declared, and what follows from its declaration. The settings are in settings.py."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta


class Card(Enum):
    """The part of the admin page that shows a setting."""

    LIMITS = "Limits"
    DELIVERIES = "Deliveries"
    ORDER = "Order"
    KEPT = "Retention"
    INGESTION = "Ingestion and events"
    STORAGE = "Storage"


class Flag(msgspec.Struct, frozen=True):
    """Another name of a setting whose values are words: true and false stand for two of the words."""

    name: str
    true: Any
    false: Any


class Setting(msgspec.Struct, frozen=True):
    """A setting's declaration, except for its type and its default."""

    about: str  # for callers and operators
    part: Card | None = None  # None: the admin page does not show it
    bounds: tuple[int, int] | None = None  # a value outside is refused
    clamp: tuple[int, int] | None = None  # a value outside is moved to the nearer bound; below 0 it is refused
    logs: bool = False  # whether it has a meaning for logs
    takes: Any = None  # type in the body of a PUT, if it is narrower than the stored one
    stores: Callable[[Any], Any] | None = None  # converts a PUT's value to the stored one, if they differ
    only: tuple[Any, ...] = ()  # all values that a PUT can have, if its type has more
    usual: str = ""  # the default, if it depends on other settings
    see: str = ""  # where the manual says more, as a link from docs/
    v0: bool = True  # whether v0 takes and shows it; the messages dialect has all settings
    flag: Flag | None = None  # its other name in both dialects
    seconds: str = ""  # its name in the messages dialect, where it is in seconds
    replaced: bool = False  # whether a PUT of the messages dialect without it resets it to its default


class Declaration(msgspec.Struct, frozen=True):
    """A declared setting with its type and two defaults: `stored` for a topic without a value, and `default` of v0."""

    name: str
    setting: Setting
    type: Any  # without None
    optional: bool  # whether None can be stored
    stored: Any
    default: Any

    @property
    def takes(self) -> Any:
        """Its type in the body of a PUT."""
        setting = self.setting
        if setting.takes is not None:
            return setting.takes
        if setting.bounds is not None:
            return Annotated[int, Meta(ge=setting.bounds[0], le=setting.bounds[1])]
        if setting.clamp is not None:
            return Annotated[int, Meta(ge=0)]
        if _is(self.type, Enum):
            return Literal[tuple(one.value for one in self.type)]
        return self.type

    @property
    def shows(self) -> Any:
        """Its type in an answer. Words are plain strings there."""
        if self.words:
            return str
        return list[str] if get_origin(self.type) is tuple else self.type

    @property
    def words(self) -> tuple[str, ...]:
        """The words that it can be; empty if it is not a word."""
        return get_args(self.takes) if get_origin(self.takes) is Literal else ()

    @property
    def is_length(self) -> bool:
        """Whether it is a duration in ms."""
        return self.name.endswith("_ms")

    @property
    def is_json(self) -> bool:
        """Whether its column is JSON."""
        return get_origin(self.type) is dict or _is(self.type, msgspec.Struct)

    @property
    def about(self) -> str:
        """Its description, with the bounds to which values are moved."""
        clamp = self.setting.clamp
        bounds = "" if clamp is None or clamp[1] >= 2**62 else f" Clamped to {clamp[0]} to {clamp[1]}."
        return self.setting.about + bounds

    def to_stored(self, value: Any) -> Any:
        """The stored value for a PUT's value."""
        if self.setting.stores is not None:
            return self.setting.stores(value)
        if self.setting.clamp is not None:
            least, most = self.setting.clamp
            return min(max(value, least), most)
        return (
            msgspec.convert(value, self.type, from_attributes=True) if _is(self.type, Enum | msgspec.Struct) else value
        )


def _is(one: Any, kinds: Any) -> bool:
    return isinstance(one, type) and issubclass(one, kinds)


def declarations(chosen: type[msgspec.Struct], full: type[msgspec.Struct]) -> dict[str, Declaration]:
    """The settings among the fields of `chosen`. Their defaults in `full` are v0's."""
    found = {}
    stored, defaults = chosen(), full()
    for name, hint in get_type_hints(chosen, include_extras=True).items():
        if get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], Setting):
            of = get_args(hint)[0]
            kinds = [one for one in get_args(of) if one is not type(None)]
            optional = len(kinds) < len(get_args(of))
            kind = kinds[0] if optional else of
            default = getattr(defaults, name)
            found[name] = Declaration(name, hint.__metadata__[0], kind, optional, getattr(stored, name), default)
    return found
