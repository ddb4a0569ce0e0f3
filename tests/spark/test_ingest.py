"""The pipeline `ingest`: rows of files become jobs, once, and bad ones are never lost without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from spark.errors import Mistake
from spark.folders import File
from spark.input_files import format_of
from spark.pipelines import ingest
from tests.spark.past import World, aside, run

CSV = 'id,prio,what\n007,1,"a, b"\n008,high,c\n009,2,d,too much\n010,,ü\n'
NDJSON = '{"n": 1, "big": 12345678901234567890.10}\n\n{"n": 2, "at": "x"}\n{"n":\n[1]\n'


async def ingested(spark: SparkSession, world: World, *words: str) -> int:
    return await run(ingest, spark, world.dsn, *words)


async def jobs(world: World, topic: str) -> list[tuple[Any, ...]]:
    return await world.rows(
        "SELECT convert_from(payload, 'UTF8'), priority, key FROM holdfast.jobs"
        f" WHERE topic = '{topic}' ORDER BY convert_from(payload, 'UTF8')"
    )


async def test_bad_rows_refuse_all_or_go_aside_and_the_rest_comes_once(
    spark: SparkSession, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.topic("csv")
    file, bad = tmp_path / "rows.csv", tmp_path / "bad"
    file.write_text(CSV)
    words = ("--topic", "csv", "--files", str(file), "--map", "priority=prio,key=concat('k', id)")
    assert await ingested(spark, world, *words, "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.startswith("4 rows, 2 of them bad\n")
    assert "bad: priority is high: " in said
    assert "bad: it can't be read: 009,2,d,too much" in said
    shown = [json.loads(line.removeprefix("job: ")) for line in said.splitlines() if line.startswith("job: ")]
    assert shown[0] == {"payload": '{"id":"007","prio":"1","what":"a, b"}', "priority": 1, "key": "k007"}
    assert await ingested(spark, world, *words) == 1
    assert await jobs(world, "csv") == [], "refused, all of it"

    for _ in range(2):
        assert await ingested(spark, world, *words, "--bad", str(bad)) == 0
    said = capsys.readouterr().out
    assert "enqueued 2 jobs at " in said
    assert "nothing to do: these were ingested before, 2 jobs at " in said
    assert await jobs(world, "csv") == [
        ('{"id":"007","prio":"1","what":"a, b"}', 1, "k007"),
        ('{"id":"010","prio":null,"what":"ü"}', 0, "k010"),
    ]
    aside_rows = [json.loads(line) for path in bad.rglob("*.json") for line in path.read_text().splitlines()]
    assert sorted((row["record"], row["reason"]) for row in aside_rows) == [
        ("009,2,d,too much", "it can't be read"),
        ('{"id":"008","prio":"high","what":"c"}', "priority is high"),
    ]
    assert {row["file"] for row in aside_rows} == {f"file://{file}"}

    file.write_text(CSV.replace("too much", "too mutch"))
    assert await ingested(spark, world, *words, "--bad", str(bad)) == 0, "another file, if of the same name"
    assert len(await jobs(world, "csv")) == 2, "of a key there is one"


async def test_a_line_of_ndjson_is_the_payload_as_it_stands(
    spark: SparkSession, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.topic("lines")
    (tmp_path / "a.ndjson").write_text(NDJSON)
    words = ("--topic", "lines", "--files", str(tmp_path), "--bad", str(tmp_path / "_bad"), "--map", "priority=n")
    assert await ingested(spark, world, *words) == 0
    assert "4 rows, 2 of them bad" in capsys.readouterr().out
    assert [job[:2] for job in await jobs(world, "lines")] == [
        ('{"n": 1, "big": 12345678901234567890.10}', 1),
        ('{"n": 2, "at": "x"}', 2),
    ]


async def test_parquet_and_a_query(spark: SparkSession, world: World, tmp_path: Path) -> None:
    await world.topic("a")
    await world.topic("b")
    path = str(tmp_path / "orders")
    frame = spark.createDataFrame(
        [(1, 2.5, b"\x01"), (2, None, None), (3, 4.0, None)], "id int, sum double, raw binary"
    )
    await aside(frame.write.parquet, path)
    query = "SELECT id, sum, if(id = 3, 'b', 'a') AS goes FROM input WHERE sum IS NOT NULL"
    words = ("--files", f"{path}/*.parquet", "--query", query, "--payload", "struct(id, sum)")
    assert await ingested(spark, world, *words, "--map", "topic=goes", "--map", "metadata=map('from', 'file')") == 0
    assert await world.rows(
        "SELECT topic, convert_from(payload, 'UTF8'), metadata::text FROM holdfast.jobs"
        " WHERE topic IN ('a', 'b') ORDER BY 1"
    ) == [("a", '{"id":1,"sum":2.5}', '{"from":"file"}'), ("b", '{"id":3,"sum":4.0}', '{"from":"file"}')]
    with pytest.raises(Mistake, match=r"--payload or --map: .*nothing"):
        await ingested(spark, world, "--topic", "a", "--files", path, "--payload", "nothing")


async def test_a_query_of_a_database_is_asked_once_for_each_name(spark: SparkSession, world: World) -> None:
    await world.topic("asked")
    there = urlsplit(world.dsn)
    url = f"jdbc:postgresql://{there.hostname}:{there.port}{there.path}?user={there.username}&password={there.password}"
    words = ("--topic", "asked", "--jdbc", url, "--query", "SELECT n FROM generate_series(1, 3) n ORDER BY n")
    for _ in range(2):
        assert await ingested(spark, world, *words, "--run", "first") == 0
    assert [payload for payload, *_ in await jobs(world, "asked")] == ['{"n":1}', '{"n":2}', '{"n":3}']
    assert await ingested(spark, world, *words, "--run", "second") == 0
    assert len(await jobs(world, "asked")) == 6


def test_what_can_not_work_is_said() -> None:
    assert format_of([File("x/A.JSONL.gz", 1, 1), File("b.ndjson", 1, 1)]) == "ndjson"
    for names in (("a.csv", "b.json"), ("a",)):
        with pytest.raises(Mistake, match="give --format"):
            format_of([File(name, 1, 1) for name in names])
    assert ingest.parse_map(["priority = if(a=1, 2, 3), key=id", "group=g"]) == {
        "priority": "if(a=1, 2, 3)",
        "key": "id",
        "group": "g",
    }
    for wrong in ("prio=1", "key", "key=", "key=a,key=b"):
        with pytest.raises(Mistake, match="--map"):
            ingest.parse_map([wrong])
