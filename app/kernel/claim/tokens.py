"""Tokens in PostgreSQL: how many jobs of a topic all processes may hand out now. docs/semantics.md, section 11.

A bucket earns `per_second` tokens a second and holds a second's worth. A new one is full.
"""

from __future__ import annotations

from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection, Topic

_SQL: Final = sql.load_all(__package__)
_TAKE = _SQL["take_tokens"]
_PEEK = _SQL["peek_tokens"]
_RETURN = _SQL["return_tokens"]
_DATABASE = _SQL["database"]


class Grant(msgspec.Struct, frozen=True):
    """So many tokens; and, where that is fewer than were wanted, in how many seconds there is one more."""

    tokens: int
    wait_seconds: float


async def take(db: Connection, topic: Topic, wanted: int, per_second: int) -> Grant:
    """Take up to `wanted` tokens, 1 or more. Raises asyncpg's errors."""
    row = await db.fetchrow(_TAKE, topic.id, wanted, per_second)
    assert row is not None, "an upsert answers one row always"
    return Grant(row["granted"], row["wait_ms"] / 1000)


async def refill(db: Connection, topic: Topic, per_second: int) -> float:
    """In how many seconds there is a token; 0: there is one. Takes none."""
    wait_ms: int = await db.fetchval(_PEEK, topic.id, per_second)
    return wait_ms / 1000


async def put_back(db: Connection, topic: Topic, tokens: int, per_second: int) -> None:
    """Put back what was taken and not spent."""
    await db.execute(_RETURN, topic.id, tokens, per_second)


async def database(db: Connection) -> str:
    """A name for this database that no other has: what several that share a Redis are told apart by."""
    name: str = await db.fetchval(_DATABASE)
    return name
