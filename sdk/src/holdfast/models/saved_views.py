"""Saved views of the admin pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A saved address of the admin pages, with its name. docs/admin.md."""

    name: str
    address: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViews:
    """The caller's saved views, by name."""

    views: tuple[SavedView, ...]
