"""Runs the migrations on HOLDFAST_DATABASE_URL: one transaction each, and one migrator at a time.

How services and their clients notice it: docs/operations/deployment.md.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
from alembic import context
from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from app.base.db.connect import Hosts

# While a migration waits for a table's lock, every later statement on the table waits too. So the migration gives up
# soon, lets them run, and retries. It may wait for two tables, and the total must stay below 300 ms.
LOCK_TIMEOUT = "100ms"
PAUSE_SECONDS = (0.1, 0.5)
PATIENCE_SECONDS = 600.0
LOCK_NOT_AVAILABLE = "55P03"


def migrate(connection: Connection) -> None:
    """Needs a connection outside a transaction. Migrations that an earlier call committed stay."""
    context.configure(
        connection=connection,
        version_table_schema="holdfast",
        transaction_per_migration=True,
        include_schemas=True,
    )
    with context.begin_transaction():
        context.run_migrations()


async def main() -> None:
    hosts = Hosts(os.environ["HOLDFAST_DATABASE_URL"])
    end = time.monotonic() + PATIENCE_SECONDS
    engine = create_async_engine(
        # asyncpg reads the URL itself, because it knows sslmode and others, which SQLAlchemy would pass as arguments.
        "postgresql+asyncpg://",
        connect_args={
            "async_creator_fn": lambda *_, **__: hosts.connect(timeout=10, statement_cache_size=0),
            "prepared_statement_cache_size": 0,
            # Unique names, so that they never collide on connections that a pooler shares.
            "prepared_statement_name_func": lambda: f"migration_{uuid4().hex}",
        },
    )

    @event.listens_for(engine.sync_engine, "begin")
    def _bound_the_wait(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # the role's setting may be meant for the service

    try:
        async with _alone(hosts, end):
            async with engine.begin() as connection:
                # Alembic creates its table in this schema before the first migration runs.
                await connection.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS holdfast")
            while True:
                try:
                    async with engine.connect() as connection:
                        await connection.run_sync(migrate)
                    break
                except (DBAPIError, asyncpg.PostgresError) as error:  # PostgresError: from migrations/scripts.py
                    cause = error.orig if isinstance(error, DBAPIError) else error
                    if getattr(cause, "sqlstate", None) != LOCK_NOT_AVAILABLE or time.monotonic() > end:
                        raise
                await asyncio.sleep(random.uniform(*PAUSE_SECONDS))  # noqa: S311  (a pause)
    finally:
        await engine.dispose()


@asynccontextmanager
async def _alone(hosts: Hosts, end: float) -> AsyncIterator[None]:
    """Holds a lock so that nobody else migrates. A transaction on a separate connection holds the lock: it outlasts the
    migrations' transactions, and unlike a session's lock works behind a pooler. A waiting migrator keeps no snapshot,
    and no server connection of a pooler."""
    guard = await hosts.connect(timeout=10, statement_cache_size=0)
    try:
        while True:
            turn = guard.transaction()
            await turn.start()
            if await guard.fetchval("SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.migrations', 0))"):
                break
            await turn.rollback()
            if time.monotonic() > end:
                sys.exit("FAILED: another migration has been running for more than ten minutes")
            await asyncio.sleep(PAUSE_SECONDS[0])
        await guard.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield
    finally:
        guard.terminate()


asyncio.run(main())
