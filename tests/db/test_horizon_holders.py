"""Holders that need a server with settings of its own: prepared transactions, slots and standbys."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from app.base.db import health
from app.base.db.embedded import EmbeddedPostgres
from app.base.db.health import HolderKind, HorizonHolder
from app.base.db.programs import Launcher, system_account
from tests.queue.calls import Session, until

SETTINGS = {
    "max_prepared_transactions": "5",
    "wal_level": "logical",
    "hot_standby_feedback": "on",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
async def primary(folder: Path) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(folder / "primary", unsafe_fast=True)
    db = await asyncpg.connect(await asyncio.to_thread(server.start))
    for name, value in SETTINGS.items():
        await db.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    await db.close()
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


@pytest.fixture(scope="module")
async def standby(folder: Path, primary: EmbeddedPostgres) -> AsyncIterator[EmbeddedPostgres]:
    """A hot standby with feedback, on the slot 'standby'."""
    await asyncio.to_thread(_copy, primary, folder / "standby")
    server = EmbeddedPostgres(folder / "standby", unsafe_fast=True)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


def _copy(primary: EmbeddedPostgres, folder: Path) -> None:
    folder.mkdir()
    data = folder / primary.cluster.data.name
    data.mkdir(0o700)
    shutil.copy(primary.cluster.password, folder)
    account = system_account()
    if account.uid is not None and account.gid is not None:
        for path in (data, folder / primary.cluster.password.name):
            os.chown(path, account.uid, account.gid)
    launcher = Launcher()
    command: list[str | Path] = [primary.cluster.programs.bindir / "pg_basebackup", "-D", data, "-d", primary.url]
    backup = launcher.program([*command, "-R", "-C", "-S", "standby", "-c", "fast", "--no-sync"], subprocess.PIPE)
    words = backup.communicate(timeout=60)[0]
    launcher.close()
    assert backup.returncode == 0, words


@pytest.fixture
async def db(primary: EmbeddedPostgres) -> AsyncIterator[Session]:
    connection = await asyncpg.connect(primary.url)
    yield connection
    await connection.close()


async def holders(db: Session, kind: HolderKind) -> list[HorizonHolder]:
    return [holder for holder in (await health.read_horizon(db)).holders if holder.kind is kind]


async def until_behind(db: Session, kind: HolderKind) -> HorizonHolder:
    """Wait until the one holder of this kind has stood still over ten transactions."""

    async def behind() -> bool:
        await db.execute("SELECT pg_current_xact_id()")
        return any(holder.xmin_age > 10 for holder in await holders(db, kind))

    await until(behind, f"a {kind} holds the horizon")
    (holder,) = await holders(db, kind)
    return holder


async def test_a_prepared_transaction_is_told_until_it_is_rolled_back(primary: EmbeddedPostgres, db: Session) -> None:
    other = await asyncpg.connect(primary.url)
    await other.execute("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'it''s; mine'")
    await other.close()
    (holder,) = await holders(db, HolderKind.PREPARED)
    assert (holder.name, holder.user, holder.pid) == ("it's; mine", "holdfast", None)
    assert holder.age_s is not None
    assert holder.command is not None
    await db.execute(holder.command)
    assert await holders(db, HolderKind.PREPARED) == []


async def test_a_logical_slot_keeps_no_rows_of_ours(db: Session) -> None:
    await db.execute("SELECT pg_create_logical_replication_slot('changes', 'pgoutput')")
    assert await db.fetchval("SELECT catalog_xmin IS NOT NULL FROM pg_replication_slots")
    assert await holders(db, HolderKind.SLOT) == []
    await db.execute("SELECT pg_drop_replication_slot('changes')")


async def test_a_scrape_shows_the_standby_and_its_slot(standby: EmbeddedPostgres, db: Session) -> None:
    async def both() -> bool:
        shown = {(family.name, labels) for family, labels, _ in await health.read_samples(db)}
        names = {name for name, _ in shown}
        return ("database_slot_bytes", ("standby",)) in shown and "database_standby_behind_bytes" in names

    await until(both, "the standby follows")
    there = await asyncpg.connect(standby.url)
    names = {family.name for family, _, _ in await health.read_samples(there)}
    await there.close()
    assert "database_bytes" in names
    assert "database_wal_bytes" not in names, "it writes none"


async def test_a_query_on_a_standby_holds_it_by_its_slot_or_by_its_connection(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, db: Session
) -> None:
    reader = await asyncpg.connect(standby.url)
    await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    slot = await until_behind(db, HolderKind.SLOT)
    assert (slot.name, slot.state, slot.age_s, slot.command) == ("standby", "active", None, None)
    assert slot.pid is not None
    assert "hot_standby_feedback" in slot.advice

    admin = await asyncpg.connect(standby.url)
    await admin.execute("ALTER SYSTEM SET primary_slot_name = ''")
    await admin.execute("SELECT pg_reload_conf()")
    await admin.close()
    connection = await until_behind(db, HolderKind.STANDBY)
    assert (connection.application, connection.name) == ("holdfast", None)

    # A slot that its standby has left keeps what it last asked for.
    (left,) = await holders(db, HolderKind.SLOT)
    assert (left.pid, left.state) == (None, "inactive")
    assert left.command is not None
    await db.execute(left.command)
    assert await holders(db, HolderKind.SLOT) == []

    reader.terminate()
    await asyncio.to_thread(standby.stop)

    async def gone() -> bool:
        return await holders(db, HolderKind.STANDBY) == []

    await until(gone, "the standby is gone")
