"""How many jobs a second df.write puts in, from a cached frame, Spark's start not counted; and who waits meanwhile.

    python -m tools.bench.spark_write [--rows 500000] [--runs 3] [--beside]

--beside: claims go on beside a write, of another topic, at a steady pace. They are compared with claims beside the same
write into another database of the same server: the same work for the machine, and nothing in common.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from urllib.parse import urlsplit, urlunsplit

import psycopg
from pyspark.sql import DataFrame, SparkSession

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from spark import source
from spark.session import session
from tests.launch import call, services

TARGET = 50_000  # jobs a second on two cores: issue 9
PAUSE = 0.02  # seconds between two rounds of the claimer
PAD = 100  # bytes of each payload, about


def main(argv: Sequence[str]) -> int:
    """The exit code: 1 if the best of the runs is below the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--jdbc", action="store_true", help="JDBC's options, too, on a tenth of the rows")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as folder:
        postgres = EmbeddedPostgres(Path(folder), connections=100)  # as ./run has it: fsync on, the defaults
        try:
            url = postgres.start()
            asyncio.run(schema.upgrade(url))
            with services(Path(folder)) as serve, session("benchmark", master="local[2]") as spark:
                service = serve(DATABASE_URL=url).up()
                for topic in ("written", "claimed"):
                    call(f"{service}/v0/topics/{topic}", "PUT", {"type": "queue", "durable": True})
                rate(cached(spark, 20_000), url, "written")  # Python's workers are started, and code is compiled
                frame = cached(spark, args.rows)
                rates = [rate(frame, url, "written") for _ in range(args.runs)]
                if args.jdbc:
                    plain(spark, args.rows // 10, url)
                if args.beside:
                    compare(frame, url, asyncio.run(another(url)), service)
        finally:
            postgres.stop()
    print(f"median {statistics.median(rates):,.0f} jobs/s, best {max(rates):,.0f}; the target is {TARGET:,}")
    return 0 if max(rates) >= TARGET else 1


def cached(spark: SparkSession, rows: int) -> DataFrame:
    """So many rows in two partitions, in memory."""
    pad = "x" * PAD
    frame = spark.range(0, rows, 1, 2).selectExpr(f"""concat('{{"n": ', id, ', "pad": "{pad}"}}') AS payload""").cache()
    frame.count()
    return frame


def rate(frame: DataFrame, dsn: str, topic: str) -> float:
    """Jobs a second of one write."""
    rows = frame.count()
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("CHECKPOINT")
        began = time.time()
        source.enqueue(frame, dsn, topic)
        taken = time.time() - began
        [[at]] = db.execute("SELECT max(committed_at) FROM holdfast.writes").fetchall()  # when the commit began
    staging = at.timestamp() - began
    said = f"staged in {staging:.2f} s, committed in {taken - staging:.2f} s"
    print(f"{rows:,} jobs in {taken:.2f} s, {said}: {rows / taken:,.0f} jobs/s", flush=True)
    return rows / taken


def plain(spark: SparkSession, rows: int, dsn: str) -> None:
    """The same rows by JDBC, with the options that docs/spark.md names; and read again."""
    parts = urlsplit(dsn)
    given = {"user": parts.username or "", "password": parts.password or "", "driver": "org.postgresql.Driver"}
    url = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    frame = cached(spark, rows).selectExpr("'written' AS topic", "payload AS payload_text")
    for words, options in (
        ("", {}),
        ("?reWriteBatchedInserts=true", {}),
        ("?reWriteBatchedInserts=true", {"batchsize": "10000"}),
        ("?reWriteBatchedInserts=true", {"isolationLevel": "NONE"}),
        ("?reWriteBatchedInserts=true", {"numPartitions": "1"}),
    ):
        part = frame if words else frame.limit(rows // 10)
        began = time.time()
        part.write.format("jdbc").mode("append").options(
            **given, url=url + words, dbtable="holdfast.inbox", **options
        ).save()
        taken = time.time() - began
        count = rows if words else rows // 10
        print(f"jdbc {words} {options}: {count:,} in {taken:.2f} s: {count / taken:,.0f} jobs/s", flush=True)
    ranges = {"partitionColumn": "seq", "lowerBound": "1", "upperBound": str(rows * 10), "numPartitions": "2"}
    for options in ({}, {"fetchsize": "1000"}, {"fetchsize": "1000", **ranges}):
        table = f"(SELECT seq, payload, state FROM holdfast.jobs WHERE topic = 'written' AND seq <= {rows * 10}) t"
        began = time.time()
        count = spark.read.format("jdbc").options(**given, url=url, dbtable=table, **options).load().rdd.count()
        taken = time.time() - began
        print(f"jdbc read {options}: {count:,} in {taken:.2f} s: {count / taken:,.0f} rows/s", flush=True)


async def another(url: str) -> str:
    """A second database of the server, with the schema and the topic that is written to."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE DATABASE elsewhere")
    other = urlunsplit(urlsplit(url)._replace(path="/elsewhere"))
    await schema.upgrade(other)
    with psycopg.connect(other, autocommit=True) as db:
        [[topic]] = db.execute("INSERT INTO holdfast.topics (name, type) VALUES ('written', 'queue') RETURNING id")
        db.execute("SELECT holdfast.create_topic_sequence(%s)", (topic,))
    return other


def compare(frame: DataFrame, here: str, elsewhere: str, service: str) -> None:
    """Claims beside a write into their database, and beside one into another."""
    for place, dsn in (("another database", elsewhere), ("the claims' database", here)) * 2:
        taken = beside(service, partial(rate, frame, dsn, "written"))
        cuts = statistics.quantiles(taken, n=100)
        print(
            f"claims beside a write into {place}: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms, "
            f"most {max(taken) * 1000:.1f} ms of {len(taken)}",
            flush=True,
        )


def beside(service: str, work: Callable[[], object]) -> list[float]:
    """How long claims took while this was done, in seconds."""
    over, taken = Event(), []

    def claim() -> None:
        base = f"{service}/v0/topics/claimed"
        while not over.is_set():
            call(base, "POST", {"records": [{"data": n} for n in range(5)]})
            began = time.monotonic()
            jobs = call(f"{base}/claim", "POST", {"node": "w", "max": 5})["claimed"]
            taken.append(time.monotonic() - began)
            call(f"{base}/ack", "POST", {"node": "w", "seqs": [job["$seq"] for job in jobs]})
            time.sleep(PAUSE)

    claimer = Thread(target=claim)
    claimer.start()
    try:
        work()
    finally:
        over.set()
        claimer.join()
    return taken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
