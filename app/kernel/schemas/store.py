"""The schemas of topics in PostgreSQL, and checks of payloads against them. docs/enqueue.md.

A process keeps compiled schemas: a version of a schema never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from app.base.db import sql
from app.errors import SchemaViolation, Unavailable
from app.kernel.audit import trail
from app.kernel.audit.trail import Actor
from app.kernel.schemas import schemas
from app.kernel.schemas.schemas import Fault, Format, Schema, SchemaText
from app.kernel.topics import store
from app.kernel.topics.policy import of_messages

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.base.metrics import Numbers
    from app.kernel.model import Connection
    from app.kernel.topics.cache import Policies
    from app.kernel.topics.policy import Policy

_SQL: Final = sql.load_all(__package__)
_VERSION = _SQL["schema"]
_OF = _SQL["schema_of"]
_PAGE = _SQL["schema_page"]


class StoredSchema(msgspec.Struct, frozen=True):
    """A topic's stored schema. `version` counts its changes."""

    topic: str
    format: str
    schema: str
    version: int
    updated_at: datetime


async def version(db: Connection, topic_id: int, version: int) -> SchemaText | None:
    """The text of one version; None: the topic has another version by now, or no schema."""
    row = await db.fetchrow(_VERSION, topic_id, version)
    return None if row is None else SchemaText(Format(row["format"]), row["schema"])


async def get(db: Connection, name: str) -> StoredSchema | None:
    """A topic's schema; None: it has none, or there is no such topic."""
    row = await db.fetchrow(_OF, name)
    return None if row is None else StoredSchema(**row)


async def page(db: Connection, after: str, limit: int, allowed: Sequence[str] = ()) -> list[StoredSchema]:
    """Up to `limit` schemas of topics whose names come after `after`, by name in byte order. With `allowed`, only names
    that start with one of these."""
    return [StoredSchema(**row) for row in await db.fetch(_PAGE, after, limit, list(allowed))]


async def put(pool: Pool, name: str, schema: SchemaText, by: Actor = trail.SERVICE) -> StoredSchema:
    """Set a topic's schema. A missing topic is created as the messages dialect does. Raises InvalidRequest for a name
    that it can't have."""
    async with pool.acquire() as db, db.transaction():
        await store.make_or_lock(db, name, of_messages(name), by)
        await store.keep_schema(db, name, schema, by)
        kept = await get(db, name)
        assert kept is not None
        return kept


async def drop(pool: Pool, name: str, by: Actor = trail.SERVICE) -> bool:
    """Remove a topic's schema. Returns whether it had one."""
    async with pool.acquire() as db, db.transaction():
        return await store.keep_schema(db, name, None, by)


MOST_BYTES: Final = 16 * 1024 * 1024  # of the texts of compiled schemas that are kept
LARGE_BYTES: Final = 32 * 1024  # payloads of more bytes are checked in a thread
MOST_READS: Final = 3


class _Ready(NamedTuple):
    schema: Schema
    size: int


class Checks:
    """Checks payloads before they are written. Callers check policy.schema_version first, so that topics without a
    schema cost nothing."""

    def __init__(self, pool: Pool, policies: Policies, numbers: Numbers) -> None:
        self._pool = pool
        self._policies = policies
        self._numbers = numbers
        self._ready: dict[tuple[int, int], _Ready] = {}
        self._size = 0
        self._loads: dict[tuple[int, int], asyncio.Task[Schema | None]] = {}

    async def must_fit(self, policy: Policy, payloads: Sequence[bytes], content_types: Sequence[str | None]) -> None:
        """Raises SchemaViolation for the first payload that does not fit, Unavailable, TopicNotFound, and asyncpg's
        errors. `content_types` may be shorter: the rest is JSON."""
        schema = await self._schema(policy)
        if schema is None:
            return
        if sum(map(len, payloads)) <= LARGE_BYTES:
            found = schemas.first_fault(schema, payloads, content_types)
        else:
            # Other calls run between two payloads.
            found = await asyncio.to_thread(schemas.first_fault, schema, payloads, content_types)
        if found is not None:
            place, fault = found
            self._numbers.topic(policy.topic.name).unfit.add(len(payloads))
            raise SchemaViolation(policy.topic.name, place, len(payloads), fault.path, fault.text)

    async def fault(self, policy: Policy, payload: bytes, content_type: str | None) -> Fault | None:
        """The fault of one payload; None: it fits, or its topic has no schema. Raises the errors of must_fit."""
        schema = await self._schema(policy)
        return None if schema is None else schema.fault(payload, content_type)

    async def _schema(self, policy: Policy) -> Schema | None:
        for _ in range(MOST_READS):
            if policy.schema_version is None:
                return None
            at = (policy.topic.id, policy.schema_version)
            ready = self._ready.get(at)
            if ready is not None:
                return ready.schema
            load = self._loads.get(at)
            if load is None:
                load = self._loads[at] = asyncio.create_task(self._load(at))
            schema = await asyncio.shield(load)
            if schema is not None:
                return schema
            # Another process has changed it since the policy was read.
            self._policies.forget(policy.topic.name)
            policy = await self._policies.get(policy.topic.name)
        raise Unavailable(f"The schema of topic {policy.topic.name!r} is being changed. Try again.")

    async def _load(self, at: tuple[int, int]) -> Schema | None:
        try:
            text = await version(self._pool, *at)
            if text is None:
                return None
            schema = await asyncio.to_thread(schemas.compile_schema, text)
            if self._size + len(text.schema) > MOST_BYTES:
                self._ready.clear()
                self._size = 0
            self._ready[at] = _Ready(schema, len(text.schema))
            self._size += len(text.schema)
            return schema
        finally:
            del self._loads[at]
