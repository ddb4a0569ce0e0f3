"""A page of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a list. `next_cursor` leads to what follows, None on the last; a page may be empty and not be the
    last."""

    items: tuple[T, ...]
    next_cursor: str | None
