"""Streams that become jobs: each micro-batch once, though it is run again after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.topics.config import Policy
from spark import source
from tests.queue.calls import Session, until
from tests.queue.tallies import tallied

ROOT = Path(__file__).parents[2]
PATIENCE = 120  # seconds
DRIVER = """
import sys
from spark.session import session
from tests.spark.test_write_stream import follow
with session("to be killed", master="local[1]") as spark:
    follow(spark, *sys.argv[1:])
"""
# Its commit waits for somebody's lock.
AT_COMMIT = """
    SELECT count(*) > 0 FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'holdfast spark commit' AND wait_event_type = 'Lock'
"""


def follow(spark: SparkSession, folder: str, checkpoint: str, dsn: str, topic: str) -> None:
    """Puts the lines of the folder's files into a topic, a file in each micro-batch, up to the last one."""
    source.register(spark)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(folder).selectExpr("value AS payload")
    options = {"dsn": dsn, "topic": topic, "checkpointLocation": checkpoint}
    query = lines.writeStream.format("holdfast").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE), "it goes on and on"


@pytest.fixture
async def db(connect: Callable[[], Awaitable[Session]]) -> Session:
    return await connect()


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[Policy]]) -> Policy:
    return await make_queue(topic)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    folder.mkdir()
    return folder


async def payloads(db: Session, queue: Policy) -> list[int]:
    found = await db.fetch("SELECT payload FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", queue.topic.name)
    return [int(row["payload"]) for row in found]


async def staged(db: Session, queue: Policy) -> int:
    found: int = await db.fetchval("SELECT count(*) FROM holdfast.staged WHERE topic = $1", queue.topic.name)
    return found


async def test_a_batch_that_is_run_again_changes_nothing(
    spark: SparkSession, db: Session, queue: Policy, database_url: str, folder: Path
) -> None:
    checkpoint = folder.with_name("checkpoint")
    run = (str(folder), str(checkpoint), database_url, queue.topic.name)
    for n in range(2):
        (folder / f"{n}.txt").write_text(f"{n + 1}1\n{n + 1}2\n")
        follow(spark, *run)
    (checkpoint / "commits" / "1").unlink()  # as if the driver had died between its commit and Spark's own note of it
    (checkpoint / "commits" / ".1.crc").unlink()
    (folder / "2.txt").write_text("31\n32\n")
    follow(spark, *run)
    assert await payloads(db, queue) == [11, 12, 21, 22, 31, 32]
    assert await staged(db, queue) == 0
    [written] = await db.fetch(
        "SELECT batch, jobs FROM holdfast.writes WHERE write_id LIKE 'stream %' ORDER BY committed_at DESC LIMIT 1"
    )
    assert tuple(written) == (2, 2)
    assert await tallied(db, queue)


async def test_a_driver_that_dies_between_staging_and_commit(
    spark: SparkSession, connect: Callable[[], Awaitable[Session]], queue: Policy, database_url: str, *, folder: Path
) -> None:
    db, holder = await connect(), await connect()
    run = (str(folder), str(folder.with_name("checkpoint")), database_url, queue.topic.name)
    (folder / "0.txt").write_text("".join(f"{n}\n" for n in range(100)))
    async with holder.transaction():
        await holder.execute("LOCK TABLE holdfast.writes IN SHARE MODE")
        with _driver(*run) as driver:
            await until(lambda: db.fetchval(AT_COMMIT), "all is staged, and the commit waits", PATIENCE)
            for process in _all_of(driver.pid):
                os.kill(process, signal.SIGKILL)
            # PostgreSQL would go on with what it was told by one that is dead.
            await db.execute(AT_COMMIT.replace("count(*) > 0", "pg_terminate_backend(pid, 5000)"))
    assert await payloads(db, queue) == []
    assert await staged(db, queue) == 100
    follow(spark, *run)
    assert await payloads(db, queue) == list(range(100))
    assert await staged(db, queue) == 0
    assert await tallied(db, queue)


@contextmanager
def _driver(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _all_of(pid: int) -> list[int]:
    """The process, and all that it and those have started."""
    listed = subprocess.run(["ps", "-A", "-o", "ppid=,pid="], capture_output=True, text=True, check=True).stdout
    started = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [pid]
    for one in found:
        found += [child for parent, child in started if parent == one]
    return found
