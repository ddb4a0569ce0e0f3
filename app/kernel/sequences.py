"""Looking at topics' sequences, which go with their topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from app.kernel.model import Connection


async def rows_of(db: Connection, statement: str, *values: Any) -> Sequence[asyncpg.Record]:
    """What a statement finds that leaves out topics whose sequence is gone. One that goes between the statement's
    snapshot and the look at it raises, and is gone for the next snapshot."""
    try:
        return await db.fetch(statement, *values)
    except asyncpg.InternalServerError:
        return await db.fetch(statement, *values)
