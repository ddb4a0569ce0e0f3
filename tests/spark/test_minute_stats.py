"""throughput and latency: what Spark works out is what the service's sweep does, to the last figure."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from spark.analysis import minute_stats
from spark.archive.day_files import Files
from spark.errors import Mistake
from spark.pipelines import archive, latency, throughput
from tests.spark.past import World, aside, tell

PIPELINES = (throughput, latency)


def asked(**given: object) -> Namespace:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    window = {"start": (now - timedelta(minutes=4)).isoformat(), "end": (now + timedelta(minutes=2)).isoformat()}
    return Namespace(**{"day": None, "topic": None, "from_files": None, **window, **given})


async def all_stats(world: World) -> list[tuple[Any, ...]]:
    return await world.rows("SELECT * FROM holdfast.topic_stats ORDER BY topic_id, minute, tenant")


async def run(spark: SparkSession, world: World, args: Namespace, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Both pipelines: how many rows each had, and how many of them were missing or others."""
    capsys.readouterr()
    for pipeline in PIPELINES:
        assert await aside(pipeline.main, spark, world.dsn, args) == 0
    return [line.partition(";")[2].split()[0] for line in capsys.readouterr().out.splitlines()]


async def mixed(world: World) -> None:
    """Two topics, three tenants, and every end that a job may have."""
    orders = await world.topic("orders", max_deliveries=2, dead_letter="orders.dlq")
    await world.work(orders, [{"data": n, **({}, {"tenant": "acme"}, {"tenant": "b"})[n % 3]} for n in range(30)])
    await orders.append(*({"data": n, "tenant": "acme"} for n in range(4)), {"data": 0, "ttl_ms": 1, "tenant": "b"})
    for _ in range(2):  # two go back, and then out
        jobs = (await orders.claim(max=4))["claimed"]
        seqs = sorted(job["$seq"] for job in jobs)
        await orders.ack("n", seqs[2:])
        await orders.nack("n", seqs[:2], errors=["no", "no"])
    await world.work(await world.topic("mail"), [{"data": n} for n in range(7)])
    (await world.http.post("/api/admin/expiry-reaper/run", json={})).raise_for_status()


