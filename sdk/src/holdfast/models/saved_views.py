"""Addresses of the admin pages that somebody has saved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A name for an address. docs/admin.md."""

    name: str
    address: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViews:
    """One's own, by name."""

    views: tuple[SavedView, ...]
