"""What a pooler between can take away, and whether that is noticed. `make pgbouncer` tests the API behind one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from app.base.db import schema
from app.base.db.pool import PLANNER, open_pools
from tests.pgbouncer import PgBouncer, hang_settings_on_role

MakeDatabase = Callable[[], Awaitable[str]]


@pytest.fixture(scope="module")
def bouncer(server_url: str) -> Iterator[PgBouncer]:
    made = PgBouncer(server_url)
    made.start()
    yield made
    made.stop()


async def test_settings_that_do_not_arrive_are_told_of(
    bouncer: PgBouncer, empty_database: MakeDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = await empty_database()
    await opened(bouncer.through(url))
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert all(name in told for name in ({*PLANNER, "lock_timeout"} - {"jit"}))  # which the server has off


async def test_those_that_hang_on_the_role_arrive(
    bouncer: PgBouncer, empty_database: MakeDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    url = await empty_database()
    await hang_settings_on_role(url)
    await opened(bouncer.through(url))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_several_may_migrate_at_once_through_two_connections(
    bouncer: PgBouncer, empty_database: MakeDatabase
) -> None:
    direct = await empty_database()
    await hang_settings_on_role(direct)
    url = bouncer.through(direct)
    async with asyncio.timeout(60):
        await asyncio.gather(*(schema.upgrade(url) for _ in range(3)))
    assert await schema.check(url) is False


async def opened(url: str) -> None:
    """Connect as the service does, and leave."""
    pools = await open_pools(url, hot=2, rest=1, prepared_statements=False)
    await pools.close(5)
