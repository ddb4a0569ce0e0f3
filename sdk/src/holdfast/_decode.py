"""Decodes answers into dataclasses by their type hints. Each class's reader is built once."""

from __future__ import annotations

import base64
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from holdfast.errors import InvalidResponse
from holdfast.models.marks import PAYLOAD, Named
from holdfast.models.page import Page

T = TypeVar("T")


def read(kind: type[T], body: Any, **known: Any) -> T:
    """Decode an object. `known` has values of fields that are not in it. Ignores unknown fields, which a newer service
    may send. Raises InvalidResponse if a field is missing or has the wrong type."""
    try:
        made: T = _reader(typing.cast(Any, kind))(body, known)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidResponse(f"The answer is not a {kind.__name__}: {type(error).__name__} {error}") from error
    return made


def page_of(kind: type[T], items: str, body: Any, **known: Any) -> Page[T]:
    """Decode a page of a list. `items` is the field with its items."""
    try:
        return Page(tuple([read(kind, item, **known) for item in body[items]]), body.get("next_cursor"))
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidResponse(f"The answer is not a page of {items}: {error}") from error


def payload(value: Any) -> Any:
    """Decode a payload: JSON, text, or bytes from {"$base64": "…"}."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(encoded := value.get("$base64"), str):
        return base64.b64decode(encoded)
    return value


def moment(ms: int) -> datetime:
    """Convert ms since 1970 to a datetime in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


@functools.cache
def _reader(kind: Any) -> Callable[[Any, Mapping[str, Any]], Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: list[tuple[str, str, bool, Callable[[Any], Any] | None]] = []
    for field in dataclasses.fields(kind):
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        hint = hints[field.name]
        wire = next((note.wire for note in getattr(hint, "__metadata__", ()) if isinstance(note, Named)), field.name)
        fields.append((field.name, wire, optional, _converter(hint)))

    def read_one(body: Any, known: Mapping[str, Any]) -> Any:
        values = dict(known)
        for name, wire, optional, convert in fields:
            if name in values:
                continue
            if wire in body:
                value = body[wire]
                values[name] = value if convert is None else convert(value)
            elif not optional:
                raise KeyError(wire)
        return kind(**values)

    return read_one


def _converter(hint: Any) -> Callable[[Any], Any] | None:  # noqa: PLR0911 - one branch for each kind of hint
    """A function that converts JSON to a value of this type; None if no conversion is needed."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return payload if PAYLOAD in args[1:] else _converter(args[0])
    if origin in (typing.Union, types.UnionType):
        [inner] = [_converter(arg) for arg in args if arg is not type(None)]
        return inner and functools.partial(_or_none, inner)
    if origin is tuple:
        return functools.partial(_all, _converter(args[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return functools.partial(_by_name, int if args[0] is int else str, _converter(args[1]))
    if hint is datetime:
        return moment
    if dataclasses.is_dataclass(hint):
        reader = _reader(typing.cast(Any, hint))
        return lambda value: reader(value, {})
    if hint in (int, float, str, bool, Any) or origin is Literal:
        return None
    raise TypeError(f"can't decode {hint}")


def _or_none(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _all(convert: Callable[[Any], Any] | None, values: Any) -> tuple[Any, ...]:
    return tuple(values if convert is None else map(convert, values))


def _by_name(name: Callable[[str], Any], convert: Callable[[Any], Any] | None, values: Any) -> dict[Any, Any]:
    return {name(key): value if convert is None else convert(value) for key, value in values.items()}
