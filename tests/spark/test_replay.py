"""The pipeline `replay`: archived jobs once more, each once, from the database and from files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.archive import day_partitions
from spark.archive.day_files import Files
from spark.errors import Mistake
from spark.pipelines import archive, replay
from tests.api.dialect import Body
from tests.spark.past import World, aside, run

JOBS: list[Body] = [
    {"data": {"n": 0}, "tag": "t", "meta": {"k": "v"}, "priority": 3},
    {"data": "text ü", "tenant": "acme"},
    {"data": {"$base64": "AP8K"}},
    {"data": {"n": 3}, "key": "a"},
    {"data": {"n": 4}, "key": "b"},
    {"data": {"n": 5}, "group": "g"},
]


@pytest.fixture(scope="module")
async def day(world: World) -> date:
    """Two days ago JOBS were done, and the key `a` once more; today one job is."""
    source = await world.topic("source", replayable=True, replay_window_ms=0)
    await world.work(source, JOBS)
    await world.work(source, [{"data": {"n": 6}, "key": "a"}])
    day = await world.move(2)
    await world.work(source, [{"data": "today"}])
    return day


async def replayed(spark: SparkSession, world: World, *words: str) -> int:
    return await run(replay, spark, world.dsn, "--topic", "source", *words)


async def taken(world: World, name: str) -> list[Body]:
    """All jobs of a topic, claimed."""
    jobs: list[Body] = (await (await world.topic(name)).claim(max=100))["claimed"]
    return jobs


def data(jobs: list[Body]) -> list[Any]:
    return sorted((job["data"] for job in jobs), key=str)


# Of the key `a` the last one.
ONCE = sorted([{"n": 0}, "text ü", {"$base64": "AP8K"}, {"n": 4}, {"n": 5}, {"n": 6}], key=str)


async def test_a_day_is_replayed_once(
    spark: SparkSession, world: World, day: date, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.topic("target")
    words = ("--day", str(day), "--into", "target")
    assert await replayed(spark, world, *words, "--dry-run") == 0
    assert "7 jobs; 6 would be enqueued, 1 not, because a later one has their key" in capsys.readouterr().out
    assert await taken(world, "target") == []
    assert await replayed(spark, world, *words) == 0
    assert "enqueued 6 jobs at " in capsys.readouterr().out
    assert await replayed(spark, world, *words) == 0
    assert "nothing to do: this was replayed before, 6 jobs at " in capsys.readouterr().out

    jobs = await taken(world, "target")
    assert data(jobs) == ONCE
    first = next(job for job in jobs if job["data"] == {"n": 0})
    assert (first["$tag"], first["meta"]) == ("t", {"k": "v"})
    kept = await world.rows(
        "SELECT tenant, key, grp, priority, content_type, encode(payload, 'hex') FROM holdfast.jobs"
        " WHERE topic = 'target' ORDER BY seq"
    )
    # In the order in which they were completed; what one ack completed is in the order of its seqs.
    assert [row[:4] for row in kept] == [
        ("", None, None, 3), ("acme", None, None, 0), ("", None, None, 0), ("", "b", None, 0), ("", None, "g", 0),
        ("", "a", None, 0),
    ]  # fmt: skip
    assert kept[2][4:] == ("application/octet-stream", "00ff0a")


async def test_part_of_it_and_once_more_on_purpose(spark: SparkSession, world: World, day: date) -> None:
    await world.topic("part")
    words = ("--day", str(day), "--into", "part", "--where", "get_json_object(string(payload), '$.n') >= 5")
    for name in ("one", "one", "two"):
        assert await replayed(spark, world, *words, "--run", name) == 0
    # The group's second job waits for its first; of the key there is one.
    assert data(await taken(world, "part")) == [{"n": 5}, {"n": 6}]
    assert await world.rows("SELECT count(*) FROM holdfast.jobs WHERE topic = 'part'") == [(3,)]
    with pytest.raises(Mistake, match=r"--where nothing = 1:.*nothing"):
        await replayed(spark, world, *words[:4], "--where", "nothing = 1")


async def test_equal_payloads_come_one_by_one_in_a_fifo_topic(
    spark: SparkSession, world: World, day: date, capsys: pytest.CaptureFixture[str]
) -> None:
    same = await world.topic("same", replayable=True, replay_window_ms=0)
    for _ in range(2):
        await world.work(same, [{"data": "same", "group": "g"}])
    await world.topic("same.fifo")
    words = ("--topic", "same", "--from", str(day), "--to", datetime.now(UTC).isoformat(), "--into", "same.fifo")
    for name in ("one", "two"):
        assert await replayed(spark, world, *words, "--run", name) == 0
        assert "enqueued 2 jobs at " in capsys.readouterr().out
    assert await world.rows("SELECT count(*) FROM holdfast.jobs WHERE topic = 'same.fifo'") == [(4,)]


async def test_what_can_not_be_replayed_is_refused(spark: SparkSession, world: World, day: date) -> None:
    for words, why in (
        (("--from", str(day)), "give the end"),
        (("--from", str(day), "--to", "2999-01-01"), "the window ends at"),
        (("--day", str(day), "--into", "none"), "there is no topic .none"),
        (("--day", "2026-01-01"), "nothing is kept of"),
    ):
        with pytest.raises(Mistake, match=why):
            await replayed(spark, world, *words)


async def test_days_come_from_files_and_what_has_none_from_the_database(
    spark: SparkSession, world: World, day: date, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.topic("both")
    files = Files(spark, str(tmp_path / "files"))
    assert await aside(archive.run, spark, world.dsn, files, archive.Only(day, "archive")) == 0
    words = ("--from", str(day), "--to", datetime.now(UTC).isoformat(), "--into", "both")
    assert await replayed(spark, world, *words, "--dry-run") == 0
    [mark] = day_partitions.marks(world.dsn).values()
    assert f"{day} is read from the database; {mark.location} may have more" in (said := capsys.readouterr().out)
    assert "8 jobs; 7 would be" in said
    assert await world.rows("SELECT (holdfast.drop_day_partitions('archive', 0, true)).gone") == [(1,)]
    with pytest.raises(Mistake, match=f"{day} is only in files at file:"):
        await replayed(spark, world, *words)
    assert await replayed(spark, world, *words, "--from-files", str(tmp_path / "files")) == 0
    assert "in files: 1 days, in the database: 1" in capsys.readouterr().out
    assert data(await taken(world, "both")) == sorted([*ONCE, "today"], key=str)
