"""What migrations hold up: each says what it locks, none waits for long with the others behind it, and one that is
killed is done again. docs/operations/upgrades.md."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from app.db import schema
from tests.stalls import slowness
from tests.upgrades.filled import FILL, LOCKED, SCHEMA, WATCH

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/operations/upgrades.md"
STATED_IN_PAGE = "0048"  # and before; later ones state it themselves
READS_SECONDS = 5.0
GAP_SECONDS = float(os.environ.get("HOLDFAST_TEST_READER_GAP", "1.5"))  # between two of the reader's
STALL_SECONDS = 0.3
CHANCES = 3
HOT = ("jobs", "lease_events", "tallies", "topics")
READ = "SELECT (SELECT count(*) FROM holdfast.jobs), (SELECT count(*) FROM holdfast.lease_events), "
READ += f"(SELECT count(*) FROM holdfast.topics), pg_sleep({READS_SECONDS})"

Stall = tuple[float, str]  # seconds; for which table
WAITING = "SELECT true FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
WAITING += "WHERE NOT l.granted AND d.datname = current_database()"
# Which transaction made each row that a migration may change: the version's, and the catalogue's of the schema.
VERSIONS = """
    SELECT 'version' AS of, version_num AS name, xmin::text FROM holdfast.alembic_version
    UNION ALL SELECT 'relation', relname, xmin::text FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace
    UNION ALL SELECT 'function', oid::text, xmin::text FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
    ORDER BY 1, 2"""

MakeDatabase = Callable[[], Awaitable[str]]


@pytest.fixture
async def make_filled(empty_database: MakeDatabase) -> MakeDatabase:
    """Makes databases that have only been through the first migration, with jobs in them."""

    async def make() -> str:
        url = await empty_database()
        await schema.upgrade(url, "0001")
        async with connected(url) as db:
            await db.execute(FILL)
        return url

    return make


async def test_no_verb_waits_for_long_for_a_migration_that_waits_for_a_reader(make_filled: MakeDatabase) -> None:
    for chance in range(CHANCES):
        url = await make_filled()
        async with connected(url) as db:
            await db.execute(WATCH)
            (alone, _), (worst, table) = await stalls_of_an_upgrade(url)
            allowed = STALL_SECONDS * slowness() + 2 * alone
            print(
                f"the longest wait: {worst * 1000:.0f} ms for {table}; before, {alone * 1000:.0f} ms; "
                f"the bound is {STALL_SECONDS * 1000:.0f} ms, allowed on this machine {allowed * 1000:.0f} ms"
            )
            assert await locked(db) == stated()
        assert worst < READS_SECONDS / 2
        if worst <= allowed:
            break
        # Others may have had the processors.
        assert chance < CHANCES - 1, (alone, worst, table)


async def stalls_of_an_upgrade(url: str) -> tuple[Stall, Stall]:
    """The longest before it, and the longest meanwhile."""
    stalls: list[Stall] = []
    ended = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        reader, *takers = [await stack.enter_async_context(connected(url)) for _ in range(1 + len(HOT))]
        reads = asyncio.create_task(reading(reader))
        takes = [asyncio.create_task(taking(db, table, stalls, ended)) for db, table in zip(takers, HOT, strict=True)]
        try:
            await asyncio.sleep(2)
            alone = max(stalls)
            stalls.clear()
            began = time.monotonic()
            await schema.upgrade(url)
            assert time.monotonic() - began > READS_SECONDS / 2, "nothing had to wait for the reader: it reads nothing"
            return alone, max(stalls)
        finally:
            ended.set()
            reads.cancel()
            await asyncio.wait({reads})
            await asyncio.gather(*takes)


async def test_a_migration_that_is_killed_is_done_again_and_one_that_is_done_changes_nothing(
    make_filled: MakeDatabase, template: str
) -> None:
    filled = await make_filled()
    async with connected(filled) as db:
        for reached in ("0003", "0030"):  # the next ones alter what is read here
            await schema.upgrade(filled, reached)
            async with db.transaction():
                await db.execute("SELECT FROM holdfast.jobs, holdfast.topics LIMIT 1")
                migrating = await alembic(filled)
                async with asyncio.timeout(30):
                    while not await db.fetchval(WAITING):
                        assert migrating.returncode is None
                        await asyncio.sleep(0.005)
                migrating.kill()
                await migrating.wait()
            assert await schema.current(filled) == reached
        await schema.upgrade(filled)
        made = [row[0] for row in await db.fetch(SCHEMA)]
        async with connected(f"{filled.rpartition('/')[0]}/{template}") as other:
            assert made == [row[0] for row in await other.fetch(SCHEMA)]
        assert await db.fetchval("SELECT count(*) FROM holdfast.jobs") > 0
        before = await db.fetch(VERSIONS)
        await schema.upgrade(filled)
        assert await db.fetch(VERSIONS) == before


async def alembic(url: str) -> asyncio.subprocess.Process:
    """`migrate`, as the service starts it."""
    environ = os.environ | {"HOLDFAST_DATABASE_URL": url}
    command = [sys.executable, "-m", "alembic", "-c", str(ROOT / "alembic.ini"), "upgrade", "head"]
    quiet = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environ, stdout=quiet, stderr=quiet)


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def reading(db: Connection) -> None:
    """Long reads of the tables that verbs use, one after the other."""
    while True:
        await db.execute(READ)
        await asyncio.sleep(GAP_SECONDS)


async def taking(db: Connection, table: str, stalls: list[Stall], ended: asyncio.Event) -> None:
    """Take the lock that verbs take, again and again, and note how long that took."""
    while not ended.is_set():
        began = time.monotonic()
        with contextlib.suppress(asyncpg.UndefinedTableError):
            async with db.transaction():
                await db.execute(f"LOCK TABLE holdfast.{table} IN ROW EXCLUSIVE MODE")
        stalls.append((time.monotonic() - began, table))
        await asyncio.sleep(0.005)


async def locked(db: Connection) -> dict[str, dict[str, str]]:
    """By migration and table, the strongest of the locks that verbs wait for."""
    found: dict[str, dict[str, str]] = {}
    for row in await db.fetch(LOCKED):
        version = schema.KNOWN[schema.KNOWN.index(row["after"]) + 1]
        mode = "SHARE" if row["modes"] == ["ShareLock"] else "ACCESS EXCLUSIVE"
        if "AccessExclusiveLock" not in row["modes"] and mode != "SHARE":
            mode = "SHARE ROW EXCLUSIVE"
        found.setdefault(version, {})[row["relation"]] = mode
    return found


def stated() -> dict[str, dict[str, str]]:
    """The same, as the migrations say it."""
    return {version: tables for version in schema.KNOWN[1:] if (tables := stated_by(version))}


def stated_by(version: str) -> dict[str, str]:
    """`Locks: none.` or `Locks: jobs SHARE, topics ACCESS EXCLUSIVE.`, of a migration's docstring or of the page."""
    if version <= STATED_IN_PAGE:
        lines = re.findall(rf"^\| {version} \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    else:
        [path] = ROOT.glob(f"migrations/versions/{version}_*.py")
        lines = re.findall(r"^Locks: (.+)\.$", ast.get_docstring(ast.parse(path.read_text())) or "", re.MULTILINE)
        assert len(lines) == 1, f"{path.name}: its docstring has no line `Locks: none.` or `Locks: <table> <mode>, ….`"
    return dict(part.split(" ", 1) for line in lines if line != "none" for part in line.split(", "))
