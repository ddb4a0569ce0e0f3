"""The pipeline `archive`: days in files, whole and verified, whatever is killed and whoever writes."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.archive import day_partitions
from spark.archive.day_files import MANIFEST, Files
from spark.archive.day_partitions import Part
from spark.folders import Folder
from spark.pipelines import archive
from spark.source import epochs
from tests.api.dialect import Body
from tests.spark import past
from tests.spark.past import World, aside, connected

LONG = ("x:" * 127) + "y"  # a name of 255
NAMES = ["orders", "1e5", "0001", "a:b", LONG]
PAYLOAD = b"\x00\xff\n"


@pytest.fixture(scope="module")
async def day(world: World) -> date:
    """Three jobs in each topic were done two days ago; a fourth one was enqueued today."""
    topics = [await world.topic(name, replayable=True, replay_window_ms=0, result_ttl_ms=0) for name in NAMES]
    for topic in topics:
        records: list[Body] = [
            {"data": {"of": topic.name, "é": None}, "tag": "t", "meta": {"k": "v"}},
            {"data": "text"},
            {"data": {"$base64": "AP8K"}},
        ]
        await world.work(topic, records, [{"ok": topic.name}, None, 3])
    day = await world.move(2)
    for topic in topics:
        await topic.add(1)
    return day


@pytest.fixture
async def folder(tmp_path: Path, world: World) -> Path:
    """Where nothing is yet, in a database without a mark."""
    await world.pools.rest.execute("DELETE FROM holdfast.archived_days")
    return tmp_path / "files"


async def run(spark: SparkSession, world: World, folder: Path, *words: str) -> int:
    return await past.run(archive, spark, world.dsn, "--to", str(folder), *words)


def archived(files: Files, world: World, table: str) -> DataFrame:
    """What is marked of a table, from its files."""
    return files.frame(table, files.days(table, day_partitions.marks(world.dsn)).values())


def attempt(folder: Path, table: str, day: date) -> Path:
    """The only one that there is."""
    [found] = (folder / table / f"day={day}").glob("attempt=*")
    return found


def whole(folder: Path) -> dict[str, int]:
    """Every file, and when it was changed."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


