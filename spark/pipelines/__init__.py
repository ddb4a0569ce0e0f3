"""The pipelines by name. A module of each has HELP, `arguments(parser)`, and `main(spark, dsn, args)`, the exit code.

It is loaded when it is asked for: one that needs plots does not slow down the others.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Protocol, cast

from pyspark.sql import SparkSession

NAMES: tuple[str, ...] = (
    "archive",
    "audit",
    "failures",
    "forecast",
    "ingest",
    "latency",
    "redrive",
    "replay",
    "throughput",
)


class Pipeline(Protocol):
    """What a pipeline's module has."""

    HELP: str

    def arguments(self, parser: ArgumentParser) -> None: ...

    def main(self, spark: SparkSession, dsn: str, args: Namespace) -> int: ...


def load(name: str) -> Pipeline:
    """The module of a pipeline of NAMES."""
    return cast(Pipeline, import_module(f"spark.pipelines.{name}"))
