"""The audit finds each kind of fault, by its name, and finds nothing where nothing is wrong."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from spark import source
from spark.checksums import Sum
from spark.days import Part
from spark.faults import FAULTS, TOPICS, faults, loose_ends
from spark.files import Files, Manifest
from spark.histories import EVENTS, histories
from spark.pipelines import audit
from spark.source.connection import connect
from spark.source.tables import TABLES
from spark.windows import Window
from tests.spark.conftest import Lived
from tests.spark.mutants import MUTANTS, Event, Faults, Key, Ledger

SEEDS = (1, 2, 3)
COPIES = 1_000  # topic ids of a copy are that many more than those of the one before


def test_a_mixed_load_is_clean(spark: SparkSession, lived: Lived, tmp_path: Path) -> None:
    """Its day from files, what came after it from the database."""
    files, part = Files(spark, str(tmp_path)), Part(lived.began.date(), "lease_events")
    events = source.frame(spark, lived.dsn, "lease_events")
    files.write(part, events, "at")
    names = [row["topic"] for row in events.select("topic").distinct().collect()]
    files.finish(part, Manifest(events.schema, {name: Sum(0, 0) for name in names}))
    report = audit.run(spark, lived.dsn, files=files)
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
        ledger = Ledger(dict(by_job), live, random.Random(seed))
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
