"""Counts and times of jobs by topic, tenant and minute, as holdfast.fill_topic_stats computes them; ADR 0038.

Times are whole milliseconds, rounded down. Percentiles are by nearest rank: the smallest time that is at least as long
as that per cent of all times.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as f

PLACE: Final = ("minute", "topic_id", "topic", "tenant")
_OF: Final = ("minute", "topic_id", "tenant")
COUNTS: Final = {
    "enqueued": ("enqueued",),
    "completed": ("acked",),
    "failed": ("failed", "dead_lettered"),
    "dead_lettered": ("dead_lettered",),
    "expired": ("expired",),
    "cancelled": ("cancelled",),
}
TIMES: Final = {"wait": "claimed", "processing": "acked"}
KINDS: Final = ("claimed", *sorted({event for events in COUNTS.values() for event in events}))
PERCENTS: Final = (50, 95, 99)


def throughput(events: DataFrame) -> DataFrame:
    """PLACE and the counts from the ledger's events; no rows for minutes without events."""
    event = f.col("event")
    return (
        events.select("at", "topic_id", "topic", "tenant", "event", "deliveries")
        .where(event.isin(*KINDS))
        .groupBy(*_place())
        .agg(
            f.min("topic").alias("topic"),
            *(f.count_if(event.isin(*names)).alias(name) for name, names in COUNTS.items()),
            f.count_if((event == "claimed") & (f.col("deliveries") > 1)).alias("retried"),
        )
        .select(*PLACE, *COUNTS, "retried")
    )


def latency(events: DataFrame) -> DataFrame:
    """PLACE and, for waiting and processing, the count, percentiles and buckets; no rows for minutes without times."""
    ms = f.greatest(f.expr("(unix_micros(at) - unix_micros(began_at)) DIV 1000"), f.lit(0))
    of = (*_OF, "event")
    by_time = Over.partitionBy(*of).orderBy("ms")
    ranked = (
        events.select("at", "topic_id", "topic", "tenant", "event", "began_at")
        .where(f.col("event").isin(*TIMES.values()) & f.col("began_at").isNotNull())
        .groupBy(*_place(), "event", ms.alias("ms"))
        .agg(f.min("topic").alias("topic"), f.count("*").alias("n"))
        .withColumn("upto", f.sum("n").over(by_time))
        .withColumn("total", f.sum("n").over(Over.partitionBy(*of)))
    )
    timed = (
        ranked.groupBy(*of, bucket(f.col("ms")).alias("bucket"))
        .agg(
            f.min("topic").alias("topic"),
            f.sum("n").alias("n"),
            f.min("total").alias("total"),
            *(_percentile(percent) for percent in PERCENTS),
        )
        .groupBy(*of)
        .agg(
            f.min("topic").alias("topic"),
            f.min("total").alias("count"),
            *(f.min(f"p{percent}").alias(f"p{percent}_ms") for percent in PERCENTS),
            f.array_sort(f.collect_list(f.struct("bucket", "n"))).alias("spread"),
        )
        .withColumn("buckets", f.col("spread.bucket"))
        .withColumn("counts", f.col("spread.n"))
    )
    parts = ("count", *(f"p{percent}_ms" for percent in PERCENTS), "buckets", "counts")
    return (
        timed.groupBy(*_OF)
        .agg(
            f.min("topic").alias("topic"),
            *(
                f.first(f.when(f.col("event") == event, f.col(part)), ignorenulls=True).alias(f"{name}_{part}")
                for name, event in TIMES.items()
                for part in parts
            ),
        )
        .select(*PLACE, *(_with_default(name, part) for name in TIMES for part in parts))
    )


def bucket(ms: Column) -> Column:
    """holdfast.duration_bucket: one bucket for each ms up to 15 ms, then eight for each doubling."""
    shift = f.length(f.bin(ms)) - 4
    return f.when(ms < 16, ms).otherwise(8 * shift + f.call_function("shiftright", ms, shift)).cast("int")


def _place() -> tuple[Column, Column, Column]:
    return (
        f.date_trunc("minute", "at").alias("minute"),
        f.col("topic_id"),
        f.coalesce("tenant", f.lit("")).alias("tenant"),
    )


def _percentile(percent: int) -> Column:
    reached = f.col("upto") * 100 >= f.col("total") * percent
    return f.min(f.when(reached, f.col("ms"))).alias(f"p{percent}")


def _with_default(name: str, part: str) -> Column:
    """The value of topic_stats if there were no such times."""
    column = f.col(f"{name}_{part}")
    match part:
        case "count":
            return f.coalesce(column, f.lit(0).cast("long")).alias(f"{name}_{part}")
        case "buckets":
            return f.coalesce(column, f.array().cast("array<int>")).alias(f"{name}_{part}")
        case "counts":
            return f.coalesce(column, f.array().cast("array<bigint>")).alias(f"{name}_{part}")
        case _:
            return column
