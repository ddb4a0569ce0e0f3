"""Who may run what: a role of the service may all that it needs, and one that has the schema alone does nothing."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

MANUAL = Path(__file__).parents[2] / "docs/operations/postgres.md"
DANGEROUS = """
    SELECT p.oid::regprocedure::text AS name, has_function_privilege($1, p.oid, 'EXECUTE') AS may
    FROM pg_proc p
    WHERE p.pronamespace = 'holdfast'::regnamespace AND p.prosecdef AND p.prorettype <> 'trigger'::regtype
"""


async def test_what_runs_as_its_owner_takes_a_grant(new_database: Callable[[], Awaitable[str]]) -> None:
    """The manual's grants are enough for the service; who has the schema alone may run none of these."""
    service, other = f"r_{secrets.token_hex(4)}", f"r_{secrets.token_hex(4)}"
    grants = re.findall(r"^(?:GRANT .* IN|GRANT USAGE ON) SCHEMA holdfast TO holdfast_app;", MANUAL.read_text(), re.M)
    assert len(grants) == 4
    db = await asyncpg.connect(await new_database())
    try:
        await db.execute(f"CREATE ROLE {service}; CREATE ROLE {other}; GRANT USAGE ON SCHEMA holdfast TO {other}")
        await db.execute("".join(grants).replace("holdfast_app", service))
        rows = await db.fetch(DANGEROUS, service)
        assert len(rows) >= 11
        assert all(row["may"] for row in rows), rows
        assert await db.fetchval("SELECT has_table_privilege($1, 'holdfast.defaults', 'UPDATE')", service)
        rows = await db.fetch(DANGEROUS, other)
        assert not any(row["may"] for row in rows), rows
    finally:
        await db.execute(f"DROP OWNED BY {service}, {other}; DROP ROLE {service}, {other}")
        await db.close()
