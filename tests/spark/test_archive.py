"""The pipeline `archive`: days in files, whole and verified, whatever is killed and whoever writes."""

from __future__ import annotations

import asyncio
import json
import shutil
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
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
from tests.spark.past import World, aside, connected

LONG = ("x:" * 127) + "y"  # a name of 255
NAMES = ["orders", "2026-11-21", "1e5", "0001", "true", "a:b", LONG]
PAYLOAD = b"\x00\xff\n"


@pytest.fixture(scope="module")
async def day(world: World) -> date:
    """Three jobs in each topic were done two days ago; a fourth one was enqueued today."""
    for name in NAMES:
        topic = await world.topic(name, replayable=True, replay_window_ms=0, result_ttl_ms=0)
        records: list[Body] = [
            {"data": {"of": name, "é": None}, "tag": "t", "meta": {"k": "v"}},
            {"data": "text"},
            {"data": {"$base64": "AP8K"}},
        ]
        await world.work(topic, records, [{"ok": name}, None, 3])
    day = await world.move(2)
    for name in NAMES:
        await (await world.topic(name, replayable=True, replay_window_ms=0, result_ttl_ms=0)).add(1)
    return day


@pytest.fixture
async def folder(tmp_path: Path, world: World) -> Path:
    """Where nothing is yet, in a database without a mark."""
    await world.pools.rest.execute("DELETE FROM holdfast.archived_days")
    return tmp_path / "files"


async def run(spark: SparkSession, world: World, folder: Path, *words: str) -> int:
    code: int = await aside(archive_run, spark, world.dsn, folder, words)
    return code


def archive_run(spark: SparkSession, dsn: str, folder: Path, words: tuple[str, ...]) -> int:
    parser = ArgumentParser()
    archive.arguments(parser)
    return archive.main(spark, dsn, parser.parse_args(["--to", str(folder), *words]))


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
    assert await world.marks() == [("archive", day, 21), ("lease_events", day, 63), ("results", day, 14)]
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:7] for line in said] == [
        [table, str(day), rows, "rows", "7", "topics", line.split()[6]]
        for (table, rows), line in zip(
            [("archive", "21"), ("lease_events", "63"), ("results", "14")], said, strict=True
        )
    ]
    files, marks = Files(spark, str(folder)), day_partitions.marks(world.dsn)
    events = files.frame("lease_events", files.days("lease_events", marks).values())
    counted = Counter((row["topic"], row["event"]) for row in await aside(events.collect))
    assert counted == {(name, event): 3 for name in NAMES for event in ("enqueued", "claimed", "acked")}
    [odd] = await aside(
        files.frame("archive", files.days("archive", marks).values())
        .where("topic = '1e5' AND content_type LIKE '%octet%'")
        .collect
    )
    assert bytes(odd["payload"]) == PAYLOAD
    assert odd["finished_at"] == datetime(day.year, day.month, day.day, 1)
    results = files.frame("results", files.days("results", marks).values()).where(f.col("topic") == LONG)
    results = await aside(results.collect)
    assert sorted(row["result"] for row in results) == ["3", json.dumps({"ok": LONG}, separators=(",", ":"))]

    # Folders are topics, and names stay names.
    there = {path.name for path in attempt(folder, "archive", day).iterdir() if path.is_dir()}
    [cut] = there - {"topic=orders", "topic=2026-11-21", "topic=1e5", "topic=0001", "topic=true", "topic=a%3Ab"}
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
    assert f"results {day}: the files are not what the manifest says; not marked any more: run again" in said
    assert f"archive {day}: the files are not what the manifest says" in said
    assert await world.marks() == [], "so retention keeps them"
    # The database may have fewer rows by now, as archive_overdue.sql deletes them: it goes again, and nothing is lost.
    await world.pools.rest.execute(
        "DELETE FROM holdfast.archive WHERE topic = 'true' AND finished_at < now() - '1 d'::interval"
    )
    assert await run(spark, world, folder, "--table", "archive") == 0
    assert await run(spark, world, folder, "--verify") == 0
    assert await world.marks() == [("archive", day, 18)]
    [aside_at] = (folder / "archive" / f"day={day}").glob(f"_damaged-{day}-*")
    assert list((aside_at / "topic=true").glob("*.parquet")), "these rows are nowhere else"
    assert list(Files(spark, str(folder)).days("archive", day_partitions.marks(world.dsn))) == [day]


