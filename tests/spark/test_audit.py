"""The audit finds nothing where nothing is wrong, whatever goes on meanwhile, and says what it can not see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from app.kernel.claim import consumer
from app.kernel.model import HeldJob, Seq
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS
from spark import source
from spark.archive import day_partitions
from spark.archive.checksums import Sum
from spark.archive.day_files import Day, Files, Manifest
from spark.archive.day_partitions import Part
from spark.archive.kept_days import days_of
from spark.errors import Mistake
from spark.pipelines import audit
from spark.source.connection import Connection, connect
from spark.windows import Window, midnight
from tests.api.dialect import Topic
from tests.queue.calls import until
from tests.spark.conftest import Lived
from tests.spark.past import World, aside, connected

EVERY_EVENT = {
    "acked", "cancelled", "claimed", "dead_lettered", "deleted", "enqueued", "expired", "extended", "failed",
    "released", "requeued", "superseded", "unblocked", "updated",
}  # fmt: skip


def test_a_mixed_load_is_clean(spark: SparkSession, lived: Lived, tmp_path: Path) -> None:
    """Its days from files, what came after them from the database."""
    files, marks = Files(spark, str(tmp_path)), list[tuple[str, date, str]]()
    for day in days_of(Window(lived.began, lived.ended)):
        part = Part(day, "lease_events")
        events = source.frame(spark, lived.dsn, part.table, window=Window(part.start, part.end))
        folder = files.attempt(part, "")
        files.write(folder, events, "at")
        names = [row["topic"] for row in events.select("topic").distinct().collect()]
        files.finish(Day(folder, Manifest(events.schema, {name: Sum(0, 0) for name in names})))
        marks.append((part.table, day, folder.path))
    with connected(lived.dsn) as db:
        db.cursor().executemany("INSERT INTO holdfast.archived_days VALUES (%s, %s, 0, 0, %s)", marks)
        try:
            report = audit.run(spark, lived.dsn, files=files)
        finally:
            db.execute("DELETE FROM holdfast.archived_days")
    assert (report.counts, report.older) == ({}, 0), "\n".join(audit.report_lines(report))
    assert report.events == lived.events
    assert lived.kinds == EVERY_EVENT, "the load lacks something"


async def test_a_queue_in_motion_has_no_fault(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack of before the window's end commits while the audit has begun; others leave after the events were read, and
    two move between two pages of the jobs, to where these have been read already."""
    loop, settled, read = asyncio.get_running_loop(), day_partitions.wait_for_writers, source.frame

    def here(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    dying = await world.topic("m", max_deliveries=1, dead_letter="a.dead")
    revived = await world.topic("b", max_deliveries=1, dead_letter="z.dead")
    await revived.nack("n", [await one(revived)], errors=["gone"])
    seqs = [await one(dying) for _ in range(3)]
    [waiting] = await dying.add(1)
    [(lease,)] = await world.rows(f"SELECT lease_id FROM holdfast.jobs WHERE topic = 'm' AND seq = {seqs[0]}")
    late = await asyncpg.connect(world.dsn)
    transaction = late.transaction()
    await transaction.start()
    topic = await store.get(world.pools.rest, "m", DEFAULTS)
    assert topic is not None
    assert await consumer.ack(late, topic.topic, [HeldJob(Seq(seqs[0]), lease, None)]) == {0}

    def awaited(database: Connection, patience: float) -> list[day_partitions.Writer]:
        assert len(settled(database, 0)) == 1
        here(transaction.commit())
        return settled(database, patience)

    async def leave() -> None:
        await dying.ack("n", seqs[1:2])
        await dying.post("cancel", seqs=[waiting])
        await dying.nack("n", [await one(dying)])  # came and went

    async def move() -> None:
        await dying.nack("n", seqs[2:])
        operation = (await world.http.post("/v0/topics/b/requeue", json={"filter": {"error": "gone"}})).json()["id"]
        await until(lambda: over(world, operation), "it is requeued", 20)

    def in_two_pages(spark: SparkSession, dsn: str, table: str, **given: Any) -> DataFrame:
        here(leave())
        first = [audit.checkpoint(read(spark, dsn, table, topic, **given)) for topic in ("a.dead", "b")]
        here(move())
        second = [audit.checkpoint(read(spark, dsn, table, topic, **given)) for topic in ("m", "z.dead")]
        return reduce(DataFrame.unionByName, first + second)

    monkeypatch.setattr(day_partitions, "wait_for_writers", awaited)
    monkeypatch.setattr(audit, "frame", in_two_pages)
    report = await aside(audit.run, spark, world.dsn)
    assert report.counts == {}, "\n".join(audit.report_lines(report))
    end = report.window.end.isoformat()
    assert await world.rows(f"SELECT count(*) FROM holdfast.lease_events WHERE at < '{end}'") == [(report.events,)]
    assert await world.rows("SELECT topic FROM holdfast.jobs ORDER BY 1") == [("a.dead",), ("a.dead",), ("b",)]
    await late.close()


async def one(topic: Topic) -> int:
    """A job of a topic, out for work."""
    await topic.add(1)
    seq: int = (await topic.take(lease_ms=600_000))["$seq"]
    return seq


async def over(world: World, operation: str) -> bool:
    return (await world.http.get(f"/v0/operations/{operation}")).json()["ended_at"] is not None


async def test_a_day_that_is_nowhere_is_not_certified(
    spark: SparkSession, new_database: Callable[[], Awaitable[str]]
) -> None:
    """Neither one before all that is kept, nor one between the window and now."""
    dsn = await new_database()
    today = midnight(datetime.now(UTC).date())
    first, second = today - timedelta(days=3), today - timedelta(days=2)
    with pytest.raises(Mistake, match="nothing is kept"):
        audit.run(spark, dsn, Window(first, second))
    with connected(dsn) as db:
        db.execute(
            f"CREATE TABLE holdfast.lease_events_{first:%Y%m%d} PARTITION OF holdfast.lease_events "
            f"FOR VALUES FROM ('{first}') TO ('{second}')"
        )
        with pytest.raises(Mistake, match="can't be read"):
            audit.run(spark, dsn, Window(first, second))
        db.execute(f"DROP TABLE holdfast.lease_events_{first:%Y%m%d}")
    later = today + timedelta(hours=1)
    assert audit.readable_window(dsn, Window(first, later), None) == Window(today, later), (
        "the report names what was read"
    )


async def test_what_begins_while_the_clock_is_asked_is_waited_for(new_database: Callable[[], Awaitable[str]]) -> None:
    """With a clock that takes half a second, in which a transaction begins to write."""
    dsn = await new_database()
    writer = await asyncpg.connect(dsn)
    await writer.execute(
        "CREATE SCHEMA slow; CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.5); RETURN pg_catalog.clock_timestamp(); END $$"
    )
    slow = f"{dsn}{'&' if '?' in dsn else '?'}options=-csearch_path%3Dslow,pg_catalog"

    def settled() -> None:
        with connect(slow, read_only=True, purpose="audit") as database:
            audit.settle_window(database, Window(datetime(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)))

    settling = asyncio.create_task(asyncio.to_thread(settled))
    await asyncio.sleep(0.3)
    async with writer.transaction():
        await writer.execute("LOCK TABLE holdfast.lease_events IN ROW EXCLUSIVE MODE")
        done, _ = await asyncio.wait([settling], timeout=1)
        assert not done
    await settling
    await writer.close()


def test_what_a_node_sends_does_not_reach_the_terminal_raw() -> None:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    event = Row(seq=1, at=at, event="nacked", deliveries=1, node="n\x1b[2J", lease_id=None, until=None, detail="a\nb")
    [told] = audit._events(event, [event])
    assert told.endswith("1  n·[2J  a·b")
