"""A connection as a SQL user has it: nothing of the service's settings."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import asyncpg
import pytest

from app.kernel.model import Job
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, put, take

Db: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def blocked(db: Db, by: Db) -> bool:
    """Whether a connection waits for a lock."""
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1"
    return bool(await db.fetchval(query, by.get_server_pid()))


@pytest.fixture(scope="module")
async def role(database_url: str) -> AsyncIterator[str]:
    """With the rights that docs/sql.md gives, and no others."""
    role = f"sql_{secrets.token_hex(4)}"
    owner = await asyncpg.connect(database_url)
    await owner.execute(
        f"""
        CREATE ROLE {role};
        GRANT USAGE ON SCHEMA holdfast TO {role};
        GRANT INSERT ON holdfast.inbox, holdfast.staged TO {role};
        GRANT SELECT ON holdfast.messages TO {role};
        """
    )
    for function in await owner.fetch(
        "SELECT oid::regprocedure::text AS name FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace "
        "AND proname IN ('enqueue', 'complete', 'assert_lease', 'open_stage', 'commit_stages', 'drop_stages')"
    ):
        await owner.execute(f"GRANT EXECUTE ON FUNCTION {function['name']} TO {role}")
    yield role
    await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    await owner.close()


@pytest.fixture
async def user(database_url: str, role: str) -> AsyncIterator[Callable[[], Awaitable[Db]]]:
    """Connects as that role."""
    opened: list[Db] = []

    async def connect() -> Db:
        db = await asyncpg.connect(database_url, server_settings={"role": role})
        opened.append(db)
        return db

    yield connect
    for db in opened:
        db.terminate()


@pytest.fixture
async def sql(user: Callable[[], Awaitable[Db]]) -> Db:
    """One such connection."""
    return await user()


@pytest.fixture
async def db(connect: Callable[[], Awaitable[Session]]) -> Session:
    return await connect()


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[Policy]]) -> Policy:
    return await make_queue(topic)


@pytest.fixture
async def job(db: Session, queue: Policy) -> Job:
    """One that is leased."""
    await put(db, queue, batch(1))
    [job] = await take(db, queue)
    return job
