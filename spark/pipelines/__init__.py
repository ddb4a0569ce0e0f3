"""The pipelines. A module of each has `arguments(parser)`, and `main(spark, dsn, args)`, which answers the exit code.

It is loaded when it is asked for: help waits for none of them, and one that needs plots does not slow down the others.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What each of them does, in a line.
PIPELINES: Final[Mapping[str, str]] = {
    "archive": "closed days become Parquet files that are verified and marked, so that retention may drop them",
    "audit": "prove that nothing was lost, no two leases of a job overlapped, and groups kept their order",
    "failures": "clusters of errors, with what sets failing jobs apart from good ones, as an HTML page",
    "forecast": "workers that a queue will need for a waiting time, and a day replayed with another number of them",
    "ingest": "rows of Parquet, CSV, JSON or NDJSON files, or of a query, become jobs of a topic",
    "latency": "how long jobs waited and took by topic, tenant and minute: percentiles, put right in topic_stats",
    "redrive": "dead letters that an expression selects go back, at a rate, a few of them first",
    "replay": "archived jobs of a window become jobs again, each once",
    "throughput": "what became of jobs by topic, tenant and minute: counts, put right in topic_stats",
}


class Pipeline(Protocol):
    """What a pipeline's module has."""

    def arguments(self, parser: ArgumentParser) -> None: ...

    def main(self, spark: SparkSession, dsn: str, args: Namespace) -> int: ...


def load(name: str) -> Pipeline:
    """The module of one of PIPELINES."""
    return cast(Pipeline, import_module(f"spark.pipelines.{name}"))
