"""The audit finds each kind of fault, by its name, and finds nothing where nothing is wrong."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
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
from spark.analysis.faults import FAULTS, TOPICS, faults, loose_ends
from spark.analysis.job_histories import EVENTS, histories
from spark.archive import day_partitions
from spark.archive.checksums import Sum
from spark.archive.day_files import Day, Files, Manifest
from spark.archive.day_partitions import Part
from spark.archive.kept_days import days_of
from spark.errors import Mistake
from spark.pipelines import audit
from spark.source.connection import Connection, connect
from spark.source.tables import TABLES
from spark.windows import Window, midnight
from tests.api.dialect import Topic
from tests.queue.calls import until
from tests.spark.conftest import Lived
from tests.spark.mutants import MUTANTS, Event, Faults, Key, Ledger, follower
from tests.spark.past import World, aside, connected

SEEDS = (1, 2, 3)
COPIES = 1_000  # topic ids of a copy are that many more than those of the one before


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
    assert (report.counts, report.older) == ({}, 0), "\n".join(audit.told(report))
    assert report.events == lived.events


def test_each_mutant_is_found_and_nothing_else(spark: SparkSession, lived: Lived) -> None:
    """Three ledgers with all mutants in each, and one that is cut in the middle: what lay before is not known, and no
    fault. All of them at once, as four times as many topics."""
    with connect(lived.dsn, read_only=True, purpose="audit") as database:
        topics = audit.topic_rows(database, Window(lived.began, lived.ended))
    rows = [row.asDict() for row in source.frame(spark, lived.dsn, "lease_events").orderBy("at", "tx").collect()]
    live = {(row["topic_id"], row["seq"]) for row in source.frame(spark, lived.dsn, "jobs").collect()}
    made: list[Event] = []
    expected: dict[tuple[str, int], Faults] = {}
    for seed in SEEDS:
        by_job: dict[Key, list[Event]] = defaultdict(list)
        for row in rows:
            by_job[row["topic_id"], row["seq"]].append(dict(row))
        ledger = Ledger(dict(by_job), live, {id for id, *_ in topics}, random.Random(seed))
        for mutant in MUTANTS:
            wrong = {(fault, (topic + seed * COPIES, seq)) for fault, (topic, seq) in mutant(ledger)}
            expected[mutant.__name__, seed] = wrong
        made += moved(ledger.events(), seed)
    middle = rows[len(rows) // 2]["at"]
    made += moved([row for row in rows if row["at"] >= middle], 0)

    history = audit.kept(histories(frame_of(spark, made)))
    known = [(id + seed * COPIES, seed > 0, *more) for seed in (0, *SEEDS) for id, _, *more in topics]
    there = [(id + seed * COPIES, seq) for seed in (0, *SEEDS) for id, seq in live]
    found = faults(history, spark.createDataFrame(known, TOPICS)).unionByName(
        loose_ends(history, spark.createDataFrame(there, "topic_id int, seq bigint"))
    )
    found = audit.kept(found)
    seen: Faults = {(row["fault"], (row["topic_id"], row["seq"])) for row in found.collect()}
    assert {name: wrong for name, wrong in expected.items() if not wrong <= seen} == {}, "missed"
    assert seen - set().union(*expected.values()) == set(), "found where nothing is wrong"
    assert {fault for fault, _ in seen} == set(FAULTS)
    told_of(history, found)


async def test_a_queue_in_motion_has_no_fault(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack of before the window's end commits while the audit has begun; others leave after the events were read, and
    two move between two pages of the jobs, to where these have been read already."""
    loop, settled, read = asyncio.get_running_loop(), day_partitions.settled, source.frame

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
        first = [audit.kept(read(spark, dsn, table, topic, **given)) for topic in ("a.dead", "b")]
        here(move())
        second = [audit.kept(read(spark, dsn, table, topic, **given)) for topic in ("m", "z.dead")]
        return reduce(DataFrame.unionByName, first + second)

    monkeypatch.setattr(day_partitions, "settled", awaited)
    monkeypatch.setattr(audit, "frame", in_two_pages)
    report = await aside(audit.run, spark, world.dsn)
    assert report.counts == {}, "\n".join(audit.told(report))
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
    first = today - timedelta(days=3)
    with pytest.raises(Mistake, match="nothing is kept"):
        audit.run(spark, dsn, Window(first, first + timedelta(days=1)))
    database = await asyncpg.connect(dsn)
    await database.execute(
        f"CREATE TABLE holdfast.lease_events_{first:%Y%m%d} PARTITION OF holdfast.lease_events "
        f"FOR VALUES FROM ('{first}') TO ('{first + timedelta(days=1)}')"
    )
    with pytest.raises(Mistake, match="nothing to read"):
        audit.run(spark, dsn, Window(first, first + timedelta(days=1)))
    await database.execute(f"DROP TABLE holdfast.lease_events_{first:%Y%m%d}")
    await database.close()
    later = today + timedelta(hours=1)
    assert audit.readable(dsn, Window(first, later), None) == Window(today, later), "what is told is what was read"


