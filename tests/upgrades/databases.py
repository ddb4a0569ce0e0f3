"""Databases, and migrations of them by whichever version of the code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg

from tests.upgrades.filled import SCHEMA
from tests.upgrades.releases import Release

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

MakeDatabase = Callable[[], Awaitable[str]]


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def start_migration(release: Release, url: str, revision: str = "head") -> asyncio.subprocess.Process:
    """As the service of this release starts it."""
    environ = os.environ | {"HOLDFAST_DATABASE_URL": url}
    command = [sys.executable, "-m", "alembic", "-c", str(release.folder / "alembic.ini"), "upgrade", revision]
    quiet = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*command, cwd=release.folder, env=environ, stdout=quiet, stderr=quiet)


async def migrate(release: Release, url: str, revision: str = "head") -> None:
    migrating = await start_migration(release, url, revision)
    assert await migrating.wait() == 0


async def list_schema(url: str) -> list[str]:
    """All that makes the schema."""
    async with connected(url) as db:
        return [row[0] for row in await db.fetch(SCHEMA)]
