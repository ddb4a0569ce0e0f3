"""The schemas of topics in PostgreSQL: given, read, taken back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import sql
from app.kernel.audit import trail
from app.kernel.audit.trail import Actor
from app.kernel.schemas.schemas import Format, Text
from app.kernel.topics import store
from app.kernel.topics.policy import of_messages

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_VERSION = _SQL["schema"]
_OF = _SQL["schema_of"]
_PAGE = _SQL["schema_page"]


class Kept(msgspec.Struct, frozen=True):
    """A topic's schema as it is kept. `version` counts the changes of this topic's schema."""

    topic: str
    format: str
    schema: str
    version: int
    updated_at: datetime


async def version(db: Connection, topic_id: int, version: int) -> Text | None:
    """The text of one version; None: it is another by now, or there is none."""
    row = await db.fetchrow(_VERSION, topic_id, version)
    return None if row is None else Text(Format(row["format"]), row["schema"])


async def get(db: Connection, name: str) -> Kept | None:
    """A topic's schema; None: it has none, or there is no such topic."""
    row = await db.fetchrow(_OF, name)
    return None if row is None else Kept(**row)


async def page(db: Connection, after: str, limit: int, allowed: Sequence[str] = ()) -> list[Kept]:
    """Up to `limit` schemas of topics whose names come after `after`, by name in byte order; with `allowed`, only of
    those whose names start with one of these."""
    return [Kept(**row) for row in await db.fetch(_PAGE, after, limit, list(allowed))]


async def put(pool: Pool, name: str, schema: Text, by: Actor = trail.SERVICE) -> Kept:
    """Give a topic a schema; one that is absent is made as the messages dialect makes it. Raises InvalidRequest for a
    name that it can't have."""
    async with pool.acquire() as db, db.transaction():
        await store.make_or_lock(db, name, of_messages(name), by)
        await store.keep_schema(db, name, schema, by)
        kept = await get(db, name)
        assert kept is not None
        return kept


async def drop(pool: Pool, name: str, by: Actor = trail.SERVICE) -> bool:
    """Take a topic's schema back; whether it had one."""
    async with pool.acquire() as db, db.transaction():
        return await store.keep_schema(db, name, None, by)
