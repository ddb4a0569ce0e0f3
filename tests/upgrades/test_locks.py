"""What migrations hold up: each says what it locks, none waits for long with verbs behind it, and one that is killed is
done again. The newest one is made up, so that there always is one. docs/operations/deployment.md."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from app.base.db import schema
from tests.upgrades.databases import MakeDatabase, connected, list_schema, migrate, start_migration
from tests.upgrades.filled import FILL, LOCKED, WATCH
from tests.upgrades.releases import Release, next_release

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

# A verb waits as long as a migration does for its tables, one after the other: less than 300 ms.
TIMEOUT, MOST_TABLES = "100ms", 2
GROWING = {"jobs", "lease_events", "records", "results", "archive"}
READ = "SELECT FROM holdfast.jobs, holdfast.lease_events, holdfast.topics LIMIT 1"
WAITING = """
    SELECT l.waitstart FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE NOT l.granted AND d.datname = current_database()"""
# Which transaction made each row that a migration may change: the version's, and the catalogue's of the schema.
VERSIONS = """
    SELECT 'version' AS of, version_num AS name, xmin::text FROM holdfast.alembic_version
    UNION ALL SELECT 'relation', relname, xmin::text FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace
    UNION ALL SELECT 'function', oid::text, xmin::text FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
    ORDER BY 1, 2"""


async def test_a_migration_gives_way_to_readers_and_is_done_again_after_a_kill(
    tmp_path: Path, empty_database: MakeDatabase
) -> None:
    release = next_release(tmp_path / "next")
    filled, fresh = await empty_database(), await empty_database()
    await schema.upgrade(filled, "0001")
    *_, reached, newest = release.versions
    async with connected(filled) as db:
        await db.execute(FILL)
        await db.execute(WATCH)
        await migrate(release, filled, reached)
        async with db.transaction():
            await db.execute(READ)
            migrating = await start_migration(release, filled)
            await has_given_up_and_waits_again(migrating, db)
            migrating.kill()
            await migrating.wait()
        assert await schema.current(filled) == reached

        await migrate(release, filled)
        assert await schema.current(filled) == newest
        assert [row["lock_timeout"] for row in await db.fetch("SELECT DISTINCT lock_timeout FROM watch.locks")] == [
            TIMEOUT
        ]
        found = await locked(db, release)
        assert found == stated(release)
        assert [version for version, tables in found.items() if len(tables) > MOST_TABLES] == []
        indexed = {table for tables in found.values() for table, mode in tables.items() if mode == "SHARE"}
        assert indexed & GROWING == set(), "an index of a table that grows takes long, but for CONCURRENTLY"

        await migrate(release, fresh)
        assert await list_schema(filled) == await list_schema(fresh)
        assert await db.fetchval("SELECT count(*) FROM holdfast.jobs") > 0
        before = await db.fetch(VERSIONS)
        await migrate(release, filled)
        assert await db.fetch(VERSIONS) == before, "what is done changes nothing"


async def has_given_up_and_waits_again(migrating: asyncio.subprocess.Process, db: Connection) -> None:
    """What it waited for in between, others had."""
    waits: set[object] = set()
    async with asyncio.timeout(60):
        while len(waits) < 2:
            assert migrating.returncode is None, "it did not wait for the reader"
            waits |= {row["waitstart"] for row in await db.fetch(WAITING) if row["waitstart"] is not None}
            await asyncio.sleep(0.005)


async def locked(db: Connection, release: Release) -> dict[str, dict[str, str]]:
    """By migration and table, the strongest of the locks that verbs wait for."""
    found: dict[str, dict[str, str]] = {}
    for row in await db.fetch(LOCKED):
        version = release.versions[release.versions.index(row["after"]) + 1]
        mode = "SHARE" if row["modes"] == ["ShareLock"] else "ACCESS EXCLUSIVE"
        if "AccessExclusiveLock" not in row["modes"] and mode != "SHARE":
            mode = "SHARE ROW EXCLUSIVE"
        found.setdefault(version, {})[row["relation"]] = mode
    return found


def stated(release: Release) -> dict[str, dict[str, str]]:
    """The same, as the migrations after the first say it."""
    return {version: tables for version in release.versions[1:] if (tables := stated_by(release.migration(version)))}


def stated_by(path: Path) -> dict[str, str]:
    """`Locks: none.` or `Locks: jobs SHARE, topics ACCESS EXCLUSIVE.`"""
    lines = re.findall(r"^Locks: (.+)\.$", ast.get_docstring(ast.parse(path.read_text())) or "", re.MULTILINE)
    assert len(lines) == 1, f"{path.name}: its docstring has no line `Locks: none.` or `Locks: <table> <mode>, ….`"
    return dict(part.split(" ", 1) for line in lines if line != "none" for part in line.split(", "))
