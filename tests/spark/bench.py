"""Measure reads and pipelines over lease events that a service has made: make spark-bench.

Spark's start is not counted. Each figure is the best of the rounds; rates are of what was read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame, SparkSession

from app.db.embedded import EmbeddedPostgres
from spark import source
from spark.pipelines import audit
from spark.session import session
from tests.spark.lived import live

Take = Callable[[SparkSession, str, Path], int]


def read_events(spark: SparkSession, dsn: str, _: Path) -> int:
    """The whole ledger by the data source."""
    return consumed(source.frame(spark, dsn, "lease_events"))


def read_jdbc(spark: SparkSession, dsn: str, _: Path) -> int:
    """The same by Spark's JDBC reader: one cursor, one snapshot for all of it."""
    url, properties = jdbc(dsn)
    return consumed(spark.read.jdbc(url, "holdfast.lease_events", properties=properties))


def read_stream(spark: SparkSession, dsn: str, folder: Path) -> int:
    """The whole ledger as a stream, in its own batches."""
    seen = 0

    def batch(frame: DataFrame, _: int) -> None:
        nonlocal seen
        seen += consumed(frame)

    source.register(spark)
    options = {"dsn": dsn, "table": "lease_events", "starting": "earliest", "rows_per_batch": "200000"}
    stream = spark.readStream.format("holdfast").options(**options).load().writeStream.foreachBatch(batch)
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(1_800), "the stream goes on"
    return seen


def audit_all(spark: SparkSession, dsn: str, _: Path) -> int:
    """The pipeline `audit` over all of it."""
    found = audit.run(spark, dsn)
    assert found.counts == {}, found.counts
    return found.events


def consumed(frame: DataFrame) -> int:
    """How many rows there are, each looked at with all of its columns."""
    rows: int = frame.selectExpr("count(*) AS n", "max(hash(*))").collect()[0]["n"]
    return rows


TAKES: dict[str, Take] = {"read": read_events, "read by JDBC": read_jdbc, "stream": read_stream, "audit": audit_all}


def jdbc(dsn: str) -> tuple[str, dict[str, str]]:
    info = psycopg.conninfo.conninfo_to_dict(dsn)
    url = f"jdbc:postgresql://{info['host']}:{info.get('port', 5432)}/{info['dbname']}"
    return url, {"user": str(info["user"]), "password": str(info.get("password", "")), "fetchsize": "5000"}


def facts(dsn: str, events: int) -> dict[str, object]:
    """What a figure can't be read without."""
    with psycopg.connect(dsn) as database:
        server = database.execute("SHOW server_version").fetchone()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "postgres": server and server[0],
        "events": events,
        "load before": os.getloadavg()[0],
    }


@contextmanager
def database(dsn: str | None) -> Iterator[str]:
    if dsn is not None:
        yield dsn
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-spark-bench-") as folder:
        postgres = EmbeddedPostgres(Path(folder))
        try:
            yield postgres.start()
        finally:
            postgres.stop()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.bench", description=__doc__)
    parser.add_argument("--dsn", help="a database that tests.spark.lived has filled; else one is made and filled")
    parser.add_argument("--events", type=int, default=1_000_000, help="how many to make (1000000)")
    parser.add_argument("--rounds", type=int, default=2, help="of each figure, of which the best counts (2)")
    parser.add_argument("--only", choices=TAKES, action="append", help="only this figure; may be given again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the facts there")
    args = parser.parse_args(argv)
    with database(args.dsn) as dsn:
        if args.dsn is None:
            asyncio.run(live(dsn, args.events))
        figures: dict[str, dict[str, float]] = {}
        with session("bench", master="local[*]") as spark:
            events = source.frame(spark, dsn, "lease_events").count()  # and whatever the first read starts
            known = facts(dsn, events)
            print("\n".join(f"{name:12} {value}" for name, value in known.items()), flush=True)
            for name in args.only or TAKES:
                seconds = float("inf")
                for _ in range(args.rounds):
                    with tempfile.TemporaryDirectory() as folder:
                        began = time.monotonic()
                        rows = TAKES[name](spark, dsn, Path(folder))
                        seconds = min(seconds, time.monotonic() - began)
                assert rows == events, f"{name}: {rows} of {events} events"
                figures[name] = {"seconds": round(seconds, 2), "events_per_second": round(events / seconds)}
                print(f"{name:12} {seconds:8.1f} s  {events / seconds:10,.0f} events/s", flush=True)
        if "read" in figures and "read by JDBC" in figures:
            ratio = figures["read by JDBC"]["seconds"] / figures["read"]["seconds"]
            print(f"the data source reads {ratio:.2f} times as fast as the JDBC reader")
    if args.json:
        args.json.write_text(json.dumps({"facts": known, "figures": figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