async def test_spark_puts_right_what_the_sweep_told_and_agrees_with_it(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await mixed(world)
    await tell(world.pools)
    told = await all_stats(world)
    totals = await world.rows(
        "SELECT topic, tenant, sum(enqueued)::int, sum(completed)::int, sum(failed)::int, sum(retried)::int, "
        "sum(expired)::int, sum(wait_count)::int, sum(processing_count)::int "
        "FROM holdfast.topic_stats GROUP BY topic, tenant ORDER BY topic, tenant"
    )
    assert totals == [  # by hand
        ("mail", "", 7, 7, 0, 0, 0, 7, 7),
        ("orders", "", 10, 10, 0, 0, 0, 10, 10),
        ("orders", "acme", 14, 12, 2, 2, 0, 16, 12),
        ("orders", "b", 11, 10, 0, 0, 1, 10, 10),
        ("orders.dlq", "", 2, 0, 0, 0, 0, 0, 0),
    ]
    assert await run(spark, world, asked(), capsys) == ["0", "0"]
    assert await all_stats(world) == told

    # One topic leaves the others alone.
    await world.pools.rest.execute("DELETE FROM holdfast.topic_stats WHERE topic IN ('orders.dlq', 'mail')")
    await run(spark, world, asked(topic="mail"), capsys)
    assert await all_stats(world) == [row for row in told if row[2] != "orders.dlq"]

    # Wrong, missing and made up, in both halves: put right, once.
    await world.pools.rest.execute("DELETE FROM holdfast.topic_stats WHERE tenant = 'acme'")
    await world.pools.rest.execute(
        "UPDATE holdfast.topic_stats SET failed = 9, wait_p95_ms = wait_p95_ms + 1 WHERE topic = 'mail'"
    )
    await world.pools.rest.execute(
        "INSERT INTO holdfast.topic_stats (minute, topic_id, topic, tenant, enqueued, wait_count) "
        "SELECT min(minute), 77, 'gone', '', 5, 5 FROM holdfast.topic_stats"
    )
    changed = await run(spark, world, asked(), capsys)
    assert all(int(count) >= 3 for count in changed)
    assert await all_stats(world) == told
    assert await run(spark, world, asked(), capsys) == ["0", "0"]
    assert await world.rows("SELECT 1 FROM holdfast.topic_stats_staged") == []


@pytest.mark.slow
async def test_days_in_files_backfill_what_is_missing(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    await mixed(world)
    day = await world.move(days=2)
    await world.pools.rest.execute("DELETE FROM holdfast.topic_stats")
    await tell(world.pools, since="3 days")
    told = await all_stats(world)
    assert len(told) >= 5
    await aside(archive.run, spark, world.dsn, Files(spark, str(tmp_path)))
    await world.pools.rest.execute("DELETE FROM holdfast.topic_stats")
    window = asked(day=str(day), start=None, end=None, from_files=str(tmp_path))
    await run(spark, world, window, capsys)
    assert await all_stats(world) == told


async def test_what_spark_does_not_see_whole_stays_as_it_is(spark: SparkSession, world: World) -> None:
    """Minutes are kept for longer than the events that they come from; and of new ones the service tells."""
    await tell(world.pools)
    await world.pools.rest.execute(
        "INSERT INTO holdfast.topic_stats (minute, topic_id, topic, tenant, enqueued, wait_count) "
        "VALUES (date_trunc('minute', now() - interval '20 days'), 78, 'old', '', 5, 5)"
    )
    told, now = await all_stats(world), datetime.now(UTC)
    gone = {"start": (now - timedelta(days=21)).isoformat()}
    to_come = {"start": (now + timedelta(hours=1)).isoformat(), "end": (now + timedelta(hours=25)).isoformat()}
    for pipeline in PIPELINES:
        for window, why in (gone, "every day of lease_events"), (to_come, "has counted up to"):
            with pytest.raises(Mistake, match=why):
                await aside(pipeline.main, spark, world.dsn, asked(**window))
    assert await all_stats(world) == told


def test_percentiles_are_nearest_ranks_by_hand(spark: SparkSession) -> None:
    """Waits of 1 to 10 ms: half of them are no longer than 5, 95 % no longer than 10. One of 100.9 ms is 100 ms."""
    start = datetime(2026, 1, 31, 9, 0, 30, tzinfo=UTC)
    rows = [(start, 1, "q", None, "claimed", 1, start - timedelta(milliseconds=n)) for n in range(1, 11)]
    rows += [(start, 1, "q", None, "acked", 1, start - timedelta(microseconds=100_900))]
    rows += [(start + timedelta(seconds=40), 1, "q", None, "claimed", 2, start + timedelta(seconds=41))]
    events = spark.createDataFrame(
        rows,
        "at timestamp, topic_id int, topic string, tenant string, event string, deliveries int, began_at timestamp",
    )
    first, second = minute_stats.latency(events).orderBy("minute").collect()
    assert first == Row(
        minute=datetime(2026, 1, 31, 9, 0), topic_id=1, topic="q", tenant="",
        wait_count=10, wait_p50_ms=5, wait_p95_ms=10, wait_p99_ms=10,
        wait_buckets=list(range(1, 11)), wait_counts=[1] * 10,
        processing_count=1, processing_p50_ms=100, processing_p95_ms=100, processing_p99_ms=100,
        processing_buckets=[8 * 3 + 12], processing_counts=[1],
    )  # fmt: skip
    assert (second["wait_p50_ms"], second["wait_count"], second["processing_count"]) == (0, 1, 0), "never below 0"
    (counts, again) = minute_stats.throughput(events).orderBy("minute").collect()
    assert (counts["enqueued"], counts["completed"], counts["retried"]) == (0, 1, 0)
    assert again["retried"] == 1


async def test_buckets_are_those_of_the_database(spark: SparkSession, world: World) -> None:
    spread = [*range(300), *(2**n + d for n in range(9, 44) for d in (-1, 0, 1, 77))]
    here = spark.createDataFrame([(ms,) for ms in spread], "ms long").select(minute_stats.bucket(f.col("ms"))).collect()
    there = await world.pools.rest.fetch(
        "SELECT holdfast.duration_bucket(u.ms) AS b FROM unnest($1::bigint[]) WITH ORDINALITY u(ms, ord) ORDER BY ord",
        spread,
    )
    assert [row[0] for row in here] == [row["b"] for row in there]
