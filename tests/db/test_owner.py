"""A database whose owner may do nothing beyond it, as docs/configuration.md has one made."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.base.db import schema


async def test_who_owns_the_database_can_migrate_it(empty_database: Callable[[], Awaitable[str]]) -> None:
    url, role = await empty_database(), f"owner_{secrets.token_hex(4)}"
    parts = urlsplit(url)
    admin = await asyncpg.connect(url)
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'o'")
    try:
        await admin.execute(f"ALTER DATABASE {parts.path[1:]} OWNER TO {role}")
        own = urlunsplit(parts._replace(netloc=f"{role}:o@{parts.netloc.rpartition('@')[2]}"))
        await schema.upgrade(own)
        assert await schema.current(own) == schema.KNOWN[-1]
    finally:
        await admin.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}; DROP ROLE {role}")
        await admin.close()
