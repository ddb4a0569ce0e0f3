"""A database with a past: the service's own work on it, moved to days that are over."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import psycopg
from pyspark.sql import SparkSession

from app.base.db.pool import Pools
from app.features.stats import sweeps as stats
from tests.api.dialect import Body, Topic
from tests.engine.machines import new_machine
from tests.reapers.days import days_ago

TIMES = {"lease_events": "at", "results": "completed_at", "archive": "finished_at"}
SHIFTED = {**{table: (column,) for table, column in TIMES.items()}, "lease_events": ("at", "until", "began_at")}
SHIFT = """
    DO $$
    DECLARE
        day timestamptz;
    BEGIN
        FOR day IN SELECT DISTINCT date_trunc('day', {column} - interval '1 day', 'UTC') FROM holdfast.{table} LOOP
            EXECUTE format('CREATE TABLE IF NOT EXISTS holdfast.{table}_%s PARTITION OF holdfast.{table}
                            FOR VALUES FROM (%L) TO (%L)',
                           to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD'), day, day + interval '1 day');
        END LOOP;
        UPDATE holdfast.{table} SET {changes};
    END $$"""


@dataclass(frozen=True)
class World:
    """A service, and the database that it has to itself."""

    dsn: str
    pools: Pools
    http: httpx.AsyncClient

    async def topic(self, name: str, **settings: object) -> Topic:
        topic = Topic(self.http, name)
        await topic.put(**settings)
        return topic

    async def work(self, topic: Topic, records: list[Body], results: list[Any] | None = None) -> list[int]:
        """Enqueue, claim and ack: the jobs' seqs."""
        seqs: list[int] = (await topic.append(*records))["seqs"]
        jobs = (await topic.claim(max=len(seqs)))["claimed"]
        assert sorted(job["$seq"] for job in jobs) == seqs
        leases = {job["$seq"]: job["lease_id"] for job in jobs}
        fields = {} if results is None else {"results": results}
        answer = await topic.ack("n", seqs, lease_ids=[leases[seq] for seq in seqs], **fields)
        assert answer["acked"] == len(seqs)
        return seqs

    async def move(self, days: int) -> date:
        """All that was done up to now was done so many days ago: which day that is."""
        for table, column in TIMES.items():
            await days_ago(self.pools, days, table, column)
        return (datetime.now(UTC) - timedelta(days=days)).date()

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.pools.rest.fetch(statement)]

    async def payloads(self, topic: str) -> list[str]:
        """Of a topic's jobs, in their order."""
        jobs = f"SELECT convert_from(payload, 'UTF8') FROM holdfast.jobs WHERE topic = '{topic}' ORDER BY seq"
        return [text for (text,) in await self.rows(jobs)]

    async def marks(self) -> list[tuple[Any, ...]]:
        return await self.rows("SELECT of_table, day, rows FROM holdfast.archived_days ORDER BY of_table, day")


async def tell(pools: Pools, since: str = "5 min") -> None:
    """The service's sweep has told of all minutes from so long ago up to now, as if two had gone by meanwhile."""
    await pools.rest.execute(
        "UPDATE holdfast.topic_stats_progress SET filled_to = date_trunc('minute', now()) - $1::text::interval, "
        "guessed_to = '-infinity', marked_at = now() + interval '2 min', "
        "mark = pg_snapshot_xmax(pg_current_snapshot())",
        since,
    )
    machine = new_machine(pools)
    await stats.fill_minutes(machine.pools, machine.engine)


async def shift(database: asyncpg.Pool[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]) -> date:
    """All that was done up to now was done a day earlier, at the same times of day: which day was the first."""
    for table, columns in SHIFTED.items():
        changes = ", ".join(f"{column} = {column} - interval '1 day'" for column in columns)
        statement = SHIFT.format(table=table, column=TIMES[table], changes=changes)
        await database.execute(statement)
    first: date = await database.fetchval("SELECT min(at AT TIME ZONE 'UTC')::date FROM holdfast.lease_events")
    return first


async def run(pipeline: Any, spark: SparkSession, dsn: str, *words: str) -> int:
    """A pipeline by its words, as the command line takes them: its exit code."""
    parser = ArgumentParser()
    pipeline.arguments(parser)
    code: int = await aside(pipeline.main, spark, dsn, parser.parse_args(words))
    return code


async def aside(call: Any, *args: Any, **named: Any) -> Any:
    """In a thread: this loop goes on serving."""

    def run() -> Any:
        # A writer looks its format up in the session that is active in the thread: this makes it so.
        SparkSession.builder.getOrCreate().createDataFrame([], "n int")
        return call(*args, **named)

    return await asyncio.to_thread(run)


def connected(dsn: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(dsn, autocommit=True)
