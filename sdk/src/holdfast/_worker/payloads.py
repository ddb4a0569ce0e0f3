"""Decodes payloads by the handler's type hint, and encodes pushed objects."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal
from uuid import UUID

from holdfast._msgpack import is_msgpack, pack, unpack
from holdfast._wire import TOO_DEEP

Decoder = Callable[[Any, str | None], Any]  # takes a payload and its content type
Encoder = Callable[[Any], Any]

_ANYTHING: Final = (Any, object, inspect.Parameter.empty)
_TEXTUAL: Final[Mapping[Any, Callable[[str], Any]]] = {
    **{kind: kind.fromisoformat for kind in (datetime, date, time)},
    **{UUID: UUID, Decimal: Decimal},
}


class PayloadError(ValueError):
    """The payload does not match the handler's type hint."""


def decoder(hint: Any) -> Decoder:
    """A function that decodes payloads for this type hint. It raises PayloadError if one does not match."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        _hints(hint)  # report unresolvable hints now
    return _bytes if hint is bytes else functools.partial(_top, hint)


def _bytes(value: Any, _: str | None) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _top(hint: Any, value: Any, content_type: str | None) -> Any:
    if type(value) is bytes and is_msgpack(content_type):
        try:
            value = unpack(value)
        except Exception as error:  # msgspec's
            raise PayloadError(f"payload is not valid {content_type}: {error}") from error
    return value if hint in _ANYTHING else convert(hint, value, "payload")


def convert(hint: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to this type. Raises PayloadError; its message begins with `where`."""
    try:
        return _convert(hint, value, where)
    except PayloadError:
        raise
    except Exception as error:  # pydantic's and msgspec's
        raise PayloadError(f"{where} is not a valid {_name(hint)}: {error}") from error


def _convert(hint: Any, value: Any, where: str) -> Any:  # noqa: PLR0911 - one branch for each kind of hint
    if hint in _ANYTHING:
        return value
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _convert(args[0], value, where)
    if origin in (typing.Union, types.UnionType):
        return _one_of(args, value, where)
    if origin is Literal:
        return _checked(value in args, value, hint, where)
    if isinstance(origin, type) and origin is not tuple and issubclass(origin, Mapping):
        _checked(isinstance(value, dict), value, hint, where)
        return {convert(args[0], key, where): convert(args[1], one, f"{where}.{key}") for key, one in value.items()}
    if origin in (list, set, frozenset) or (origin is tuple and args[1:] == (...,)):
        _checked(isinstance(value, list), value, hint, where)
        return origin(convert(args[0], one, f"{where}[{i}]") for i, one in enumerate(value))
    if isinstance(hint, type):
        return _of_class(hint, value, where)
    raise TypeError(f"payloads can't be decoded into {_name(hint)}")


def _of_class(hint: type, value: Any, where: str) -> Any:  # noqa: PLR0911
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if hasattr(hint, "__struct_fields__"):
        import msgspec  # noqa: PLC0415 - optional dependency

        return msgspec.convert(value, hint)
    if dataclasses.is_dataclass(hint):
        return _of_dataclass(hint, value, where)
    if hint in _TEXTUAL:
        return value if isinstance(value, hint) else _TEXTUAL[hint](value if hint is not Decimal else str(value))
    if issubclass(hint, Enum):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    return _checked(isinstance(value, hint) and (hint is bool or type(value) is not bool), value, hint, where)


def _of_dataclass(hint: type, value: Any, where: str) -> Any:
    """Ignores unknown fields, which a newer producer may send."""
    _checked(isinstance(value, dict), value, hint, where)
    hints = _hints(hint)
    given = {
        field.name: convert(hints[field.name], value[field.name], f"{where}.{field.name}")
        for field in dataclasses.fields(hint)
        if field.init and field.name in value
    }
    return hint(**given)


@functools.cache
def _hints(hint: type) -> dict[str, Any]:
    return typing.get_type_hints(hint)


def _one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    errors = []
    for hint in hints:
        try:
            return convert(hint, value, where)
        except PayloadError as error:
            errors.append(str(error))
    raise PayloadError("; ".join(errors))


def _checked(fits: bool, value: Any, hint: Any, where: str) -> Any:
    if not fits:
        raise PayloadError(f"{where} is not a valid {_name(hint)}: {value!r:.100}")
    return value


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def sent(value: Any, content_type: str | None, hook: Encoder | None = None) -> Any:
    """Encode a pushed object: as MessagePack for that content type, else as `plain`. Raises TypeError for an object
    that contains itself."""
    try:
        if is_msgpack(content_type) and not isinstance(value, (bytes, bytearray, memoryview)):
            return pack(value, hook)
        return plain(value, hook)
    except RecursionError:
        raise TypeError(TOO_DEEP) from None


def plain(value: Any, hook: Encoder | None = None) -> Any:  # noqa: PLR0911
    """Convert a pushed object to JSON values, text or bytes. `hook` converts unknown types; without it they raise
    TypeError when the job is sent."""
    if value is None or isinstance(value, (str, bytes, bytearray, memoryview, bool, int, float)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Mapping):
        return {key: plain(one, hook) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one, hook) for one in value]
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(type(value), "__struct_fields__"):
        import msgspec  # noqa: PLC0415

        return msgspec.to_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), hook) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return plain(value.value, hook)
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value if hook is None else plain(hook(value))
