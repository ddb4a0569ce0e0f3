"""What an error of the database's means for a caller: it is told what is wrong, as far as the database says so."""

from __future__ import annotations

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.base.outages import as_unavailable


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("53100", "The database's disk is full. Try again."),
        ("53200", "The database is out of memory. Try again."),
        ("53300", "The database has no connection left. Try again."),
        ("25006", "The database is read-only right now. Try again."),
        ("55P03", "The database took too long. Try again."),
        ("57P01", "The database can't be reached right now. Try again."),
        ("40P01", None),
        ("P0001", None),
    ],
)
async def test_what_the_database_lacks_is_what_is_said(pools: Pools, code: str, told: str | None) -> None:
    with pytest.raises(asyncpg.PostgresError) as raised:
        await pools.rest.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")
    shown = as_unavailable(raised.value)
    assert (shown and shown.message) == told
    assert shown is None or (shown.status, shown.code, shown.retry_after) == (503, "not_ready", 1)


async def test_a_database_that_is_read_only_says_so_itself(pools: Pools) -> None:
    async with pools.rest.acquire() as db, db.transaction(readonly=True):
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError) as raised:
            await db.execute("DELETE FROM holdfast.jobs WHERE topic = 'none'")
    shown = as_unavailable(raised.value)
    assert shown is not None
    assert shown.message.startswith("The database is read-only")
