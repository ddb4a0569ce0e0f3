"""The inbox's rows for topics that have a schema, which wait until somebody has looked at them; and what is left of
rows that were staged to be put in together. docs/sql.md, docs/adr/0027."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_TOPICS = _SQL["inbox_topics"]
_ANY_SCHEMA = _SQL["any_schema"]
_LOCK = _SQL["inbox_lock"]
_TAKE = _SQL["inbox_take"]
_ADMIT = _SQL["inbox_admit"]
_REJECT = _SQL["inbox_reject"]
_FORGET = _SQL["inbox_forget"]
_DROP = _SQL["staged_drop"]
_FORGET_WRITES = _SQL["writes_forget"]


class Row(msgspec.Struct, frozen=True, gc=False):
    """What somebody has inserted, as the columns of the inbox have it."""

    id: int
    inserted_at: datetime
    payload: bytes
    content_type: str | None
    metadata: str | None
    tag: str | None
    node: str | None
    priority: int | None
    delay_ms: int | None
    run_at: datetime | None
    ttl_ms: int | None
    max_deliveries: int | None
    key: str | None
    tenant: str | None
    group: str | None
    dedupe_id: str | None
    user_id: str | None
    webhook: str | None


_COLUMNS = [*(name for name in Row.__struct_fields__ if name not in ("id", "inserted_at")), "inserted_at"]


async def is_used(db: Connection) -> bool:
    """Whether rows can be waiting, or be soon: only those for topics with a schema do."""
    used: bool = await db.fetchval(_ANY_SCHEMA)
    return used


async def topics(db: Connection, after: str, limit: int) -> list[str]:
    """Up to `limit` topics that have rows which wait, whose names come after `after`."""
    return [row["topic"] for row in await db.fetch(_TOPICS, after, limit)]


async def take(db: Connection, topic: str, limit: int) -> list[Row]:
    """Take up to `limit` rows out, in the order in which they came; none while somebody else is at it.

    `db` is a connection with a transaction, at whose end they are gone.
    """
    if not await db.fetchval(_LOCK, topic):
        return []
    return [Row(*row) for row in await db.fetch(_TAKE, topic, limit)]


async def admit(db: Connection, topic: str, version: int | None, rows: Sequence[Row]) -> None:
    """Put rows into their queue whose payloads fit this version of its schema; None: it has none now. Raises asyncpg's
    errors for what the inbox refuses: ConfigurationLimitExceededError where there is no room."""
    await db.execute(_ADMIT, topic, version or 0, *_columns(rows))


async def reject(db: Connection, topic: str, reasons: Sequence[str], rows: Sequence[Row]) -> None:
    """Keep rows with the reasons for which they can't go in."""
    await db.execute(_REJECT, topic, list(reasons), *_columns(rows))


async def forget(db: Connection, kept: timedelta, limit: int) -> int:
    """Forget up to `limit` rejected rows that are kept no longer: how many."""
    count: int = await db.fetchval(_FORGET, kept, limit)
    return count


async def drop_staged(db: Connection, limit: int) -> int:
    """Drop up to `limit` rows that somebody staged more than a day ago and never committed: how many."""
    count: int = await db.fetchval(_DROP, limit)
    return count


async def forget_writes(db: Connection, kept: timedelta, limit: int) -> int:
    """Forget up to `limit` writes that were committed longer ago: how many. They could be repeated then."""
    count: int = await db.fetchval(_FORGET_WRITES, kept, limit)
    return count


def _columns(rows: Sequence[Row]) -> list[list[object]]:
    return [[getattr(row, name) for row in rows] for name in _COLUMNS]