async def test_what_begins_while_the_clock_is_asked_is_waited_for(
    new_database: Callable[[], Awaitable[str]],
) -> None:
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
            audit.settled(database, Window(datetime(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)))

    settling = asyncio.create_task(asyncio.to_thread(settled))
    await asyncio.sleep(0.3)
    async with writer.transaction():
        await writer.execute("LOCK TABLE holdfast.lease_events IN ROW EXCLUSIVE MODE")
        done, _ = await asyncio.wait([settling], timeout=1)
        assert not done
    await settling
    await writer.close()


def test_the_next_turn_is_not_always_of_one_that_was_blocked() -> None:
    """A mutant must not take the third of a group for the one after the first."""
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def job(seq: int, *events: tuple[int, str, str | None]) -> list[Event]:
        of = {"topic_id": 1, "tenant": None, "grp": "g", "seq": seq, "until": None}
        return [{**of, "at": start + timedelta(seconds=at), "event": event, "detail": how} for at, event, how in events]

    jobs = {
        (1, 1): job(1, (0, "enqueued", None), (1, "claimed", None), (2, "acked", None)),
        (1, 2): job(2, (3, "enqueued", None), (4, "claimed", None), (5, "acked", None)),
        (1, 3): job(3, (4, "enqueued", "blocked"), (5, "unblocked", None)),
    }
    ledger = Ledger(jobs, set(), {id for id, _ in jobs}, random.Random(1))
    assert [follower(ledger, key) for key in jobs] == [None, (1, 3), None]


def told_of(history: DataFrame, found: DataFrame) -> None:
    """A counterexample is told with the events of its job, the one that shows the fault marked."""
    one = audit.examples(history, found.where("fault = 'together'"), 1)
    window = Window(one[0][0]["at"], one[0][0]["at"] + timedelta(seconds=1))
    lines = list(audit.told(audit.Found(window, 9, 3, 1, 2, {"together": 4, "lost": 1}, one)))
    assert lines[1:3] == [
        "2 of the jobs are older than that: what they were before it is not looked at",
        "5 counterexamples: lost 1, together 4",
    ]
    job, other = one[0][0]["seq"], one[0][0]["other"]
    assert lines[4].startswith(f"together: job {job} of ")
    assert lines[4].endswith(f"came out while another one of its group was out (job {other})")
    marked = [line for line in lines if line.startswith("> ")]
    assert len(marked) == 1
    assert f"{job} unblocked" in marked[0]
    assert any(f"{other} acked" in line for line in lines)
    assert lines[-1] == "and 4 more: --limit"


def moved(events: Iterable[Event], seed: int) -> list[Event]:
    """As the events of other topics, in other transactions."""
    return [
        {**event, "topic_id": event["topic_id"] + seed * COPIES, "tx": event["tx"] + (seed << 40)} for event in events
    ]


def frame_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    schema = TABLES["lease_events"].schema(EVENTS)
    return spark.createDataFrame([tuple(event[name] for name in EVENTS) for event in events], schema)


def test_what_a_node_sends_does_not_reach_the_terminal_raw() -> None:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    event = Row(seq=1, at=at, event="nacked", deliveries=1, node="n\x1b[2J", lease_id=None, until=None, detail="a\nb")
    [told] = audit._events(event, [event])
    assert told.endswith("1  n·[2J  a·b")
