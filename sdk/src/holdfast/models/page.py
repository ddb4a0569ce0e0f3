"""A page of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list. `next_cursor`: the cursor of the next page, None on the last page. A page may be empty without
    being the last."""

    items: tuple[T, ...]
    next_cursor: str | None
