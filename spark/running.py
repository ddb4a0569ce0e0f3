"""Runs a pipeline: finds the database, starts a session, and turns errors into a line and an exit code."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

import psycopg
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from spark import pipelines
from spark.errors import Mistake, mistake_text, reason
from spark.session import session

DSN = "HOLDFAST_DATABASE_URL"
FAILED = 1
REFUSED = 2


def run(args: Namespace) -> int:
    """Returns the exit code: the pipeline's, 1 if the database or Java fails, 2 for a Mistake, 130 for Ctrl+C."""
    try:
        pipeline = pipelines.load(args.pipeline)
        dsn = args.dsn or os.environ.get(DSN) or embedded(Path(os.environ.get("HOLDFAST_DATA_DIR", "var")))
        with session(f"holdfast {args.pipeline}", master=args.master) as spark:
            return pipeline.main(spark, dsn, args)
    except Mistake as mistake:
        print(f"spark: {mistake}", file=sys.stderr)
        return REFUSED
    except PySparkException as error:
        mistake_within = mistake_text(error)
        if mistake_within is None:
            raise
        print(f"spark: {mistake_within}", file=sys.stderr)
        return REFUSED
    except (psycopg.Error, Py4JJavaError) as error:
        print(f"spark: {reason(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130


def embedded(folder: Path) -> str:
    """The address of the PostgreSQL that `./run` started with its data in `folder`. Raises Mistake."""
    try:
        newest = max(folder.glob("pg*.port"))
        password = newest.with_suffix(".password").read_text().strip()
        return f"postgresql://holdfast:{password}@127.0.0.1:{newest.read_text().strip()}/holdfast"
    except (ValueError, OSError):
        raise Mistake(f"no database: give --dsn postgresql://… or {DSN}; {folder}/ has no database of ./run") from None
