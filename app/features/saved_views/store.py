"""Read and write the saved views of users and keys: named addresses of admin pages. docs/admin.md."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import sql
from app.errors import InvalidRequest, NotFound, Throttled
from app.kernel.model import Connection

if TYPE_CHECKING:
    from app.base.db.pool import Pool

_SQL: Final = sql.load_all(__package__)

MOST: Final = 50  # per owner
MAX_NAME: Final = 80
MAX_ADDRESS: Final = 2_048
NAME: Final = r"^[^\s/.\u0000-\u001f\u007f][^/\u0000-\u001f\u007f]*$"
ADDRESS: Final = r"^/admin/[!-\[\]-~]*$"
_NAME: Final = re.compile(NAME.replace("$", r"\Z"))
_ADDRESS: Final = re.compile(ADDRESS.replace("$", r"\Z"))


class View(msgspec.Struct, frozen=True):
    name: str
    address: str
    created_at: datetime


async def page(db: Connection, owner: str) -> list[View]:
    return [View(**row) for row in await db.fetch(_SQL["page_views"], owner)]


async def put(pool: Pool, owner: str, name: str, address: str) -> View:
    """Save a view, or change its address. Raises InvalidRequest, Throttled above MOST."""
    name, address = check_name(name), check_address(address)
    async with pool.acquire() as db, db.transaction():
        await db.execute(_SQL["lock_views"], owner)
        row = await db.fetchrow(_SQL["put_view"], owner, name, address, MOST)
    if row is None:
        raise Throttled(f"The limit is {MOST} saved views per user or key.", {"limit": "views", "max": MOST})
    return View(name, address, row["created_at"])


async def delete(db: Connection, owner: str, name: str) -> View:
    """Delete a view, and return it. Raises InvalidRequest, NotFound."""
    row = await db.fetchrow(_SQL["delete_view"], owner, check_name(name))
    if row is None:
        raise NotFound(f"Saved view {name!r} does not exist.")
    return View(name, row["address"], row["created_at"])


def check_address(text: str) -> str:
    """Check the address of a page, and return it. Raises InvalidRequest."""
    if len(text) > MAX_ADDRESS or not _ADDRESS.match(text):
        raise InvalidRequest(
            f"address must start with /admin/, be URL-encoded, and have at most {MAX_ADDRESS} characters.",
            {"field": "address"},
        )
    return text


def check_name(name: str) -> str:
    """Check the name of a view, and return it. Raises InvalidRequest."""
    if len(name) > MAX_NAME or not _NAME.match(name):
        raise InvalidRequest(
            f"A view's name must have 1 to {MAX_NAME} characters, without / and control characters, "
            "and must not start with a dot or a space.",
            {"field": "name"},
        )
    return name
