"""What test_distribution.py submits, from a folder without the project: every pipeline, as a file has it."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from pyspark.sql import SparkSession

from spark import pipelines
from spark.session import session


def executor(_: object) -> Iterator[dict[str, object]]:
    """Where a Python worker is, what it has the package from, and what of the service it could import."""
    import spark

    names = ("app", "tests", "asyncpg", "sqlalchemy")
    yield {
        "folder": str(Path.cwd()),
        "package": str(spark.__file__),
        "path": os.environ.get("PYTHONPATH", ""),
        "could import": [name for name in names if find_spec(name)],
    }


def run(cluster: SparkSession, dsn: str, name: str, words: list[str]) -> dict[str, object]:
    """A pipeline's exit code, and what it said."""
    pipeline, parser, said = pipelines.load(name), ArgumentParser(), StringIO()
    pipeline.arguments(parser)
    with redirect_stdout(said):
        code = pipeline.main(cluster, dsn, parser.parse_args(words))
    return {"code": code, "said": said.getvalue().splitlines()}


def main(plan: Path, to: Path) -> None:
    asked = json.loads(plan.read_text())
    with session("distribution") as cluster:
        workers = cluster.sparkContext.parallelize(range(8), 8).mapPartitions(executor).collect()
        told: dict[str, object] = {"master": cluster.sparkContext.master, "workers": workers}
        for name, words in asked["pipelines"].items():
            told[name] = run(cluster, asked["dsn"], name, words)
            print(f"{name}: {told[name]}", file=sys.stderr, flush=True)
        to.write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
