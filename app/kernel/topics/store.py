"""The rows of topics in PostgreSQL: create, read, replace, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from app.base.db import sql
from app.base.keys import OWN
from app.base.outages import LOST_RACE
from app.errors import InvalidRequest, NotAQueue, TopicExistsIncompatible, TopicNotEmpty, TopicNotFound
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.model import Connection, Topic
from app.kernel.schemas.schemas import SchemaText
from app.kernel.topics import webhooks
from app.kernel.topics.policy import DEFAULTS, Control, Defaults, Policy, in_effect
from app.kernel.topics.settings import FIELDS, OBJECTS, Chosen, TopicType
from app.kernel.topics.webhooks import Webhook

if TYPE_CHECKING:
    import asyncpg

    from app.base.db.pool import Pool

_SQL: Final = sql.load_all(__package__)
_GET = _SQL["get"]
_PAGE = _SQL["page"]
_CONFIGURED = _SQL["configured"]
_COLUMNS = {"settings": ", ".join(FIELDS), "chosen": ", ".join(f"c.{name}" for name in FIELDS)}
_INSERT = sql.load(__package__, "insert", **_COLUMNS)
_UPDATE = sql.load(__package__, "update", **_COLUMNS)
_LOCK = _SQL["lock"]
_CREATE_SEQUENCE = _SQL["create_sequence"]
_DROP_SEQUENCE = _SQL["drop_sequence"]
_DELETE = _SQL["delete"]
_DROP_TALLIES = _SQL["drop_tallies"]
_DROP_READS = _SQL["drop_reads"]
_COUNT = _SQL["count"]
_CENSUS = _SQL["census"]
_SOME_OF = _SQL["some_of"]
_ANY_JOB = _SQL["any_job"]
_ANY_RECORD = _SQL["any_record"]
_LOCK_LOG = _SQL["lock_log"]
_OVERDUE = _SQL["overdue"]
_KEEP_DEFAULTS = _SQL["keep_defaults"]
_KEEP_SCHEMA = _SQL["keep_schema"]
_CONTROL = _SQL["control"]
_CONTROLLED = _SQL["controlled"]
_CLOSING = _SQL["closing"]

DELETE_ATTEMPTS: Final = 5
DELETE_SECONDS: Final = 600.0  # for the whole deletion, which may have many failed jobs and batch keys to delete


async def get(db: Connection, name: str, defaults: Defaults) -> Policy | None:
    """A topic's policy; None if there is no such topic."""
    row = await db.fetchrow(_GET, name)
    return None if row is None else _policy(row, defaults)


async def page(
    db: Connection, prefix: str, after: str, limit: int, *, defaults: Defaults, allowed: Sequence[str] = ()
) -> list[Policy]:
    """Up to `limit` topics whose names start with `prefix` and come after `after`, by name in byte order. With
    `allowed`, only names that start with one of these.
    """
    return [_policy(row, defaults) for row in await db.fetch(_PAGE, prefix, after, limit, list(allowed))]


async def queues(
    db: Connection, limit: int, *, defaults: Defaults, allowed: Sequence[str] = ()
) -> AsyncIterator[list[Policy]]:
    """All queues, up to `limit` at a time. Otherwise as page."""
    after: str | None = ""
    while after is not None:
        found = await page(db, "", after, limit, defaults=defaults, allowed=allowed)
        yield [policy for policy in found if policy.config.type is TopicType.QUEUE]
        after = found[-1].topic.name if len(found) == limit else None


async def configured_queues(
    db: Connection, after: str, limit: int, *, defaults: Defaults, allowed: Sequence[str] = ()
) -> list[Policy]:
    """Up to `limit` queues that were configured, whose names come after `after`. Otherwise as page."""
    return [_policy(row, defaults) for row in await db.fetch(_CONFIGURED, after, limit, list(allowed))]


async def count(db: Connection) -> int:
    topics: int = await db.fetchval(_COUNT)
    return topics


async def census(db: Connection) -> dict[tuple[str, str], int]:
    """How many topics there are, by type and durability."""
    return {(row["type"], row["durability"]): row["topics"] for row in await db.fetch(_CENSUS)}


async def some_of(db: Connection, first: Sequence[str], limit: int, defaults: Defaults) -> list[Policy]:
    """Up to `limit` topics: the ones in `first` that exist, then others by name."""
    return [_policy(row, defaults) for row in await db.fetch(_SOME_OF, list(first), limit)]


async def keep_defaults(db: Connection, defaults: Defaults) -> None:
    """Store the service's defaults for SQL users who enqueue. If processes differ, the last one to start wins."""
    await db.execute(_KEEP_DEFAULTS, defaults.ttl_ms, defaults.max_retries, defaults.dlq_threshold)


