"""MessagePack payloads. Needs msgspec. docs/sdk.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

TYPES: Final = {"application/msgpack", "application/vnd.msgpack", "application/x-msgpack"}


def is_msgpack(content_type: str | None) -> bool:
    return content_type is not None and content_type.partition(";")[0].strip().lower() in TYPES


def pack(value: Any, hook: Callable[[Any], Any] | None = None) -> bytes:
    """Encode a value: any type of msgspec's, including bytes and aware times, and pydantic's models. `hook` converts
    other types. Raises TypeError or ValueError if a value can't be encoded, RuntimeError without msgspec."""

    def known(other: Any) -> Any:
        if isinstance(other, Mapping):
            return dict(other)
        if hasattr(type(other), "model_dump"):
            return other.model_dump()
        made = other if hook is None else hook(other)
        if made is other:
            raise TypeError(f"A {type(other).__name__} can't be encoded as MessagePack: {other!r:.100}")
        return made

    try:
        packed: bytes = _msgspec().msgpack.encode(value, enc_hook=known)
    except OverflowError as error:
        raise ValueError(f"can't be encoded as MessagePack: {error}") from error
    return packed


def unpack(content: bytes) -> Any:
    """Decode MessagePack to dicts, lists, strings, numbers, bytes and aware times. Raises ValueError or RecursionError
    for malformed input, RuntimeError without msgspec."""
    return _msgspec().msgpack.decode(content)


def _msgspec() -> Any:
    try:
        import msgspec  # noqa: PLC0415
    except ImportError:
        raise RuntimeError("a payload of application/msgpack needs the package's extra: msgpack") from None
    return msgspec
