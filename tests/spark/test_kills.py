"""Pipelines and a stream, killed where it hurts by SIGKILL and run again: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from spark.archive import day_partitions
from spark.archive.day_files import MANIFEST, Files
from spark.archive.day_partitions import Part
from spark.pipelines import archive, replay
from spark.windows import Window
from tests.processes import until
from tests.queue.tallies import are_tallied
from tests.spark.dying import follow
from tests.spark.past import World, aside, connected

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": str(ROOT)}
SECONDS = 240
JOBS, LINES = 40, 100
SESSIONS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'holdfast spark %'"
THERE = {"holdfast spark archive": 1, "holdfast spark commit": 2}


@pytest.fixture(scope="module")
async def day(world: World) -> date:
    source = await world.topic("source", replayable=True, replay_window_ms=0, result_ttl_ms=0)
    await world.work(source, [{"data": n} for n in range(JOBS)], list(range(JOBS)))
    await world.topic("target")
    return await world.move(2)


@dataclass(frozen=True, slots=True)
class Died:
    """What three writes have left that were killed side by side. The archive was about to mark: every file of rows is
    there, and what says that they are whole is not. The replay and the stream had staged all, and were about to commit.
    """

    files: Path
    lines: Path
    checkpoint: Path


@pytest.fixture(scope="module")
async def died(world: World, day: date, tmp_path_factory: pytest.TempPathFactory) -> Died:
    folder = tmp_path_factory.mktemp("killed")
    died = Died(folder / "files", folder / "lines", folder / "checkpoint")
    died.lines.mkdir()
    (died.lines / "0.txt").write_text("".join(f"{n}\n" for n in range(LINES)))
    await world.topic("lines")
    await asyncio.to_thread(kill, world, day, died)
    return died


def kill(world: World, day: date, died: Died) -> None:
    """Run them until they wait for what is locked here, and kill them there, with their JVM."""
    pipelines = [
        ["archive", "--to", str(died.files), "--table", "results"],
        ["replay", "--topic", "source", "--into", "target", "--day", str(day)],
    ]
    asked = [[["--dsn", world.dsn, *words] for words in pipelines], stream(world, died)]
    command = [sys.executable, "-m", "tests.spark.dying", json.dumps(asked)]
    with connected(world.dsn) as looks, connected(world.dsn) as holder, holder.transaction():
        holder.execute("LOCK TABLE holdfast.archived_days, holdfast.writes IN SHARE MODE")
        there = partial(waiting, looks)
        with subprocess.Popen(command, cwd=ROOT, env=ENV, stdout=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                until(lambda: there() == THERE or process.poll() is not None, SECONDS, or_show=there)
                assert process.poll() is None, "it ended by itself"
            finally:
                os.killpg(process.pid, signal.SIGKILL)
        # PostgreSQL would go on with what it was told by those that are dead.
        looks.execute(f"SELECT pg_terminate_backend(pid, 5000) {SESSIONS}")
        until(lambda: looks.execute(f"SELECT pid {SESSIONS}").fetchall() == [], SECONDS)


def waiting(db: psycopg.Connection[tuple[Any, ...]]) -> dict[str, int]:
    """How many sessions of Spark wait for a lock, by their names."""
    waits = f"SELECT application_name, count(*) {SESSIONS} AND wait_event_type = 'Lock' GROUP BY 1"
    return dict(db.execute(waits).fetchall())


def stream(world: World, died: Died) -> list[str]:
    return [str(died.lines), str(died.checkpoint), world.dsn, "lines"]


@pytest.mark.slow
async def test_an_archive_that_is_killed_before_it_marks(
    spark: SparkSession, world: World, day: date, died: Died
) -> None:
    assert await world.marks() == []
    assert list(died.files.rglob(MANIFEST)) == []
    assert len(list(died.files.rglob("attempt=*"))) == 1

    files = Files(spark, str(died.files))
    only = archive.Only(table="results")
    assert await aside(archive.run, spark, world.dsn, files, only) == 0
    assert await world.marks() == [("results", day, JOBS)]
    assert len(list(died.files.rglob("attempt=*"))) == 1, "what the first has left is gone"
    assert await aside(archive.verify, world.dsn, files) == 0
    there = files.days("results", day_partitions.marks(world.dsn)).values()
    results = await aside(files.frame("results", there).select("result").collect)
    assert sorted(int(row["result"]) for row in results) == list(range(JOBS))


@pytest.mark.slow
async def test_a_replay_that_is_killed_at_its_commit_brings_each_job_once(
    spark: SparkSession, world: World, day: date, died: Died
) -> None:
    assert await world.payloads("target") == []
    part = Part(day, "archive")
    asked = replay.Request("source", "target", Window(part.start, part.end))
    for _ in range(2):
        assert await aside(replay.run, spark, world.dsn, asked) == 0
    assert sorted(map(int, await world.payloads("target"))) == list(range(JOBS))


@pytest.mark.slow
async def test_a_stream_that_is_killed_between_staging_and_commit(
    spark: SparkSession, world: World, died: Died
) -> None:
    staged = "SELECT count(*) FROM holdfast.staged WHERE topic = 'lines'"
    assert await world.payloads("lines") == []
    assert await world.rows(staged) == [(LINES,)]
    await aside(follow, spark, *stream(world, died))
    assert list(map(int, await world.payloads("lines"))) == list(range(LINES))
    assert await world.rows(staged) == [(0,)]
    [(topic_id,)] = await world.rows("SELECT id FROM holdfast.topics WHERE name = 'lines'")
    async with world.pools.rest.acquire() as db:
        assert await are_tallied(db, "lines", topic_id)
