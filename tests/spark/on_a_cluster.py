"""What test_distribution.py submits, from a folder without the project: read, transform, write, audit."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from spark import source
from spark.pipelines import audit
from spark.session import session


def executor(_: object) -> Iterator[tuple[str, str, str, bool]]:
    """Where a Python worker is, where it has the package from, and whether it has the service's."""
    import spark

    yield str(Path.cwd()), os.environ.get("PYTHONPATH", ""), str(spark.__file__), find_spec("app") is not None


def main(dsn: str) -> int:
    """The exit code of the audit, whose report is on stdout after what is told here."""
    with session("distribution") as cluster:
        workers = cluster.sparkContext.parallelize(range(8), 8).mapPartitions(executor).collect()
        reports = source.frame(cluster, dsn, "archive", "reports").selectExpr(
            "decode(payload, 'utf-8') AS payload", "'again' AS tag", "CAST(priority AS int) AS priority"
        )
        source.enqueue(reports, dsn, "mail", write_id="once")
        source.enqueue(reports, dsn, "mail", write_id="once")
        told = {"master": cluster.sparkContext.master, "workers": sorted(set(workers))}
        print("told:", json.dumps(told), flush=True)
        parser = ArgumentParser()
        audit.arguments(parser)
        return audit.main(cluster, dsn, parser.parse_args(["--limit", "1"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