async def put(
    pool: Pool,
    name: str,
    config: Chosen,
    by: Actor = trail.SERVICE,
    *,
    schema: SchemaText | None = None,
    secret: str | None = None,
) -> bool:
    """Create a topic, or replace its configuration and its schema. Returns whether it was created. Changes are recorded
    in the audit trail.

    `secret`: the secret for which its webhook has a mask; None: the stored secret. Raises TopicExistsIncompatible if it
    exists with another type, and InvalidRequest for a mask that stands for no secret.
    """
    webhooks.check_dead_letter(config.dead_letter)
    async with pool.acquire() as db, db.transaction():
        existing = None
        while existing is None:  # again if the topic was deleted between the two statements
            if config.webhook is not None and secret is None:
                webhooks.check_mask(config.webhook, await _hook(db, name))
            if await _create(db, name, config, by, secret):
                await keep_schema(db, name, schema, by)
                return True
            existing = await db.fetchrow(_UPDATE, name, msgspec.json.encode(config).decode())
        if existing["type"] != config.type.value:
            raise TopicExistsIncompatible(
                f"Topic {name!r} is a {existing['type']}; a topic's type can't be changed.",
                {"topic": name, "existing_type": existing["type"], "requested_type": config.type.value},
            )
        before = _settings(existing["before"])
        await _record(db, name, before, config, by)
        if config.webhook is not None or before["webhook"] is not None:
            await webhooks.keep(db, name, secret)
        await keep_schema(db, name, schema, by)
        return False


async def amend(
    pool: Pool,
    name: str,
    change: Callable[[Chosen | None], Chosen | None],
    by: Actor = trail.SERVICE,
    *,
    secret: str | None = None,
) -> Chosen | None:
    """Replace a topic's stored settings by the result of `change`, and return them. `change` gets None if there is no
    such topic. If it returns None, nothing changes.

    The topic is locked meanwhile. `change` may run several times. It must not change the type, and can raise errors.
    """
    async with pool.acquire() as db, db.transaction():
        chosen, created = None, False
        while not created:
            locked = await db.fetchrow(_LOCK, name)
            before = None if locked is None else _settings(locked["before"])
            was = None if before is None else msgspec.convert(before, Chosen)
            chosen = change(was)
            if chosen is None:
                return None
            webhooks.check_dead_letter(chosen.dead_letter)
            if secret is None:
                webhooks.check_mask(chosen.webhook, None if was is None else was.webhook)
            if before is not None:
                await db.fetchrow(_UPDATE, name, msgspec.json.encode(chosen).decode())
                await _record(db, name, before, chosen, by)
                if chosen.webhook is not None or before["webhook"] is not None:
                    await webhooks.keep(db, name, secret)
                return chosen
            created = await _create(db, name, chosen, by, secret)
        return chosen


async def _record(db: Connection, name: str, before: dict[str, object], now: Chosen, by: Actor) -> None:
    """Record the changes in the audit trail, if there are any."""
    changes = trail.changes(before, _settings(msgspec.json.encode(now)))
    if changes:
        await trail.record(db, by, Action.TOPIC_CHANGED, name, changes)


async def create(
    pool: Pool,
    name: str,
    config: Chosen,
    by: Actor = trail.SERVICE,
    *,
    schema: SchemaText | None = None,
    secret: str | None = None,
) -> bool:
    """Create a topic unless it exists. Returns whether it was created."""
    webhooks.check_dead_letter(config.dead_letter)
    async with pool.acquire() as db, db.transaction():
        if secret is None:
            webhooks.check_mask(config.webhook, None)
        created = await _create(db, name, config, by, secret)
        if created and schema is not None:
            await keep_schema(db, name, schema, by)
        return created


async def make_or_lock(db: Connection, name: str, chosen: Chosen, by: Actor) -> None:
    """Create a topic, or lock the row of the existing one, within the caller's transaction."""
    while await db.fetchrow(_LOCK, name) is None:
        if await _create(db, name, chosen, by):
            return


async def keep_schema(db: Connection, name: str, schema: SchemaText | None, by: Actor) -> bool:
    """Set or remove a topic's schema, within the caller's transaction. Returns whether that changed anything. Does
    nothing if there is no such topic."""
    locked = await db.fetchrow(_LOCK, name)
    if locked is None:
        return False
    given = (None, None) if schema is None else (schema.format.value, schema.schema)
    kept = await db.fetchrow(_KEEP_SCHEMA, locked["id"], *given)
    if kept is None:
        return False
    # The trail gets only the versions: schemas are too long for it.
    now = None if schema is None else {"version": kept["version"], "format": schema.format.value}
    before = None if kept["before"] is None else {"version": kept["before"]}
    await trail.record(db, by, Action.TOPIC_CHANGED, name, {"schema": {"from": before, "to": now}})
    return True


async def _hook(db: Connection, name: str) -> Webhook | None:
    locked = await db.fetchrow(_LOCK, name)
    return None if locked is None else msgspec.convert(_settings(locked["before"])["webhook"], Webhook | None)


