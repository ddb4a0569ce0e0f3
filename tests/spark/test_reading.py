"""spark.read.format("holdfast"): what is in the tables, once each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import LongType, StructField, StructType

from spark import source
from spark.errors import mistake_text
from spark.session import ALWAYS
from spark.source.source import Holdfast


async def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """What a frame has, collected while this loop goes on serving."""
    return [row.asDict() for row in await asyncio.to_thread(frame.collect)]


async def test_a_jobs_life_as_the_service_wrote_it(
    spark: SparkSession, http: httpx.AsyncClient, database_url: str, topic: str
) -> None:
    await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    records = [{"data": {"n": n}, "tag": "ünï"} for n in range(3)]
    (await http.post(f"/v0/topics/{topic}", json={"node": "p", "records": records})).raise_for_status()
    claimed = (await http.post(f"/v0/topics/{topic}/claim", json={"node": "w", "max": 1})).json()["claimed"]
    (await http.post(f"/v0/topics/{topic}/ack", json={"node": "w", "seqs": [claimed[0]["$seq"]]})).raise_for_status()

    jobs = await rows(source.frame(spark, database_url, "jobs", topic).orderBy("seq"))
    found = [(job["seq"], job["topic"], job["state"], job["tag"]) for job in jobs]
    assert found == [(seq, topic, "ready", "ünï") for seq in (2, 3)]
    assert [bytes(job["payload"]) for job in jobs] == [b'{"n":1}', b'{"n":2}']
    events = await rows(source.frame(spark, database_url, "lease_events", topic).orderBy("seq", "at"))
    lives = [(event["seq"], event["event"]) for event in events]
    assert lives == [(1, "enqueued"), (1, "claimed"), (1, "acked"), (2, "enqueued"), (3, "enqueued")]


async def test_what_can_not_work_is_said_in_one_line(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    source.register(spark)

    def told_by(work: Callable[[], object]) -> str:
        with pytest.raises(Exception, match="Mistake") as caught:
            work()
        return mistake_text(caught.value) or ""

    def load(**options: str) -> DataFrame:
        return spark.read.format("holdfast").options(**{"dsn": database_url, "table": "jobs", **options}).load()

    def stream(**options: str) -> None:
        reads = spark.readStream.format("holdfast").options(**{"dsn": database_url, "table": "jobs", **options}).load()
        query = reads.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    for wrong, said in (
        (lambda: load(table="tallies"), "option table=tallies: must be one of jobs, dead_letters"),
        (lambda: load(topic="no such").collect(), "option topic=no such: there is no topic of that name"),
        (stream, "option table=jobs: only lease_events and records can be read as streams"),
    ):
        text = await asyncio.to_thread(told_by, wrong)
        assert text.startswith(said), text
        assert "\n" not in text


AT = "2026-11-22T10:00:00.123456Z"
# What is asked, and the same as Spark has it.
FILTERS: list[tuple[tuple[Any, ...], str]] = [
    (("tag", "=", "b"), "tag = 'b'"),
    (("tag", "<", "b"), "tag < 'b'"),
    (("tag", ">=", "Z"), "tag >= 'Z'"),
    (("tag", ">", "z"), "tag > 'z'"),
    (("tag", "=", "ä"), "tag = 'ä'"),
    (("tag", "is null"), "tag IS NULL"),
    (("tag", "is not null"), "tag IS NOT NULL"),
    (("tag", "in", ["a", "B", None]), "tag IN ('a', 'B', NULL)"),
    (("state", "=", "scheduled"), "state = 'scheduled'"),
    (("state", "<", "ready"), "state < 'ready'"),
    (("priority", ">=", 5), "priority >= 5"),
    (("priority", "<", 70000), "priority < 70000"),
    (("seq", "in", [1, 2, 30000000000]), "seq IN (1, 2, 30000000000)"),
    (("original_seq", "=", 3), "original_seq = 3"),
    (("created_at", ">", AT), f"created_at > timestamp '{AT}'"),
    (("visible_at", "=", "2096-02-29T23:59:59.999999Z"), "visible_at = timestamp '2096-02-29T23:59:59.999999Z'"),
    (("topic", "in", ["x", "y"]), "topic IN ('x', 'y')"),
]


async def test_filters_mean_the_same_within_postgresql(
    spark: SparkSession, http: httpx.AsyncClient, database_url: str, topic: str
) -> None:
    """Bytes of text, enums as words, NULLs, and microseconds: the same rows, whoever looks."""
    await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    records: list[dict[str, Any]] = [
        {"data": n, "tag": tag, "priority": n % 10} if tag is not None else {"data": n, "meta": {"n": n}}
        for n, tag in enumerate(["a", "b", "B", "Z", "z", "ä", "a\u0301", "\U0001f600", "", None, "ab", "b "])
    ]
    records.append({"data": 1, "run_at": "2096-02-29T23:59:59.999999Z"})
    (await http.post(f"/v0/topics/{topic}", json={"records": records})).raise_for_status()
    jobs = source.frame(spark, database_url, "jobs", topic)
    every = await rows(jobs.select("seq", *(expr(text).alias(text) for _, text in FILTERS)))
    assert len(every) == len(records)
    for asked, text in FILTERS:
        reader = Holdfast(
            {"dsn": database_url, "table": "jobs", "topic": topic, "filters": json.dumps([asked]), "columns": "seq"}
        ).reader(StructType([StructField("seq", LongType())]))
        found = [seq for part in reader.partitions() for batch in reader.read(part) for seq in batch[0].to_pylist()]
        assert sorted(found) == sorted(row["seq"] for row in every if row[text]), text
    # Spark 4.3.0 mixes up what it pushes into scans of one frame.
    few, some = jobs.where("priority < 3"), jobs.where("priority >= 5")
    both = await rows(few.union(some))
    assert sorted(row["priority"] for row in both) == [0, 0, 0, 0, 1, 1, 2, 5, 6, 7, 8]
    filtered = source.frame(spark, database_url, "jobs", topic, columns=["seq"], filters=[("tag", ">", "b")])
    assert {row["seq"] for row in await rows(filtered)} == {row["seq"] for row in every if row["tag > 'z'"]} | {5, 12}


async def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, http: httpx.AsyncClient, database_url: str, topic: str, tmp_path: Path
) -> None:
    await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    source.register(spark)
    asked = {"dsn": database_url, "table": "lease_events", "topic": topic, "starting": "earliest"}
    ledger = spark.readStream.format("holdfast").options(**asked, rows_per_batch="30").load()
    files = {"path": str(tmp_path / "events"), "checkpointLocation": str(tmp_path / "checkpoint")}

    def run() -> int:
        query = ledger.writeStream.format("parquet").options(**files).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        return len([one for one in query.recentProgress if one.numInputRows])

    for count, batches in ((50, 2), (40, 2)):
        await http.post(f"/v0/topics/{topic}", json={"records": [{"data": n} for n in range(count)]})
        assert await asyncio.to_thread(run) >= batches
    found = await rows(spark.read.parquet(str(tmp_path / "events")))
    assert sorted(row["seq"] for row in found) == list(range(1, 91))


def test_plans_do_not_show_the_password(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """In sessions that others made, too, and beside what they hide."""
    assert "dsn" in ALWAYS[source.HIDDEN]
    spark.conf.set(source.HIDDEN, "(?i)url|secret")
    source.register(spark)
    assert spark.conf.get(source.HIDDEN) == "(?i)url|secret|(?i)dsn"
    dsn = "postgresql://u:hunter2@127.0.0.1:1/db"
    spark.read.format("holdfast").options(dsn=dsn, table="jobs").load().explain(True)
    spark.readStream.format("holdfast").options(dsn=dsn, table="lease_events").load().explain(True)
    shown = capsys.readouterr().out
    assert "holdfast" in shown.lower()
    assert "hunter2" not in shown
