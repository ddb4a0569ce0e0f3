"""Counts by topic, tenant and minute, put right in topic_stats. docs/pipelines/throughput.md."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pyspark.sql import SparkSession

from spark import minutes, stats

HELP = "what became of jobs by topic, tenant and minute: counts, put right in topic_stats"


def arguments(parser: ArgumentParser) -> None:
    """As stats.arguments."""
    stats.arguments(parser)


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Raises Mistake."""
    total, changed = stats.run(spark, dsn, args, "throughput", minutes.throughput)
    print(f"{total:,} rows of topic, tenant and minute; {changed:,} were missing, or others")
    return 0
