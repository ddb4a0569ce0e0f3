"""docs/spark.md up to its part on writing: its SQL makes a role that only reads, and its Python runs as that role."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from pyspark.sql import SparkSession

from spark.source.tables import TABLES
from tests.conftest import Running
from tests.spark.queries import Query
from tests.spark.test_pages import everything, reader

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/spark.md").read_text().partition("\n## Write jobs\n")[0]
PRINTED = "postgresql://spark_reader:secret@127.0.0.1:5432/holdfast"
SECRETS = "api_keys", "users", "grants", "token_secret", "webhook_secrets", "watches", "audit", "user_events"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
async def service(serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]]) -> Running:
    """On a database of its own, as the page has roles of its own."""
    return await serve(database_url=await new_database())


@pytest.fixture
async def page_reader(service: Running) -> AsyncIterator[str]:
    """The address of the role that the page makes, where a queue and a log have something in them."""
    address = service.context.settings.database_url
    assert address is not None
    url = address.get_secret_value()
    name = urlsplit(url).path[-6:]
    make, look = blocks("sql")
    make = make.replace("holdfast_reader", f"readers_{name}").replace("spark_reader", f"spark_{name}")
    async with httpx.AsyncClient(base_url=service.url) as http:
        settings = {"type": "queue", "replayable": True, "max_deliveries": 1, "dead_letter": "orders.dead"}
        (await http.put("/v0/topics/orders", json=settings)).raise_for_status()
        (await http.put("/v0/topics/log", json={"type": "log"})).raise_for_status()
        for topic in "orders", "log":
            answer = await http.post(f"/v0/topics/{topic}", json={"records": [{"data": n} for n in range(3)]})
            answer.raise_for_status()
        for verb in {"verb": "ack", "results": [{"ok": True}]}, {"verb": "nack", "errors": ["no"]}:
            claimed = (await http.post("/v0/topics/orders/claim", json={"node": "w"})).json()["claimed"]
            seqs = [job["$seq"] for job in claimed]
            await http.post(f"/v0/topics/orders/{verb.pop('verb')}", json={"node": "w", "seqs": seqs, **verb})
    owner = await asyncpg.connect(url)
    await owner.execute(make)
    parts = urlsplit(url)
    dsn = parts._replace(netloc=f"spark_{name}:secret@{parts.hostname}:{parts.port}").geturl()
    mine = await asyncpg.connect(dsn)
    assert [tuple(row) for row in await mine.fetch(look)] == [("orders", "ready", 1)]
    await mine.close()
    yield dsn
    await owner.execute(f"DROP OWNED BY readers_{name}, spark_{name}; DROP ROLE readers_{name}, spark_{name}")
    await owner.close()


async def test_the_role_reads_all_that_there_is_to_read(page_reader: str) -> None:
    found = {name: len(everything(reader(page_reader, name))) for name in TABLES}
    assert found == {"jobs": 2, "dead_letters": 1, "records": 3, "lease_events": 8, "results": 1, "archive": 1}
    for options in {"table": "lease_events"}, {"table": "records", "topic": "log"}:
        query = Query(page_reader, starting="earliest", **options)
        query.drain_now()
        assert len(query.rows) == found[options["table"]]


async def test_the_role_writes_nothing_and_sees_no_secret(page_reader: str) -> None:
    mine = await asyncpg.connect(page_reader)
    for view, count in ("messages", 2), ("job_states", 2), ("dead_letters", 1):
        assert await mine.fetchval(f"SELECT count(*) FROM holdfast.{view}") == count
    for table in SECRETS:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await mine.fetch(f"SELECT * FROM holdfast.{table}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await mine.fetch("SELECT webhook FROM holdfast.topics")
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await mine.execute("DELETE FROM holdfast.jobs")
    await mine.execute("SET default_transaction_read_only = off")
    for write in "DELETE FROM holdfast.jobs", "SELECT holdfast.enqueue('orders', '1'::text)":
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await mine.execute(write)
    await mine.close()


async def test_its_python_runs_as_it_stands(spark: SparkSession, page_reader: str, tmp_path: Path) -> None:
    found = blocks("python")
    assert len(found) == 2
    names = {"spark": spark, "folder": str(tmp_path)}
    for block in found:
        assert PRINTED not in block or block.count(PRINTED) == 1
        await asyncio.to_thread(exec, block.replace(PRINTED, page_reader), names)
    assert spark.read.parquet(str(tmp_path / "events")).count() == 7