async def test_a_closed_day_is_in_files_as_it_is_in_the_database(
    spark: SparkSession, world: World, day: date, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(spark, world, folder) == 0
    # Enqueued, claimed, acked; what was enqueued today is not there.
    assert await world.marks() == [("archive", day, 15), ("lease_events", day, 45), ("results", day, 10)]
    said = [line.split()[:6] for line in capsys.readouterr().out.splitlines()]
    assert said == [[table, str(day), str(rows), "rows", "5", "topics"] for table, day, rows in await world.marks()]
    files = Files(spark, str(folder))
    events = await aside(archived(files, world, "lease_events").collect)
    counted = Counter((row["topic"], row["event"]) for row in events)
    assert counted == {(name, event): 3 for name in NAMES for event in ("enqueued", "claimed", "acked")}
    jobs = archived(files, world, "archive")
    [odd] = await aside(jobs.where("topic = '1e5' AND content_type LIKE '%octet%'").collect)
    assert bytes(odd["payload"]) == PAYLOAD
    assert odd["finished_at"] == datetime(day.year, day.month, day.day, 1)
    results = await aside(archived(files, world, "results").where(f.col("topic") == LONG).collect)
    assert sorted(row["result"] for row in results) == ["3", json.dumps({"ok": LONG}, separators=(",", ":"))]

    # Folders are topics, and names stay names.
    there = {path.name for path in attempt(folder, "archive", day).iterdir() if path.is_dir()}
    [cut] = there - {"topic=orders", "topic=1e5", "topic=0001", "topic=a%3Ab"}
    assert cut.startswith("topic=x_x_")
    assert len(cut) < 255
    read = spark.read.parquet(str(folder / "archive"))
    assert dict(read.dtypes)["topic"] == "string", "the pipelines' sessions take no name for a number"
    assert {row["topic"] for row in await aside(read.select("topic").distinct().collect)} >= set(NAMES) - {LONG}

    # What is verified is left alone.
    before = whole(folder)
    assert await run(spark, world, folder) == 0
    assert await run(spark, world, folder, "--verify") == 0
    assert whole(folder) == before


@pytest.mark.slow
async def test_what_is_damaged_is_found_and_written_anew(
    spark: SparkSession, world: World, day: date, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in ("results", "archive"):
        await run(spark, world, folder, "--table", table)
    capsys.readouterr()
    orders = next((attempt(folder, "results", day) / "topic=orders").glob("*.parquet"))
    changed = spark.read.parquet(str(orders)).withColumn("node", f.lit("another"))
    changed.coalesce(1).write.parquet(str(folder / "changed"))
    shutil.copy(next((folder / "changed").glob("*.parquet")), orders)
    shutil.rmtree(folder / "changed")
    for crc in orders.parent.glob(".*.crc"):
        crc.unlink()
    next((attempt(folder, "archive", day) / "topic=1e5").glob("*.parquet")).write_bytes(b"no Parquet")
    assert await run(spark, world, folder, "--verify") == 1
    said = capsys.readouterr().out
    assert f"results {day}: the files don't match the manifest; its mark was removed: run again" in said
    assert f"archive {day}: the files don't match the manifest" in said
    assert await world.marks() == [], "so retention keeps them"
    # The database may have fewer rows by now, as archive_overdue.sql deletes them: it goes again, and nothing is lost.
    await world.pools.rest.execute(
        "DELETE FROM holdfast.archive WHERE topic = '0001' AND finished_at < now() - '1 d'::interval"
    )
    assert await run(spark, world, folder, "--table", "archive") == 0
    assert await run(spark, world, folder, "--verify") == 0
    assert await world.marks() == [("archive", day, 12)]
    [aside_at] = (folder / "archive" / f"day={day}").glob(f"_damaged-{day}-*")
    assert list((aside_at / "topic=0001").glob("*.parquet")), "these rows are nowhere else"
    assert list(Files(spark, str(folder)).days("archive", day_partitions.marks(world.dsn))) == [day]


async def test_what_is_written_wrong_is_not_marked(
    spark: SparkSession, world: World, day: date, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Files.write

    def wrong(files: Files, folder: Folder, frame: DataFrame, time: str) -> None:
        right(files, folder, frame.withColumn("deliveries", f.col("deliveries") + 1), time)

    monkeypatch.setattr(Files, "write", wrong)
    with pytest.raises(archive.Skipped, match="the files differed from the database"):
        await aside(archive.archive, spark, world.dsn, Files(spark, str(folder)), Part(day, "results"))
    assert await world.marks() == []
    assert whole(folder) == {}


async def test_a_run_that_stalls_does_no_harm_to_what_another_has_marked_meanwhile(
    spark: SparkSession, world: World, day: date, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, runs = Files.write, count()
    part, files, only = Part(day, "results"), Files(spark, str(folder)), archive.Only(day, "results")

    def stalled(*asked: Any) -> None:
        if next(runs) == 0:
            with connected(world.dsn) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
                    " AND application_name = 'holdfast spark archive' AND datname = current_database()"
                )
                assert archive.run(spark, world.dsn, files, only) == 0
                # As retention drops it: what is marked is in files only.
                other.execute(f"ALTER TABLE holdfast.results DETACH PARTITION holdfast.{part.partition}")
        right(*asked)

    monkeypatch.setattr(Files, "write", stalled)
    try:
        with pytest.raises((archive.Skipped, psycopg.Error)):
            await aside(archive.archive, spark, world.dsn, files, part)
        assert await world.marks() == [("results", day, 10)]
        assert await run(spark, world, folder, "--verify") == 0
        assert await aside(archived(files, world, "results").count) == 10
        attempt(folder, "results", day)
    finally:
        await world.pools.rest.execute(
            f"ALTER TABLE holdfast.results ATTACH PARTITION holdfast.{part.partition}"
            f" FOR VALUES FROM ('{part.start}') TO ('{part.end}')"
        )


async def test_what_attempts_have_left_is_removed_if_none_can_have_marked_it(
    spark: SparkSession, world: World, day: date, folder: Path
) -> None:
    files, part = Files(spark, str(folder)), Part(day, "results")
    with connected(world.dsn) as db:
        ours = epochs.current(db)
    left, finished, others = [
        Path(files.attempt(part, database).path.removeprefix("file:")) for database in (ours, ours, "another")
    ]
    for one in left, finished, others:
        (one / "topic=orders").mkdir(parents=True)
    (finished / MANIFEST).write_text("{}")
    assert await run(spark, world, folder, "--table", "results") == 0
    assert [one.exists() for one in (left, finished, others)] == [False, True, True]
    assert await aside(archived(files, world, "results").count) == 10

    # Also of a day that is marked, whose files stay, though their manifest was lost.
    (left / "topic=orders").mkdir(parents=True)
    [mark] = day_partitions.marks(world.dsn).values()
    marked = Path(mark.location.removeprefix("file:"))
    (marked / MANIFEST).unlink()
    with day_partitions.lock_day(world.dsn, part):
        assert await run(spark, world, folder, "--table", "results") == 0
        assert left.exists(), "another run has the day"
    assert await run(spark, world, folder, "--table", "results") == 0
    assert [one.exists() for one in (left, finished, others)] == [False, True, True]
    assert list(marked.glob("topic=*/*.parquet"))


async def test_folders_without_attempts_and_files_that_were_moved_are_read(
    spark: SparkSession, world: World, day: date, folder: Path
) -> None:
    assert await run(spark, world, folder, "--table", "results") == 0
    part, tomorrow = Part(day, "results"), Part(day + timedelta(days=1), "results")
    [mark] = day_partitions.marks(world.dsn).values()
    shutil.copytree(attempt(folder, "results", day), folder / "results" / f"day={tomorrow.day}")
    plain = day_partitions.Mark(mark.held, f"file:{folder}/results/day={tomorrow.day}")

    async def rows_of(root: Path) -> int:
        files = Files(spark, str(root))
        both = files.days("results", {part: mark, tomorrow: plain})
        assert list(both) == [part.day, tomorrow.day]
        rows: int = await aside(files.frame("results", both.values()).count)
        return rows

    assert await rows_of(folder) == 2 * 10
    moved = folder.rename(folder.with_name("moved"))
    assert await rows_of(moved) == 2 * 10, "marks name the root as it was"


async def test_an_empty_day_is_marked_and_two_runs_share_the_days(
    spark: SparkSession, world: World, day: date, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yesterday = day + timedelta(days=1)
    await world.pools.rest.execute(
        f"CREATE TABLE holdfast.results_{yesterday:%Y%m%d} PARTITION OF holdfast.results"
        f" FOR VALUES FROM ('{yesterday} 00:00:00+00') TO ('{yesterday + timedelta(days=1)} 00:00:00+00')"
    )
    with day_partitions.lock_day(world.dsn, Part(day, "results")):
        assert await run(spark, world, folder, "--table", "results") == 1
    assert f"results {day}: another run is archiving it" in capsys.readouterr().err
    assert await world.marks() == [("results", yesterday, 0)]
    files = Files(spark, str(folder))
    days = files.days("results", day_partitions.marks(world.dsn))
    assert list(days) == [yesterday]
    assert files.frame("results", days.values()).count() == 0
    with pytest.raises(archive.Skipped, match="another run is archiving it"):
        archive.archive(spark, world.dsn, files, Part(yesterday, "results"))
    await world.pools.rest.execute(f"DROP TABLE holdfast.results_{yesterday:%Y%m%d}")


async def test_who_may_still_write_is_waited_for(world: World) -> None:
    await world.topic("letters")
    with connected(world.dsn) as looks, connected(world.dsn) as writes:
        assert day_partitions.wait_for_writers(looks) == []
        with writes.transaction():
            writes.execute("INSERT INTO holdfast.inbox (topic, payload_text) VALUES ('letters', '1')")
            [writer] = await asyncio.to_thread(day_partitions.wait_for_writers, looks, 0.1)
            now = datetime.now(UTC)
            assert writer.may_write_before(now + timedelta(seconds=1))
            assert not writer.may_write_before(now - timedelta(hours=1)), "it began later"
            assert f"pid {writes.info.backend_pid}" in writer.name
        assert await asyncio.to_thread(day_partitions.wait_for_writers, looks) == []


async def test_a_day_is_not_closed_while_a_prepared_transaction_may_write_into_it(
    spark: SparkSession, world: World, day: date, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(world.dsn) as db:
        if db.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
            pytest.skip("the server of HOLDFAST_TEST_DATABASE_URL has max_prepared_transactions = 0")
        db.execute("BEGIN")
        db.execute("INSERT INTO holdfast.inbox (topic, payload_text) VALUES ('orders', '1')")
        db.execute("PREPARE TRANSACTION 'left'")
        try:
            [writer] = await asyncio.to_thread(day_partitions.wait_for_writers, db, 0.1)
            assert writer.name == "prepared transaction left"
            assert writer.may_write_before(datetime.now(UTC) - timedelta(days=9)), "nobody knows when it began"
            monkeypatch.setattr(day_partitions, "PATIENCE_SECONDS", 0.1)
            assert await run(spark, world, folder, "--day", str(day)) == 1
            assert await world.marks() == []
        finally:
            db.execute("ROLLBACK PREPARED 'left'")
        assert await asyncio.to_thread(day_partitions.wait_for_writers, db) == []
