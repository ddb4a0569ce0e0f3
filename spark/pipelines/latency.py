"""Recomputes times by topic, tenant and minute in topic_stats. docs/pipelines.md."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pyspark.sql import SparkSession

from spark import topic_stats
from spark.analysis import minute_stats


def arguments(parser: ArgumentParser) -> None:

    topic_stats.arguments(parser)


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Raises Mistake."""
    total, changed = topic_stats.run(spark, dsn, args, "latency", minute_stats.latency)
    print(f"{total:,} rows of topic, tenant and minute; {changed:,} were missing or different")
    return 0
