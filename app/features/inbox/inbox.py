"""Checks rows of the inbox against their topics' schemas: valid rows become jobs, the others are kept as rejected.

Also deletes old rejected rows, abandoned staged rows and old notes of writes. docs/sql.md, docs/adr/0027.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec

from app.base.db import sql
from app.base.loops import Loop
from app.errors import TopicNotFound
from app.kernel.model import Connection

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

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

BATCH: Final = 500
TOPICS: Final = 100
SECONDS: Final = 0.5
IDLE: Final = 5.0  # while no topic has a schema
JITTER: Final = 0.2


class InboxRow(msgspec.Struct, frozen=True, gc=False):
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


_COLUMNS = [*(name for name in InboxRow.__struct_fields__ if name not in ("id", "inserted_at")), "inserted_at"]


async def is_used(db: Connection) -> bool:
    """Whether rows can wait in the inbox. Only rows for topics with a schema wait."""
    used: bool = await db.fetchval(_ANY_SCHEMA)
    return used


async def topics_of_inbox(db: Connection, after: str, limit: int) -> list[str]:
    """Up to `limit` topics with waiting rows, whose names come after `after`."""
    return [row["topic"] for row in await db.fetch(_TOPICS, after, limit)]


async def take(db: Connection, topic: str, limit: int) -> list[InboxRow]:
    """Take up to `limit` rows out, in order of insertion. Returns none while another process takes them.

    `db` must be in a transaction, which deletes the rows when it commits.
    """
    if not await db.fetchval(_LOCK, topic):
        return []
    return [InboxRow(*row) for row in await db.fetch(_TAKE, topic, limit)]


async def admit(db: Connection, topic: str, version: int | None, rows: Sequence[InboxRow]) -> None:
    """Put rows into their queue.

    `version`: the schema version that the payloads fit, None if the topic has no schema now.
    Raises asyncpg's errors if the inbox refuses the rows, ConfigurationLimitExceededError if there is no room.
    """
    await db.execute(_ADMIT, topic, version or 0, *_columns(rows))


async def reject(db: Connection, topic: str, reasons: Sequence[str], rows: Sequence[InboxRow]) -> None:
    """Keep rejected rows with the reasons."""
    await db.execute(_REJECT, topic, list(reasons), *_columns(rows))


async def forget(db: Connection, keep: timedelta, limit: int) -> int:
    """Delete up to `limit` rejected rows that are older than `keep`. Returns how many."""
    count: int = await db.fetchval(_FORGET, keep, limit)
    return count


async def drop_staged(db: Connection, limit: int) -> int:
    """Delete up to `limit` rows that were staged more than a day ago and never committed. Returns how many."""
    count: int = await db.fetchval(_DROP, limit)
    return count


async def forget_writes(db: Connection, keep: timedelta, limit: int) -> int:
    """Delete up to `limit` notes of writes that were committed longer ago than `keep`. Returns how many.

    Without its note, a write can be committed again.
    """
    count: int = await db.fetchval(_FORGET_WRITES, keep, limit)
    return count


def _columns(rows: Sequence[InboxRow]) -> list[list[object]]:
    return [[getattr(row, name) for row in rows] for name in _COLUMNS]


def loop(engine: Engine) -> Loop:
    async def once() -> float:
        if not await is_used(engine.pools.rest):
            return IDLE
        return 0.0 if await run_once(engine.pools, engine) else SECONDS

    return Loop("check the inbox", once, SECONDS, jitter=JITTER)


async def run_once(pools: Pools, engine: Engine) -> int:
    """Check up to BATCH rows of each topic. Returns how many were settled. Rows for a full topic stay for later."""
    settled, after = 0, ""
    while names := await topics_of_inbox(pools.rest, after, TOPICS):
        for name in names:
            settled += await _settle(pools, engine, name)
        after = names[-1]
    return settled


async def _settle(pools: Pools, engine: Engine, topic: str) -> int:
    try:
        policy = await engine.policies.get(topic)
        version = policy.schema_version
    except TopicNotFound:
        policy, version = None, None
    try:
        async with pools.rest.acquire() as db, db.transaction():
            rows = await take(db, topic, BATCH)
            fit: list[InboxRow] = []
            misfits: list[tuple[str, InboxRow]] = []
            for row in rows:
                fault = await engine.checks.fault(policy, row.payload, row.content_type) if policy is not None else None
                if fault is None:
                    fit.append(row)
                else:
                    misfits.append((f"{fault.path or '(the whole)'}: {fault.text}", row))
            if fit:
                try:
                    async with db.transaction():
                        await admit(db, topic, version, fit)
                except (asyncpg.UndefinedObjectError, asyncpg.WrongObjectTypeError) as error:
                    misfits += [(str(error), row) for row in fit]
            if misfits:
                await reject(db, topic, [reason for reason, _ in misfits], [row for _, row in misfits])
        engine.metrics.topic(topic).unfit.add(len(rows) - len(fit))
    except asyncpg.ConfigurationLimitExceededError:
        return 0  # the rows stay
    finally:
        engine.policies.forget(topic)  # so that a changed schema is known soon
    return len(rows)
