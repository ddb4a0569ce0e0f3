"""A database that would lose data is refused before anything is put in, with the reason; each on a real server."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.errors import ConfigurationError
from tests.launch import services
from tests.pgbouncer import PgBouncer
from tests.queue.calls import until

NewDatabase = Callable[[], Awaitable[str]]


@pytest.fixture(scope="module")
async def safe() -> AsyncIterator[EmbeddedPostgres]:
    """A server as the service starts its own."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)
    shutil.rmtree(folder, ignore_errors=True)


async def on(url: str, *statements: str) -> None:
    db = await asyncpg.connect(url)
    try:
        for statement in statements:
            await db.execute(statement)
    finally:
        await db.close()


@asynccontextmanager
async def changed(server: EmbeddedPostgres, setting: str, value: str) -> AsyncIterator[None]:
    """The server with another setting, for as long as this is open."""

    async def is_set(to: str) -> bool:
        db = await asyncpg.connect(server.url)
        found = await db.fetchval(f"SHOW {setting}")
        await db.close()
        return bool(found == to)

    await on(server.url, f"ALTER SYSTEM SET {setting} = {value}", "SELECT pg_reload_conf()")
    await until(lambda: is_set(value), f"{setting} is {value}")
    yield
    await on(server.url, f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()")
    await until(lambda: is_set("on"), f"{setting} is on")


async def refusal(url: str) -> str:
    """Why it is refused; empty if it is not."""
    try:
        await schema.check(url)
    except ConfigurationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_what_a_crash_of_the_machine_would_lose(
    setting: str, safe: EmbeddedPostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await refusal(safe.url) == ""
    async with changed(safe, setting, "off"):
        reason = f"PostgreSQL runs with {setting}=off. A crash of the machine can lose or corrupt all jobs"
        assert (await refusal(safe.url)).startswith(reason)
        if setting == "fsync":
            with services(tmp_path) as serve:
                code, line = await asyncio.to_thread(serve(DATABASE_URL=safe.url).refused)
            assert code == 2
            assert line.startswith(f"holdfast: {reason}")

        # Who would not miss it says so to the database, which it goes with.
        name = urlsplit(safe.url).path[1:]
        await on(safe.url, f'ALTER DATABASE "{name}" SET holdfast.may_lose_data = on')
        assert await refusal(safe.url) == ""
        assert reason in caplog.text
        await on(safe.url, f'ALTER DATABASE "{name}" RESET holdfast.may_lose_data')


async def test_a_pooler_that_leaves_out_what_a_session_asks_for(safe: EmbeddedPostgres) -> None:
    """The service asks for synchronous_commit=on in each of its sessions, so a server's default does no harm; unless
    what it asks for does not arrive."""
    bouncer = PgBouncer(safe.url)
    bouncer.start()
    try:
        url = bouncer.through(safe.url)
        async with changed(safe, "synchronous_commit", "off"):
            assert await refusal(safe.url) == ""
            assert "synchronous_commit=on get off" in await refusal(url)
        async with changed(safe, "synchronous_commit", "local"):
            assert await refusal(url) == "", "there is no standby to wait for"
            found = await schema.facts(url)
            assert (found.commits, found.standbys) == ("local", False)
    finally:
        bouncer.stop()


async def test_an_encoding_that_can_not_hold_every_text(safe: EmbeddedPostgres) -> None:
    await on(safe.url, "CREATE DATABASE narrow ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    url = urlunsplit(urlsplit(safe.url)._replace(path="/narrow"))
    assert "encoding is LATIN1" in await refusal(url)


async def test_a_unique_index_that_is_not_there(new_database: NewDatabase) -> None:
    url = await new_database()
    assert await refusal(url) == ""
    missing = "The unique index holdfast.{} is missing. Create it as in docs/schema.sql"
    await on(url, "DROP INDEX holdfast.jobs_pending_key")
    assert await refusal(url) == missing.format("jobs_pending_key")
    not_unique = "CREATE INDEX jobs_group_out ON holdfast.jobs (topic, tenant, grp)"
    await on(url, "ALTER TABLE holdfast.dedupe DROP CONSTRAINT dedupe_pkey")
    await on(url, "DROP INDEX holdfast.jobs_group_out", not_unique)
    said = await refusal(url)
    assert all(missing.format(name) in said for name in ("dedupe_pkey", "jobs_group_out", "jobs_pending_key"))


@pytest.mark.parametrize("under_way", [False, True])
async def test_an_index_that_is_invalid(
    under_way: bool, new_database: NewDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """As a build that failed leaves it. What a REINDEX makes meanwhile is INVALID, too, and nothing is wrong."""
    url, name = await new_database(), "lanes_again_ccnew" if under_way else "lanes_again"
    await on(url, "INSERT INTO holdfast.lanes VALUES ('t', '', 0), ('t', '', 1)")
    with pytest.raises(asyncpg.UniqueViolationError):
        await on(url, f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON holdfast.lanes (topic)")
    said = f"The index holdfast.{name} is INVALID"
    if under_way:
        assert await refusal(url) == ""
        assert said in caplog.text
    else:
        assert (await refusal(url)).startswith(said)


async def test_the_unique_indexes_are_those_that_the_migrations_make(new_database: NewDatabase) -> None:
    db = await asyncpg.connect(await new_database())
    found = await db.fetch(
        """
        SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indisunique AND NOT c.relispartition AND c.relnamespace = 'holdfast'::regnamespace
          AND c.relname <> 'alembic_version_pkc'
        """
    )
    await db.close()
    assert {row["relname"] for row in found} == schema.UNIQUE_INDEXES


@pytest.mark.parametrize(("seconds", "warned"), [(-60, True), (60, True), (-2, False)])
async def test_a_clock_that_is_not_this_machines_is_a_warning(
    seconds: int,
    warned: bool,
    new_database: NewDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real = time.time
    monkeypatch.setattr(schema, "time", SimpleNamespace(time=lambda: real() + seconds))
    assert await refusal(await new_database()) == ""
    assert ("PostgreSQL's clock is" in caplog.text) == warned
    assert ("behind" if seconds > 0 else "ahead of") in caplog.text or not warned


async def test_a_server_in_recovery(safe: EmbeddedPostgres) -> None:
    """The last one here: it is a standby afterwards."""
    await asyncio.to_thread(safe.stop)
    (safe.cluster.data / "standby.signal").touch()
    await asyncio.to_thread(safe.start)
    assert "is a standby in recovery" in await refusal(safe.url)
