"""Measure reads and pipelines over lease events that a service has made: make spark-bench.

Spark's start is not counted. Each figure is the best of the rounds; rates are of the events that there are. What comes
of it is checked, too: every event once, no counterexample, minutes as the service's own sweep tells them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path

import asyncpg
import psycopg
from pyspark.sql import DataFrame, SparkSession

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.base.db.pool import open_pools
from spark import jdbc, pipelines, source
from spark.pipelines import audit
from spark.session import session
from spark.windows import Window, midnight
from tests.spark.past import shift, tell
from tools.bench.facts import facts_of
from tools.bench.lived import live


@dataclass(frozen=True, slots=True)
class Ledger:
    """A database with a past that is over: its events are of the days from `first` to before `until`."""

    dsn: str
    first: date
    until: date
    events: int

    @property
    def words(self) -> list[str]:
        """The window, for a pipeline."""
        return ["--from", str(self.first), "--to", str(self.until)]

    @property
    def window(self) -> Window:
        return Window(midnight(self.first), midnight(self.until))


Take = Callable[[SparkSession, Ledger, Path], int]


def read_events(spark: SparkSession, ledger: Ledger, _: Path) -> int:
    """The whole ledger by the data source."""
    return consumed(source.frame(spark, ledger.dsn, "lease_events", window=ledger.window))


def read_jdbc(spark: SparkSession, ledger: Ledger, _: Path) -> int:
    """The same by Spark's JDBC reader: one cursor, one snapshot for all of it."""
    table = f"(SELECT * FROM holdfast.lease_events WHERE at < '{ledger.until}') e"
    reader = spark.read.format("jdbc").options(**jdbc.options(ledger.dsn), dbtable=table, fetchsize="5000")
    return consumed(reader.load())


def read_stream(spark: SparkSession, ledger: Ledger, folder: Path) -> int:
    """The whole ledger as a stream, in its own batches."""
    seen = 0

    def batch(frame: DataFrame, _: int) -> None:
        nonlocal seen
        seen += consumed(frame.where(frame["at"] < ledger.window.end))

    source.register(spark)
    options = {"dsn": ledger.dsn, "table": "lease_events", "starting": "earliest", "rows_per_batch": "200000"}
    stream = spark.readStream.format("holdfast").options(**options).load().writeStream.foreachBatch(batch)
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(1_800), "the stream goes on"
    return seen


def archive(spark: SparkSession, ledger: Ledger, folder: Path) -> int:
    """Every closed day of the three tables into files, read back and marked. The events among their rows."""
    with psycopg.connect(ledger.dsn, autocommit=True) as database:
        database.execute("DELETE FROM holdfast.archived_days")
        run(spark, ledger, "archive", "--to", str(folder))
        marked = "SELECT sum(rows)::bigint FROM holdfast.archived_days WHERE of_table = 'lease_events'"
        [(rows,)] = database.execute(marked)
    return int(rows)


def audit_all(spark: SparkSession, ledger: Ledger, _: Path) -> int:
    """The pipeline `audit` over all of it."""
    found = audit.run(spark, ledger.dsn, ledger.window)
    assert found.counts == {}, "\n".join(audit.report_lines(found))
    return found.events


def minutes(name: str) -> Take:
    """A pipeline that puts minutes right, where none is wrong."""

    def take(spark: SparkSession, ledger: Ledger, _: Path) -> int:
        said = run(spark, ledger, name, *ledger.words)
        assert said.endswith("; 0 were missing or different"), said
        return ledger.events

    return take


def failures(spark: SparkSession, ledger: Ledger, folder: Path) -> int:
    """The report on a window."""
    run(spark, ledger, "failures", *ledger.words, "--html", str(folder / "failures.html"))
    return ledger.events


def run(spark: SparkSession, ledger: Ledger, name: str, *words: str) -> str:
    """A pipeline: what it says on stdout."""
    pipeline, parser, said = pipelines.load(name), ArgumentParser(), StringIO()
    pipeline.arguments(parser)
    with redirect_stdout(said):
        code = pipeline.main(spark, ledger.dsn, parser.parse_args(words))
    assert code == 0, said.getvalue()
    return said.getvalue().strip()


