"""Payloads against the schemas of their topics. What a process has made ready of a version of a schema it keeps: a
version never changes. docs/schemas.md."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from app.errors import SchemaViolation, Unavailable
from app.kernel.schemas import schemas
from app.kernel.schemas import store as schema_store
from app.kernel.schemas.schemas import Fault, Schema

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.base.metrics import Numbers
    from app.kernel.topics.cache import Policies
    from app.kernel.topics.policy import Policy

MOST_BYTES: Final = 16 * 1024 * 1024  # of schemas' texts, of which what was made ready is kept
LARGE_BYTES: Final = 32 * 1024  # of payloads, that are looked at in a thread
MOST_READS: Final = 3


class _Ready(NamedTuple):
    schema: Schema
    size: int


class Checks:
    """Looks at payloads before they are put anywhere. A topic without a schema costs it nothing: callers look at
    policy.schema_version first."""

    def __init__(self, pool: Pool, policies: Policies, numbers: Numbers) -> None:
        self._pool = pool
        self._policies = policies
        self._numbers = numbers
        self._ready: dict[tuple[int, int], _Ready] = {}
        self._size = 0
        self._loads: dict[tuple[int, int], asyncio.Task[Schema | None]] = {}

    async def must_fit(self, policy: Policy, payloads: Sequence[bytes], content_types: Sequence[str | None]) -> None:
        """Raises SchemaViolation for the first payload that does not fit, Unavailable, TopicNotFound, and asyncpg's
        errors. `content_types` may end early: JSON."""
        schema = await self._schema(policy)
        if schema is None:
            return
        if sum(map(len, payloads)) <= LARGE_BYTES:
            found = schemas.first_fault(schema, payloads, content_types)
        else:
            # Other calls get their turn between two payloads.
            found = await asyncio.to_thread(schemas.first_fault, schema, payloads, content_types)
        if found is not None:
            place, fault = found
            self._numbers.topic(policy.topic.name).unfit.add(len(payloads))
            raise SchemaViolation(policy.topic.name, place, len(payloads), fault.path, fault.text)

    async def fault(self, policy: Policy, payload: bytes, content_type: str | None) -> Fault | None:
        """What is wrong with one payload; None: it fits, or its topic has no schema. Raises as must_fit does."""
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
            # It was changed elsewhere since the policy was read.
            self._policies.forget(policy.topic.name)
            policy = await self._policies.get(policy.topic.name)
        raise Unavailable(f"The schema of topic {policy.topic.name!r} is being changed. Try again.")

    async def _load(self, at: tuple[int, int]) -> Schema | None:
        try:
            text = await schema_store.version(self._pool, *at)
            if text is None:
                return None
            schema = await asyncio.to_thread(schemas.compiled, text)
            if self._size + len(text.schema) > MOST_BYTES:
                self._ready.clear()
                self._size = 0
            self._ready[at] = _Ready(schema, len(text.schema))
            self._size += len(text.schema)
            return schema
        finally:
            del self._loads[at]
