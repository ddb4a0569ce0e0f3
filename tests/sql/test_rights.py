"""Who may run what: a role of the service keeps its rights, and one that has the schema alone does nothing."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import asyncpg

from app.db import schema

BEFORE = "0013"
DANGEROUS = """
    SELECT p.oid::regprocedure::text AS name, has_function_privilege($1, p.oid, 'EXECUTE') AS may
    FROM pg_proc p
    WHERE p.pronamespace = 'holdfast'::regnamespace AND p.prosecdef AND p.prorettype <> 'trigger'::regtype
"""


async def test_who_could_enqueue_before_it_had_more_options_can(empty_database: Callable[[], Awaitable[str]]) -> None:
    url = await empty_database()
    await schema.upgrade(url, "0046")
    role = f"r_{secrets.token_hex(4)}"
    db = await asyncpg.connect(url)
    try:
        await db.execute(
            f"""
            CREATE ROLE {role};
            GRANT USAGE ON SCHEMA holdfast TO {role};
            GRANT EXECUTE ON FUNCTION holdfast.enqueue(text, jsonb, text, jsonb, text, text, integer, bigint,
                                                       timestamptz, bigint, integer, text) TO {role};
            """
        )
        await schema.upgrade(url)
        rows = await db.fetch(
            "SELECT p.proargtypes[1]::regtype::text AS kind, has_function_privilege($1, p.oid, 'EXECUTE') AS may, "
            "p.pronargs FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace AND p.proname = 'enqueue'",
            role,
        )
        assert {row["kind"]: row["may"] for row in rows} == {"jsonb": True, "text": False, "bytea": False}
        assert {row["pronargs"] for row in rows} == {17}
    finally:
        await db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await db.close()


async def test_a_lesser_role_of_the_service_keeps_its_rights(empty_database: Callable[[], Awaitable[str]]) -> None:
    url = await empty_database()
    await schema.upgrade(url, BEFORE)
    service, other = f"r_{secrets.token_hex(4)}", f"r_{secrets.token_hex(4)}"
    db = await asyncpg.connect(url)
    try:
        await db.execute(
            f"""
            CREATE ROLE {service}; CREATE ROLE {other};
            GRANT USAGE ON SCHEMA holdfast TO {service}, {other};
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO {service};
            """
        )
        await schema.upgrade(url)
        rows = await db.fetch(DANGEROUS, service)
        assert len(rows) >= 9
        assert all(row["may"] for row in rows), rows
        assert await db.fetchval("SELECT has_table_privilege($1, 'holdfast.defaults', 'UPDATE')", service)
        rows = await db.fetch(DANGEROUS, other)
        assert not any(row["may"] for row in rows), rows
    finally:
        await db.execute(f"DROP OWNED BY {service}, {other}; DROP ROLE {service}, {other}")
        await db.close()