def consumed(frame: DataFrame) -> int:
    """How many rows there are, each looked at with all of its columns."""
    rows: int = frame.selectExpr("count(*) AS n", "max(hash(*))").collect()[0]["n"]
    return rows


TAKES: dict[str, Take] = {
    "read": read_events,
    "read by JDBC": read_jdbc,
    "stream": read_stream,
    "throughput": minutes("throughput"),
    "latency": minutes("latency"),
    "failures": failures,
    "archive": archive,
    "audit": audit_all,
}


async def prepared(dsn: str, events: int) -> tuple[Ledger, dict[str, object]]:
    """The ledger of a database, once there are so many events and all are of days that are over; and the facts."""
    if await schema.check(dsn):
        await schema.upgrade(dsn)
    database = await asyncpg.connect(dsn)
    pools = await open_pools(dsn, hot=2, rest=2, prepared_statements=True)
    until = datetime.now(UTC).date()
    try:
        before = "SELECT count(*) FROM holdfast.lease_events"
        if (made := await database.fetchval(before)) < events:
            await live(dsn, events - made)
        if await database.fetchval("SELECT max(at) >= $1::date FROM holdfast.lease_events", until):
            await shift(database)
            await database.execute("VACUUM ANALYZE holdfast.lease_events, holdfast.results, holdfast.archive")
        await tell(pools, since="3 days")
        [(first, made)] = await database.fetch(
            "SELECT min(at AT TIME ZONE 'UTC')::date, count(*) FROM holdfast.lease_events WHERE at < $1::date", until
        )
        payload = await database.fetchval("SELECT avg(octet_length(payload))::int FROM holdfast.jobs")
        known = await facts_of(database, payload)
    finally:
        await pools.close(5)
        await database.close()
    return Ledger(dsn, first, until, made), known | {"load": os.getloadavg()[0]}


@contextmanager
def server(dsn: str | None) -> Iterator[str]:
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
    parser = argparse.ArgumentParser(prog="python -m tools.bench.spark_reads", description=__doc__)
    parser.add_argument("--dsn", help="a database of its own, filled where it is not yet; else one is made and removed")
    parser.add_argument("--events", type=int, default=1_000_000, help="how many there are to be (1000000)")
    parser.add_argument("--rounds", type=int, default=2, help="of each figure, of which the best counts (2)")
    parser.add_argument("--only", choices=TAKES, action="append", help="only this figure; may be given again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the facts there")
    args = parser.parse_args(argv)
    with server(args.dsn) as dsn:
        ledger, known = asyncio.run(prepared(dsn, args.events))
        print("\n".join(f"{name:20} {value}" for name, value in known.items()), flush=True)
        print(f"{ledger.events:,} events", flush=True)
        figures: dict[str, float] = {}
        with session("bench", master="local[*]") as spark:
            source.frame(spark, dsn, "lease_events", "mail", ledger.window).count()  # what the first read starts
            for name in args.only or TAKES:
                figures[name] = min(timed(TAKES[name], spark, ledger) for _ in range(args.rounds))
                rate = ledger.events / figures[name]
                print(f"{name:20} {figures[name]:8.1f} s  {rate:10,.0f} events/s", flush=True)
    if args.json:
        taken = {name: round(seconds, 2) for name, seconds in figures.items()}
        run = {"facts": known, "events": ledger.events, "rounds": args.rounds, "spark": taken}
        args.json.write_text(json.dumps(run, indent=1) + "\n")
    return 0


def timed(take: Take, spark: SparkSession, ledger: Ledger) -> float:
    """Seconds that it took. Fails unless every event was there."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        rows = take(spark, ledger, Path(folder))
        took = time.monotonic() - began
    assert rows == ledger.events, f"{rows} of {ledger.events} events"
    return took


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
