"""Streams that become jobs: each micro-batch once, though it is run again after a crash."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from app.kernel.topics.policy import Policy
from tests.queue.calls import Session
from tests.queue.tallies import tallied
from tests.spark.dying import follow


async def test_a_batch_that_is_run_again_changes_nothing(
    spark: SparkSession, db: Session, queue: Policy, database_url: str, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    folder.mkdir()
    run = (str(folder), str(checkpoint), database_url, queue.topic.name)
    for n in range(2):
        (folder / f"{n}.txt").write_text(f"{n + 1}1\n{n + 1}2\n")
        follow(spark, *run)
    (checkpoint / "commits" / "1").unlink()  # as if the driver had died between its commit and Spark's own note of it
    (checkpoint / "commits" / ".1.crc").unlink()
    (folder / "2.txt").write_text("31\n32\n")
    follow(spark, *run)
    topic = queue.topic.name
    jobs = await db.fetch("SELECT payload FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", topic)
    assert [int(job["payload"]) for job in jobs] == [11, 12, 21, 22, 31, 32]
    assert await db.fetchval("SELECT count(*) FROM holdfast.staged WHERE topic = $1", topic) == 0
    [written] = await db.fetch(
        "SELECT batch, jobs FROM holdfast.writes WHERE write_id LIKE 'stream %' ORDER BY committed_at DESC LIMIT 1"
    )
    assert tuple(written) == (2, 2)
    assert await tallied(db, queue)
