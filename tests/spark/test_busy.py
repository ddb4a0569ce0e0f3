"""Reads don't hold up the queue: claims are as quick as beside a job of Spark's that reads nothing of it.

Both kinds of work take turns within one run, and of the rounds of each the median counts: a machine that freezes for a
second spoils the round that it hits, and not the comparison. Where they differ there are more rounds, and the median
is of all of them: what was chance goes, and what has a reason stays. Where they agree at once, more would only take
longer: reads that hold claims up do so in each round.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark import source
from tests.launch import services
from tests.processes import until
from tests.spark.nothing import Nothing
from tests.spark.test_pages import reader
from tests.stalls import slowness

TABLES = "lease_events", "jobs"
# Rounds of a kind, one after the other: in this order what changes with time changes both.
TURNS = ("tables", 1), ("files", 2), ("tables", 2), ("files", 1)
TRIES = 3  # of all turns
SECONDS = 1.2  # of a round
ENOUGH = 150  # claims of a round, of which the p99 leaves out one
PATIENCE = 30.0  # seconds more, for a machine that does other things as well
WORKERS = 6
BACKLOG = 15_000
MOST = 1.5  # times as long as beside files
# Or so many ms more for each time that the machine is slower than the one that budgets are for: what PostgreSQL takes
# of two cores for a read is then more than they have left.
SLOW_MS = 75
QUEUE = "busy"


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


class Load:
    """Producers and workers on a queue; `took` gets how long each claim took that began in a round."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.took: list[float] | None = None
        self.is_over = False

    async def produce(self) -> None:
        while not self.is_over:
            await self.call("", {"records": [{"data": n} for n in range(WORKERS * 2)]})
            await asyncio.sleep(0.01)

    async def work(self, node: str) -> None:
        while not self.is_over:
            took, began = self.took, time.monotonic()
            claimed = (await self.call("/claim", {"node": node, "max": 2}))["claimed"]
            if took is not None:
                took.append(time.monotonic() - began)
            await self.call("/ack", {"node": node, "seqs": [job["$seq"] for job in claimed]})
            await asyncio.sleep(0.01)

    async def call(self, verb: str, body: dict[str, object]) -> dict[str, list[dict[str, int]]]:
        answer = await self.http.post(f"/v0/topics/{QUEUE}{verb}", json=body)
        answer.raise_for_status()
        found: dict[str, list[dict[str, int]]] = answer.json()
        return found


class Jobs:
    """The same of Spark's work over and over, batches and a stream: on the queue's tables, and on nothing of it."""

    def __init__(self, spark: SparkSession, dsn: str, folder: Path) -> None:
        self.spark, self.dsn, self.folder, self.runs = spark, dsn, folder, 0
        source.register(spark)
        spark.dataSource.register(Nothing)
        for table in TABLES:
            (folder / table).mkdir()
            whole = reader(dsn, table, partitions="2")
            for n, part in enumerate(whole.partitions()):
                pq.write_table(pa.Table.from_batches(whole.read(part)), folder / table / f"{n}.parquet")
        reads, files = spark.read.format("holdfast").options(dsn=dsn, partitions="2"), spark.read.format("nothing")
        self.frames = {
            "tables": [reads.option("table", table).load() for table in TABLES],
            "files": [files.options(table=table, folder=str(folder / table)).load() for table in TABLES],
        }
        for frame in itertools.chain(*self.frames.values()):
            write(frame)

    def stream(self, beside: str) -> StreamingQuery:
        reads = self.spark.readStream.option("table", "lease_events")
        if beside == "tables":
            return self.started(reads.format("holdfast").options(dsn=self.dsn, starting="latest").load())
        return self.started(reads.format("nothing").option("folder", str(self.folder / "lease_events")).load())

    def started(self, frame: DataFrame) -> StreamingQuery:
        """A stream that has read something."""
        self.runs += 1
        sink = frame.writeStream.format("noop").option("checkpointLocation", str(self.folder / f"run{self.runs}"))
        query = sink.start()
        until(lambda: any(one.numInputRows for one in query.recentProgress), 60, or_show=query.exception)
        return query


def write(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


@pytest.mark.timeout(900)
async def test_claims_beside_full_reads_and_a_stream_are_as_quick_as_beside_the_same_work_on_nothing(
    spark: SparkSession, new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    dsn = await new_database()
    with services(tmp_path) as start:
        url = start(DATABASE_URL=dsn).up()
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            (await http.put(f"/v0/topics/{QUEUE}", json={"type": "queue"})).raise_for_status()
            load = Load(http)
            for _ in range(BACKLOG // 5000):
                await load.call("", {"records": [{"data": "x" * 100}] * 5000})
            running = asyncio.gather(load.produce(), *(load.work(f"w{n}") for n in range(WORKERS)))
            try:
                jobs = await asyncio.to_thread(Jobs, spark, dsn, tmp_path)
                p99s, is_close = await asyncio.to_thread(compared, load, jobs)
            finally:
                load.is_over = True
                await running
    assert is_close, p99s


def compared(load: Load, jobs: Jobs) -> tuple[dict[str, list[float]], bool]:
    """The p99 of claims in each round beside each kind of work, in ms, and whether the medians are close.

    That is found out once: `slowness` differs from call to call.
    """
    took: dict[str, list[list[float]]] = {"tables": [], "files": []}
    for _ in range(TRIES):
        for beside, count in TURNS:
            query, frames = jobs.stream(beside), itertools.cycle(jobs.frames[beside])
            try:
                for _ in range(count):
                    read = rows_read(query)
                    took[beside].append(one_round(load, frames))
                    until(partial(has_read_more, query, read), PATIENCE, or_show=query.exception)
            finally:
                query.stop()
        p99s = {name: [round(percentile(one, 0.99) * 1000, 1) for one in each] for name, each in took.items()}
        print("p99 of claims, in ms:", p99s)
        if is_close := are_close(p99s):
            break
    return p99s, is_close


def rows_read(query: StreamingQuery) -> dict[int, int]:
    """The rows of each batch that is over."""
    return {one.batchId: one.numInputRows for one in query.recentProgress}


def has_read_more(query: StreamingQuery, before: dict[int, int]) -> bool:
    """Whether a stream is alive, and has read rows since then. Raises AssertionError if it is dead."""
    assert query.exception() is None, query.exception()
    assert query.isActive
    return any(rows for batch, rows in rows_read(query).items() if batch not in before)


def are_close(p99s: dict[str, list[float]]) -> bool:
    tables, files = median(p99s["tables"]), median(p99s["files"])
    allowed = max(MOST * files, files + SLOW_MS * (slowness() - 1))
    print(
        f"beside tables {tables:.1f} ms; the bound is {MOST * files:.1f} ms, allowed on this machine {allowed:.1f} ms"
    )
    return tables <= allowed


def one_round(load: Load, frames: Iterator[DataFrame]) -> list[float]:
    """Claims while whole frames are read, one after the other."""
    took: list[float] = []
    load.took = took
    end = time.monotonic() + SECONDS
    while (over := time.monotonic() - end) < 0 or len(took) < ENOUGH:
        assert over < PATIENCE, f"{len(took)} claims in {SECONDS + over:.0f} s"
        write(next(frames))
    load.took = None
    return took
