"""Payloads as MessagePack, by msgspec, which only who has such payloads needs. docs/sdk.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

TYPES: Final = {"application/msgpack", "application/vnd.msgpack", "application/x-msgpack"}


def is_msgpack(content_type: str | None) -> bool:
    return content_type is not None and content_type.partition(";")[0].strip().lower() in TYPES


def pack(value: Any, hook: Callable[[Any], Any] | None = None) -> bytes:
    """MessagePack of what msgspec knows, bytes and aware times as they are, and of pydantic's models; `hook` makes
    something of the rest. Raises TypeError or ValueError for what has none, RuntimeError without msgspec."""

    def known(other: Any) -> Any:
        if isinstance(other, Mapping):
            return dict(other)
        if hasattr(type(other), "model_dump"):
            return other.model_dump()
        made = other if hook is None else hook(other)
        if made is other:
            raise TypeError(f"A {type(other).__name__} has no MessagePack: {other!r:.100}")
        return made

    try:
        packed: bytes = _msgspec().msgpack.encode(value, enc_hook=known)
    except OverflowError as error:
        raise ValueError(f"no MessagePack: {error}") from error
    return packed


def unpack(content: bytes) -> Any:
    """Dicts, lists, text, numbers, bytes and aware times. Raises ValueError or RecursionError for what is no
    MessagePack, RuntimeError without msgspec."""
    return _msgspec().msgpack.decode(content)


def _msgspec() -> Any:
    try:
        import msgspec  # noqa: PLC0415
    except ImportError:
        raise RuntimeError("a payload of application/msgpack needs the package's extra: msgpack") from None
    return msgspec
