"""A database that would lose data is refused before anything is put in, with the reason; each on a real server."""

from __future__ import annotations

import asyncio
import shutil
import struct
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

NewDatabase = Callable[[], Awaitable[str]]
SSL_REQUEST = struct.pack("!ii", 8, 80877103)


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

    async def is_set(to: str) -> None:
        for _ in range(3_000):
            db = await asyncpg.connect(server.url)
            found = await db.fetchval(f"SHOW {setting}")
            await db.close()
            if found == to:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{setting} is not {to}")

    await on(server.url, f"ALTER SYSTEM SET {setting} = {value}", "SELECT pg_reload_conf()")
    await is_set(value)
    yield
    await on(server.url, f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()")
    await is_set("on")


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
        reason = f"PostgreSQL runs with {setting}=off: a crash of the machine can lose or corrupt every job"
        assert (await refusal(safe.url)).startswith(reason)
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
    async with pooler(safe.url) as url, changed(safe, "synchronous_commit", "off"):
        assert await refusal(safe.url) == ""
        assert "synchronous_commit=on get off" in await refusal(url)
    async with pooler(safe.url) as url, changed(safe, "synchronous_commit", "local"):
        assert await refusal(url) == "", "there is no standby to wait for"
        found = await schema.facts(url)
        assert (found.commits, found.standbys) == ("local", False)


async def test_an_encoding_that_can_not_hold_every_text(safe: EmbeddedPostgres) -> None:
    await on(safe.url, "CREATE DATABASE narrow ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    url = urlunsplit(urlsplit(safe.url)._replace(path="/narrow"))
    assert "encoding is LATIN1" in await refusal(url)


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        ("DROP INDEX holdfast.jobs_pending_key", "jobs_pending_key"),
        ("ALTER TABLE holdfast.dedupe DROP CONSTRAINT dedupe_pkey", "dedupe_pkey"),
        (
            "DROP INDEX holdfast.jobs_group_out; CREATE INDEX jobs_group_out ON holdfast.jobs (topic, tenant, grp)",
            "jobs_group_out",
        ),
    ],
)
async def test_a_unique_index_that_is_not_there(loss: str, name: str, new_database: NewDatabase) -> None:
    url = await new_database()
    assert await refusal(url) == ""
    await on(url, loss)
    assert await refusal(url) == f"The unique index holdfast.{name} is missing: docs/schema.sql has it"


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


@asynccontextmanager
async def pooler(url: str) -> AsyncIterator[str]:
    """What PgBouncer does with ignore_startup_parameters = synchronous_commit."""
    parts = urlsplit(url)
    tasks: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (packet := await _packet(reader)) == SSL_REQUEST:
            writer.write(b"N")
        there, onward = await asyncio.open_connection(parts.hostname, parts.port)
        words = packet[8:].rstrip(b"\0").split(b"\0")
        pairs = [pair for pair in zip(words[::2], words[1::2], strict=True) if pair[0] != b"synchronous_commit"]
        body = packet[4:8] + b"".join(name + b"\0" + value + b"\0" for name, value in pairs) + b"\0"
        onward.write(struct.pack("!i", len(body) + 4) + body)
        await asyncio.gather(_pump(reader, onward), _pump(there, writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(relay(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _packet(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack("!i", head)[0] - 4)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
