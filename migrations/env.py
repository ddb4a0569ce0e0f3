"""Runs the migrations on HOLDFAST_DATABASE_URL: one transaction each, and one migrator at a time."""

from __future__ import annotations

import asyncio
import os
from uuid import uuid4

import asyncpg
from alembic import context
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import create_async_engine

# A migration that waits for a table makes every statement behind it wait as well: rather give up and be run again.
LOCK_TIMEOUT = "5s"
QUEUE_TIMEOUT = "10min"


def migrate(connection: Connection) -> None:
    """Called with a connection outside a transaction."""
    context.configure(
        connection=connection,
        version_table_schema="holdfast",
        transaction_per_migration=True,
        include_schemas=True,
    )
    with context.begin_transaction():
        context.run_migrations()


async def main() -> None:
    url = os.environ["HOLDFAST_DATABASE_URL"]
    engine = create_async_engine(
        # asyncpg reads the URL itself: it knows sslmode and the like, which SQLAlchemy would hand over as arguments.
        "postgresql+asyncpg://",
        connect_args={
            "async_creator_fn": lambda *_, **__: asyncpg.connect(url, timeout=10, statement_cache_size=0),
            "prepared_statement_cache_size": 0,
            # Unique names, so that a pooler which shares connections never meets one twice.
            "prepared_statement_name_func": lambda: f"migration_{uuid4().hex}",
        },
    )

    @event.listens_for(engine.sync_engine, "begin")
    def _bound_the_wait(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")

    guard = await asyncpg.connect(url, timeout=10, statement_cache_size=0)
    try:
        # The lock hangs on a transaction of a connection of its own: it outlasts the migrations' transactions, and
        # it holds behind a pooler too, which a session's lock would not.
        async with guard.transaction():
            await guard.execute(f"SET LOCAL lock_timeout = '{QUEUE_TIMEOUT}'")
            await guard.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await guard.execute("SELECT pg_advisory_xact_lock(hashtextextended('holdfast.migrations', 0))")
            async with engine.begin() as connection:
                # Alembic's table stands in this schema, and is made before the first migration runs.
                await connection.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS holdfast")
            async with engine.connect() as connection:
                await connection.run_sync(migrate)
    finally:
        guard.terminate()
        await engine.dispose()


asyncio.run(main())
