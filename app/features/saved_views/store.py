"""Views that users, and holders of keys, have saved for themselves: a name for an address of the admin pages.
docs/admin.md."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import sql
from app.errors import Throttled

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_LOCK = _SQL["lock_views"]
_PAGE = _SQL["page_views"]
_PUT = _SQL["put_view"]
_DELETE = _SQL["delete_view"]

MOST: Final = 50  # of one owner


class View(msgspec.Struct, frozen=True):
    """A view."""

    name: str
    address: str
    created_at: datetime


async def page(db: Connection, owner: str) -> list[View]:
    """All that somebody has, by name."""
    return [View(**row) for row in await db.fetch(_PAGE, owner)]


async def put(pool: Pool, owner: str, name: str, address: str) -> View:
    """Save one, or change its address. Raises Throttled above MOST."""
    async with pool.acquire() as db, db.transaction():
        await db.execute(_LOCK, owner)
        row = await db.fetchrow(_PUT, owner, name, address, MOST)
    if row is None:
        raise Throttled(f"There can be {MOST} saved views of one user or key.", {"limit": "views", "max": MOST})
    return View(name, address, row["created_at"])


async def delete(db: Connection, owner: str, name: str) -> View | None:
    """Delete one: as it was; None if there is none."""
    row = await db.fetchrow(_DELETE, owner, name)
    return None if row is None else View(name, row["address"], row["created_at"])
