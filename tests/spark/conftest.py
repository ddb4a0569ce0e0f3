"""One Spark session for all tests of spark/, on real tables."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import asyncpg
import httpx
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from app.kernel.topics.policy import Policy
from app.settings import Settings
from spark.session import driver_jar, session
from tests.conftest import Running
from tests.queue.calls import Session
from tests.spark.past import World
from tools.bench.mixed_load import MixedLoad

ALLOW_MISSING = "HOLDFAST_TEST_ALLOW_MISSING"
# Of JVMs that live for seconds: a fifth of their start is the look at whether Spark's own classes are sound.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
# To compile a plan takes longer than to run it on so little. What test_kills.py kills is compiled, as everywhere else.
UNCOMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
LIVED_EVENTS = 4_000


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores, as `python -m spark` has it. Each test reads and writes topics of its own."""
    lacking = [what for what, there in (("java", shutil.which("java")), ("the JDBC driver", driver_jar())) if not there]
    if lacking and os.environ.get(ALLOW_MISSING):
        pytest.skip(f"{' and '.join(lacking)} not installed")
    assert not lacking, f"{' and '.join(lacking)} not installed: ./test says how, or leaves it out by --allow-missing"
    os.environ.setdefault("JAVA_TOOL_OPTIONS", QUICK)  # of those that tests start, too
    with session("tests", master="local[2]") as spark:
        for setting, value in UNCOMPILED.items():
            spark.conf.set(setting, value)
        yield spark


@dataclass(frozen=True, slots=True)
class Lived:
    """A database that a service has worked on and left: `began` and `ended` enclose all that happened there."""

    dsn: str
    events: int  # rows of holdfast.lease_events
    kinds: set[str]  # of them
    began: datetime
    ended: datetime


@pytest.fixture(scope="session")
async def lived(new_database: Callable[[], Awaitable[str]]) -> Lived:
    """Some thousand events of a mixed load, in a database of their own. For reading only."""
    dsn = await new_database()
    database = await asyncpg.connect(dsn)
    began = await database.fetchval("SELECT clock_timestamp()")
    async with serving(dsn) as world:
        await MixedLoad(str(world.http.base_url), batch=12).run(LIVED_EVENTS)
    [found] = await database.fetch(
        "SELECT count(*) AS events, array_agg(DISTINCT event::text) AS kinds, clock_timestamp() AS ended"
        " FROM holdfast.lease_events"
    )
    await database.close()
    return Lived(dsn, found["events"], set(found["kinds"]), began, found["ended"])


@pytest.fixture
async def db(connect: Callable[[], Awaitable[Session]]) -> Session:
    return await connect()


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[Policy]]) -> Policy:
    return await make_queue(topic)


@contextlib.asynccontextmanager
async def serving(dsn: str) -> AsyncIterator[World]:
    """A service on a database."""
    service = Running(Settings.model_validate({"database_url": SecretStr(dsn)}))
    await service.start()
    try:
        async with httpx.AsyncClient(base_url=service.url, timeout=35) as http:
            yield World(dsn, service.context.pools, http)
    finally:
        await service.stop()


@pytest.fixture(scope="module")
async def world(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[World]:
    """A service on a database that no other module's tests look at."""
    async with serving(await new_database()) as world:
        yield world


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.nodeid and {"spark", "lived"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