async def _create(db: Connection, name: str, config: Chosen, by: Actor, secret: str | None = None) -> bool:
    if webhooks.is_own(name):
        raise InvalidRequest(f"Names that begin with {OWN} are reserved for the service's own topics.", {"topic": name})
    new_id = await db.fetchval(_INSERT, name, msgspec.json.encode(config).decode())
    if new_id is None:
        return False
    await db.execute(_CREATE_SEQUENCE, new_id)
    if secret is not None:
        await webhooks.keep(db, name, secret)
    await trail.record(db, by, Action.TOPIC_CREATED, name, {"config": msgspec.to_builtins(config)})
    return True


async def control(pool: Pool, name: str, change: Callable[[Control], Control], action: Action, by: Actor) -> Control:
    """Pause, resume or drain a queue. Returns its new state. Raises TopicNotFound, NotAQueue, `change`'s errors."""
    async with pool.acquire() as db, db.transaction():
        row = await db.fetchrow(_CONTROLLED, name)
        if row is None:
            raise TopicNotFound(name)
        if row["type"] != TopicType.QUEUE.value:
            raise NotAQueue(name)
        before = _control(row)
        now = change(before)
        if now != before:
            await db.execute(_CONTROL, name, now.paused, list(now.paused_tenants), now.draining)
            await trail.record(
                db, by, action, name, trail.changes(msgspec.to_builtins(before), msgspec.to_builtins(now))
            )
        return now


class Closing(NamedTuple):
    """The progress of a drain: in how many ms no process takes new jobs any more, and how many rows of the inbox are
    still unchecked, up to 10,000."""

    in_ms: int
    unchecked: int


async def closing(db: Connection, name: str, seconds: float) -> Closing | None:
    """The progress of a queue's drain, if all processes know of it after so many seconds; None: it is not drained."""
    row = await db.fetchrow(_CLOSING, name, seconds)
    return None if row is None else Closing(*row)


async def overdue_logs(db: Connection, limit: int) -> list[Policy]:
    """Up to `limit` logs with records that are too old, or with more records than their caps."""
    return [_policy(row, DEFAULTS) for row in await db.fetch(_OVERDUE, limit)]  # logs need no defaults


async def delete(pool: Pool, name: str, *, if_empty: bool, by: Actor = trail.SERVICE, gone: int = 0) -> bool:
    """Delete a topic and all its contents in one transaction. Returns whether it existed. `gone`: how many of its jobs
    were deleted before; the audit trail counts them too.

    Raises TopicNotEmpty if `if_empty` is set and the topic has a live job or record.
    """
    for attempt in range(DELETE_ATTEMPTS):
        try:
            return await _delete(pool, name, if_empty=if_empty, by=by, gone=gone)
        except LOST_RACE:
            # A deletion locks jobs in another order than the verbs. It was rolled back, so it can run again.
            if attempt == DELETE_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def _delete(pool: Pool, name: str, *, if_empty: bool, by: Actor, gone: int) -> bool:
    async with pool.acquire() as db, db.transaction():
        await db.execute(f"SET LOCAL statement_timeout = '{DELETE_SECONDS:.0f}s'")
        locked = await db.fetchrow(_LOCK, name)
        if locked is None:
            return False
        topic_id, is_log = locked["id"], locked["type"] == TopicType.LOG.value
        await db.execute(_DROP_SEQUENCE, topic_id)
        if is_log:
            await db.execute(_LOCK_LOG, name, topic_id)
        if if_empty and await (db.fetchval(_ANY_RECORD, name, topic_id) if is_log else db.fetchval(_ANY_JOB, name)):
            raise TopicNotEmpty(f"Topic {name!r} is not empty.", {"topic": name})
        jobs = await db.fetchval(_DELETE, name, timeout=DELETE_SECONDS)
        await db.execute(_DROP_TALLIES, topic_id)
        await db.execute(_DROP_READS, topic_id)
        detail = {"config": _settings(locked["before"]), "jobs": gone + jobs}
        await trail.record(db, by, Action.TOPIC_DELETED, name, detail)
        return True


def _settings(row: str | bytes) -> dict[str, object]:
    """The settings in a topic's row, given as JSON."""
    columns = msgspec.json.decode(row, type=dict[str, object])
    return {name: columns[name] for name in FIELDS}


def _policy(row: asyncpg.Record, defaults: Defaults) -> Policy:
    columns = {name: row[name] for name in FIELDS}
    columns |= {name: msgspec.json.decode(columns[name]) for name in OBJECTS if columns[name] is not None}
    chosen = msgspec.convert(columns, Chosen)
    topic = Topic(row["name"], row["id"], row["sequence"])
    config = in_effect(topic.name, chosen, defaults)
    return Policy(topic, config, row["version"], chosen, row["schema_version"], _control(row))


def _control(row: asyncpg.Record) -> Control:
    return Control(row["paused"], tuple(row["paused_tenants"]), row["draining"])
