"""The audit finds each kind of fault, by its name, and finds nothing where nothing is wrong."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark import source
from spark.faults import FAULTS, TOPICS, faults, loose_ends
from spark.histories import EVENTS, histories
from spark.pipelines import audit
from spark.source.connection import connect
from spark.windows import Window
from tests.spark.conftest import Lived
from tests.spark.mutants import MUTANTS, Faults, Key, Ledger


@pytest.fixture(scope="module")
def whole(spark: SparkSession, lived: Lived) -> dict[str, DataFrame]:
    """All that an audit reads of the mixed load."""
    with connect(lived.dsn, read_only=True, purpose="audit") as database:
        rows = audit.topic_rows(database, Window(lived.began, lived.ended))
    return {
        "events": audit.kept(source.frame(spark, lived.dsn, "lease_events").select(*EVENTS)),
        "live": audit.kept(source.frame(spark, lived.dsn, "jobs").select("topic_id", "seq")),
        "topics": spark.createDataFrame(rows, TOPICS),
    }


def found(events: DataFrame, live: DataFrame, topics: DataFrame) -> Faults:
    history = audit.kept(histories(events))
    rows = faults(history, topics).unionByName(loose_ends(history, live)).collect()
    return {(row["fault"], (row["topic_id"], row["seq"])) for row in rows}


def test_a_mixed_load_is_clean(spark: SparkSession, lived: Lived) -> None:
    report = audit.run(spark, lived.dsn)
    assert (report.counts, report.older) == ({}, 0), "\n".join(audit.told(report))
    assert report.events == lived.events


def test_a_part_of_it_is_clean_too(spark: SparkSession, lived: Lived, whole: dict[str, DataFrame]) -> None:
    """What lies before a window is not known, and is no fault."""
    middle = lived.began + (lived.ended - lived.began) / 2
    events = whole["events"].where(whole["events"]["at"] >= middle)
    topics = whole["topics"].selectExpr("topic_id", "false AS whole", "settled_at", "most", "dead_log")
    assert found(events, whole["live"], topics) == set()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_mutant_is_found_and_nothing_else(spark: SparkSession, whole: dict[str, DataFrame], seed: int) -> None:
    by_job: dict[Key, list[dict[str, object]]] = defaultdict(list)
    for row in whole["events"].orderBy("at", "tx").collect():
        by_job[row["topic_id"], row["seq"]].append(row.asDict())
    live = {(row["topic_id"], row["seq"]) for row in whole["live"].collect()}
    ledger = Ledger(dict(by_job), live, random.Random(seed))
    expected = {mutant.__name__: mutant(ledger) for mutant in MUTANTS}
    events = spark.createDataFrame([tuple(e[name] for name in EVENTS) for e in ledger.events()], whole["events"].schema)
    seen = found(events, whole["live"], whole["topics"])
    assert {name: fault for name, fault in expected.items() if not fault <= seen} == {}, "missed"
    assert seen - set().union(*expected.values()) == set(), "found where nothing is wrong"
    assert {fault for fault, _ in seen} == set(FAULTS)


def test_it_tells_a_counterexample_and_exits_with_1(
    spark: SparkSession, lived: Lived, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_acks(spark: SparkSession, dsn: str, table: str, **more: object) -> DataFrame:
        frame = source.frame(spark, dsn, table, **more)  # type: ignore[arg-type]
        return frame.where("event <> 'acked' OR topic <> 'renders'") if table == "lease_events" else frame

    monkeypatch.setattr(audit, "frame", without_acks)
    window = Window(lived.began, lived.ended + timedelta(minutes=1))
    report = audit.run(spark, lived.dsn, window, limit=2)
    lines = list(audit.told(report))
    assert set(report.counts) == {"lost"}
    assert lines[1] == f"{report.counts['lost']:,} counterexamples: lost {report.counts['lost']:,}"
    assert sum(line.startswith("lost: job ") for line in lines) == 2
    assert any(line.startswith("> ") and "claimed" in line for line in lines)
    assert lines[-1].endswith("more: --limit")
