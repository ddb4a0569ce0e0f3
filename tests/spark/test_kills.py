"""Pipelines that are killed where it hurts, by SIGKILL, and run again: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.archive import day_partitions
from spark.archive.day_files import MANIFEST, Files
from spark.archive.day_partitions import Part
from spark.pipelines import archive, replay
from spark.windows import Window
from tests.processes import until
from tests.spark.past import World, aside, connected

ROOT = Path(__file__).parents[2]
SECONDS = 120
JOBS = 40


@pytest.fixture(scope="module")
async def day(world: World) -> date:
    source = await world.topic("source", replayable=True, replay_window_ms=0, result_ttl_ms=0)
    await world.work(source, [{"data": n} for n in range(JOBS)], list(range(JOBS)))
    await world.topic("target")
    return await world.move(2)


@contextmanager
def running(world: World, *words: str) -> Iterator[Callable[[Callable[[], object]], None]]:
    """A pipeline in a process of its own; what is yielded kills it, and its JVM with it, once a fact is the case."""
    command = [sys.executable, "-m", "spark", "--dsn", world.dsn, "--master", "local[2]", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:

        def kill_once(fact: Callable[[], object]) -> None:
            until(lambda: fact() or process.poll() is not None, SECONDS)
            assert process.poll() is None, "it ended by itself"
            os.killpg(process.pid, signal.SIGKILL)

        yield kill_once
        process.wait(SECONDS)


def killed(world: World, words: tuple[str, ...], lock: str, purpose: str) -> None:
    """Run a pipeline until it waits for what is locked here, and kill it there."""
    with connected(world.dsn) as holder, connected(world.dsn) as looks:
        waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
        with running(world, *words) as kill_once, holder.transaction():
            holder.execute(lock)
            kill_once(lambda: looks.execute(waits, [f"holdfast spark {purpose}"]).fetchone() != (0,))
        # The server ends what it was asked, or finds that nobody asks any more: either way that is over.
        there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        until(lambda: looks.execute(there, [f"holdfast spark {purpose}"]).fetchone() == (0,), SECONDS)


@dataclass(frozen=True, slots=True)
class Deaths:
    """Both pipelines, killed side by side: what takes time is the start of their JVMs."""

    folder: Path
    of_archive: asyncio.Task[None]
    of_replay: asyncio.Task[None]


@pytest.fixture(scope="module")
async def deaths(world: World, day: date, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deaths]:
    folder = tmp_path_factory.mktemp("killed") / "files"
    threads = [asyncio.to_thread(archive_dies, world, folder), asyncio.to_thread(replay_dies, world, day)]
    tasks = [asyncio.create_task(thread) for thread in threads]
    yield Deaths(folder, *tasks)
    await asyncio.gather(*tasks)


def archive_dies(world: World, folder: Path) -> None:
    """Where it marks: every file of rows is there, and what says that they are whole is not."""
    words = ("archive", "--to", str(folder), "--table", "results")
    killed(world, words, "LOCK TABLE holdfast.archived_days IN SHARE MODE", "archive")


def replay_dies(world: World, day: date) -> None:
    """In its commit."""
    words = ("replay", "--topic", "source", "--into", "target", "--day", str(day))
    killed(world, words, "LOCK TABLE holdfast.writes IN SHARE MODE", "commit")


async def test_an_archive_that_is_killed_before_it_marks(
    spark: SparkSession, world: World, day: date, deaths: Deaths
) -> None:
    await deaths.of_archive
    assert await world.marks() == []
    assert list(deaths.folder.rglob(MANIFEST)) == []
    assert len(list(deaths.folder.rglob("attempt=*"))) == 1

    files = Files(spark, str(deaths.folder))
    only = archive.Only(table="results")
    assert await aside(archive.run, spark, world.dsn, files, only) == 0
    assert await world.marks() == [("results", day, JOBS)]
    assert len(list(deaths.folder.rglob("attempt=*"))) == 1, "what the first has left is gone"
    assert await aside(archive.verify, world.dsn, files) == 0
    there = files.days("results", day_partitions.marks(world.dsn)).values()
    results = await aside(files.frame("results", there).select("result").collect)
    assert sorted(int(row["result"]) for row in results) == list(range(JOBS))


async def test_a_replay_that_is_killed_at_its_commit_brings_each_job_once(
    spark: SparkSession, world: World, day: date, deaths: Deaths
) -> None:
    await deaths.of_replay
    payloads = "SELECT convert_from(payload, 'UTF8')::integer FROM holdfast.jobs WHERE topic = 'target' ORDER BY 1"
    assert len(await world.rows(payloads)) in (0, JOBS), "all or nothing"
    part = Part(day, "archive")
    asked = replay.Asked("source", "target", Window(part.start, part.end))
    for _ in range(2):
        assert await aside(replay.run, spark, world.dsn, asked) == 0
    assert await world.rows(payloads) == [(n,) for n in range(JOBS)]
