"""The pipelines: a module each, with `arguments(parser)` and `main(spark, dsn, args)`, which returns the exit code.

A module is loaded only when it is used, so --help and pipelines without charts start fast.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What each does, for --help.
PIPELINES: Final[Mapping[str, str]] = {
    "archive": "archive closed days as verified Parquet files, so that retention may drop them",
    "audit": "prove that nothing was lost, no leases overlapped, and groups kept their order",
    "failures": "report kinds of errors and what failing jobs have in common, as an HTML page",
    "forecast": "estimate the workers for a waiting time, and simulate a day with other numbers of workers",
    "ingest": "turn rows of Parquet, CSV, JSON or NDJSON files, or of a query, into jobs",
    "latency": "recompute waiting and processing times by topic, tenant and minute in topic_stats",
    "redrive": "requeue dead letters that an expression selects, at a rate, with a canary",
    "replay": "turn archived jobs of a window into jobs again, each once",
    "throughput": "recompute counts of jobs by topic, tenant and minute in topic_stats",
}


class Pipeline(Protocol):
    """The interface of a pipeline's module."""

    def arguments(self, parser: ArgumentParser) -> None: ...

    def main(self, spark: SparkSession, dsn: str, args: Namespace) -> int: ...


def load(name: str) -> Pipeline:
    """The module of one of PIPELINES."""
    return cast(Pipeline, import_module(f"spark.pipelines.{name}"))