async def test_what_is_written_wrong_is_not_marked(
    spark: SparkSession, world: World, day: date, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Files.write

    def wrong(files: Files, folder: Folder, frame: DataFrame, time: str) -> None:
        right(files, folder, frame.withColumn("deliveries", f.col("deliveries") + 1), time)

    monkeypatch.setattr(Files, "write", wrong)
    with pytest.raises(archive.Left, match="what was read back is not what the database has"):
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
        with pytest.raises((archive.Left, psycopg.Error)):
            await aside(archive.archive, spark, world.dsn, files, part)
        assert await world.marks() == [("results", day, 14)]
        assert await run(spark, world, folder, "--verify") == 0
        there = files.days("results", day_partitions.marks(world.dsn))
        assert await aside(files.frame("results", there.values()).count) == 14
        assert attempt(folder, "results", day) == Path(there[day].folder.path.removeprefix("file:"))
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
    there = files.days("results", day_partitions.marks(world.dsn))
    assert await aside(files.frame("results", there.values()).count) == 14

    # Also of a day that is marked: of a run that stalled, and was killed when another one had marked it. What is marked
    # stays, though its manifest was lost.
    (left / "topic=orders").mkdir(parents=True)
    marked = Path(there[day].folder.path.removeprefix("file:"))
    (marked / MANIFEST).unlink()
    with day_partitions.marking(world.dsn, part):
        assert await run(spark, world, folder, "--table", "results") == 0
        assert left.exists(), "another run has the day"
    assert await run(spark, world, folder, "--table", "results") == 0
    assert [one.exists() for one in (left, finished, others)] == [False, True, True]
    assert list(marked.glob("topic=*/*.parquet"))


async def test_what_earlier_versions_wrote_is_read_beside_what_this_one_writes(
    spark: SparkSession, world: World, day: date, folder: Path
) -> None:
    assert await run(spark, world, folder, "--table", "results") == 0
    files, part = Files(spark, str(folder)), Part(day, "results")
    [mark] = day_partitions.marks(world.dsn).values()
    tomorrow = Part(day + timedelta(days=1), "results")
    shutil.copytree(attempt(folder, "results", day), folder / "results" / f"day={tomorrow.day}")
    plain = day_partitions.Mark(mark.held, f"file:{folder}/results/day={tomorrow.day}")
    both = files.days("results", {part: mark, tomorrow: plain})
    assert list(both) == [part.day, tomorrow.day]
    assert await aside(files.frame("results", both.values()).count) == 2 * 14
    # And where a mark names a root by another name: a copy of it.
    shutil.move(folder, folder.with_name("moved"))
    moved = Files(spark, str(folder.with_name("moved")))
    both = moved.days("results", {part: mark, tomorrow: plain})
    assert await aside(moved.frame("results", both.values()).count) == 2 * 14


async def test_an_empty_day_is_marked_and_two_runs_share_the_days(
    spark: SparkSession, world: World, day: date, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yesterday = day + timedelta(days=1)
    await world.pools.rest.execute(
        f"CREATE TABLE holdfast.results_{yesterday:%Y%m%d} PARTITION OF holdfast.results"
        f" FOR VALUES FROM ('{yesterday} 00:00:00+00') TO ('{yesterday + timedelta(days=1)} 00:00:00+00')"
    )
    with day_partitions.marking(world.dsn, Part(day, "results")) as other:
        assert other is not None
        assert await run(spark, world, folder, "--table", "results") == 1
    assert f"results {day}: another run has it" in capsys.readouterr().err
    assert await world.marks() == [("results", yesterday, 0)]
    files = Files(spark, str(folder))
    days = files.days("results", day_partitions.marks(world.dsn))
    assert list(days) == [yesterday]
    assert files.frame("results", days.values()).count() == 0
    with pytest.raises(archive.Left, match="another run has it"):
        archive.archive(spark, world.dsn, files, Part(yesterday, "results"))
    await world.pools.rest.execute(f"DROP TABLE holdfast.results_{yesterday:%Y%m%d}")


async def test_who_may_still_write_is_waited_for(world: World) -> None:
    await world.topic("letters")
    with connected(world.dsn) as looks, connected(world.dsn) as writes:
        assert day_partitions.settled(looks) == []
        with writes.transaction():
            writes.execute("INSERT INTO holdfast.inbox (topic, payload_text) VALUES ('letters', '1')")
            [writer] = await asyncio.to_thread(day_partitions.settled, looks, 0.1)
            now = datetime.now(UTC)
            assert writer.may_write_before(now + timedelta(seconds=1))
            assert not writer.may_write_before(now - timedelta(hours=1)), "it began later"
            assert f"pid {writes.info.backend_pid}" in writer.name
        assert await asyncio.to_thread(day_partitions.settled, looks) == []


async def test_a_prepared_transaction_is_waited_for(world: World, day: date, left: None) -> None:
    with connected(world.dsn) as looks:
        [writer] = await asyncio.to_thread(day_partitions.settled, looks, 0.1)
        assert writer.name == "prepared transaction left"
        assert writer.may_write_before(datetime.now(UTC) - timedelta(days=9)), "nobody knows when it began"
        looks.execute("ROLLBACK PREPARED 'left'")
        assert await asyncio.to_thread(day_partitions.settled, looks) == []


async def test_a_day_is_not_closed_while_somebody_may_write_into_it(
    spark: SparkSession, world: World, day: date, *, folder: Path, left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_partitions, "PATIENCE_SECONDS", 0.1)
    assert await run(spark, world, folder, "--day", str(day)) == 1
    assert await world.marks() == []


@pytest.fixture
def left(world: World, day: date) -> Iterator[None]:
    """A transaction that has written, was prepared, and nobody looks after."""
    with connected(world.dsn) as writes:
        if writes.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
            pytest.skip("the server of HOLDFAST_TEST_DATABASE_URL has max_prepared_transactions = 0")
        writes.execute("BEGIN")
        writes.execute("INSERT INTO holdfast.inbox (topic, payload_text) VALUES ('orders', '1')")
        writes.execute("PREPARE TRANSACTION 'left'")
        yield
        if writes.execute("SELECT FROM pg_prepared_xacts WHERE gid = 'left'").fetchone() is not None:
            writes.execute("ROLLBACK PREPARED 'left'")
