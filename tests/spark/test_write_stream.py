"""Streams that become jobs: each micro-batch once, though it is run again after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.kernel.topics.policy import Policy
from tests.queue.calls import Session
from tests.queue.tallies import tallied
from tests.spark.dying import follow


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
