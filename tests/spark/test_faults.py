"""The audit finds each kind of fault, by its name, and nothing else: histories that a queue with that bug would have
written, each in a topic of its own, beside sound ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.analysis.faults import FAULTS, TOPICS, faults, loose_ends
from spark.analysis.job_histories import EVENTS, histories
from spark.pipelines import audit
from spark.source.tables import TABLES
from spark.windows import Window

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST = 2  # deliveries of a job, in all topics
Event = dict[str, Any]


def job(seq: int, *told: str, group: str | None = None, most: int | None = None) -> list[Event]:
    """Its events: second, event, lease and fields, as in "2 claimed a". Deliveries count themselves."""
    events: list[Event] = []
    deliveries = 0
    for text in told:
        at, event, *words = text.split()
        fields = dict(word.split("=") for word in words if "=" in word)
        if event in ("claimed", "extended"):
            fields.setdefault("until", str(float(at) + 9))
        deliveries = int(fields.get("deliveries", deliveries + (event == "claimed")))
        events.append(
            {
                "at": START + timedelta(seconds=float(at)), "seq": seq, "event": event, "deliveries": deliveries,
                "lease_id": next((word for word in words if "=" not in word), None), "node": "w",
                "until": START + timedelta(seconds=float(fields["until"])) if "until" in fields else None,
                "detail": fields["detail"].replace("_", " ") if "detail" in fields else None, "grp": group,
                "max_deliveries": most,
            }
        )  # fmt: skip
    return events


@dataclass(frozen=True)
class Case:
    """Jobs of one topic, what is wrong, by seq, and the seqs that the table of jobs has."""

    jobs: Sequence[list[Event]]
    wrong: dict[int, str]
    live: tuple[int, ...] = ()
    is_whole: bool = True  # all events of the topic are among them


DONE = "1 claimed a", "2 acked a"
FIRST = job(1, "0 enqueued", *DONE, group="g")
CASES = [
    Case([job(1, "0 enqueued", *DONE), job(2, "0 enqueued"), job(3, "0 enqueued", "1 claimed a")], {}, (2, 3)),
    Case([job(1, "0 enqueued until=5", "6 claimed a", "7 released a until=8", "8 claimed b")], {}, (1,)),
    Case([job(1, "0 enqueued", "1 claimed a until=3", "5 claimed b", "6 acked b")], {}),
    Case([FIRST, job(2, "0.5 enqueued detail=blocked", "2 unblocked", "3 claimed b", "4 acked b", group="g")], {}),
    Case([job(1, "0 enqueued", "1 claimed a", "2 dead_lettered a"), job(7, "2 enqueued detail=from_q_1")], {}, (7,)),
    Case([job(1, *DONE)], {}, is_whole=False),
    Case([job(1, "0 enqueued")], {1: "lost"}),
    Case([FIRST, job(2, "0.5 enqueued detail=blocked", group="g")], {2: "lost"}),
    Case([job(1, "0 enqueued", "1 deleted")], {1: "undead"}, (1,)),
    Case([job(1, "0 enqueued", "1 claimed a", "2 dead_lettered a")], {1: "unmoved"}),
    Case([job(7, "2 enqueued detail=from_q_1")], {7: "unheralded"}, (7,)),
    Case([job(1, *DONE)], {1: "unborn"}),
    Case([job(1, "0 enqueued", "0.5 enqueued", *DONE)], {1: "reborn"}),
    Case([job(1, "0 enqueued", *DONE, "3 claimed b", "4 acked b")], {1: "resurrected"}),
    Case([job(1, "0 enqueued", "1 claimed a", "5 claimed b", "6 acked b")], {1: "overlap"}),
    Case(
        [job(1, "0 enqueued", "1 claimed a until=3", "2 extended a", "5 claimed b", "6 acked b")],
        {1: "overlap"},
    ),
    Case([job(1, "0 enqueued until=5", *DONE)], {1: "early"}),
    Case([job(1, "0 enqueued", "1 claimed a", "2 released a until=8", "5 claimed b")], {1: "early"}, (1,)),
    Case([job(1, "0 enqueued detail=blocked", *DONE, group="g")], {1: "blocked"}),
    Case([job(1, "0 enqueued", "1 claimed a", "2 acked b")], {1: "foreign"}),
    Case([job(1, "0 enqueued", "1 claimed a", "2 acked")], {1: "foreign"}),
    Case([job(1, "0 enqueued", "1 claimed a", "2 expired a")], {1: "shielded"}, (1,)),
    Case([job(1, "0 enqueued", "1 claimed a deliveries=2", "2 acked a")], {1: "miscounted"}),
    Case([job(1, "0 enqueued deliveries=1")], {1: "miscounted"}, (1,)),
    Case(
        [job(1, "0 enqueued", "1 claimed a", "2 released a", "3 claimed b", "4 released b", "5 claimed c")],
        {1: "exceeded"},
        (1,),
    ),
    Case([job(1, "0 enqueued", "1 claimed a", "2 released a", "3 claimed b", most=1)], {1: "exceeded"}, (1,)),
    Case([FIRST, job(2, "0.5 enqueued detail=blocked", "1.5 unblocked", group="g")], {2: "together"}, (2,)),
    Case(
        [
            FIRST,
            job(2, "0.2 enqueued detail=blocked", "5 unblocked", group="g"),
            job(3, "0.3 enqueued detail=blocked", "2 unblocked", "3 claimed c", "4 acked c", group="g"),
        ],
        {2: "overtaken"},
        (2,),
    ),
]


def test_each_fault_is_found_and_nothing_else(spark: SparkSession) -> None:
    rows: list[Event] = []
    for number, case in enumerate(CASES):
        of = {"topic_id": number, "topic": "q", "tenant": None}
        for event in (event for events in case.jobs for event in events):
            tx = number * 1000 + (event["at"] - START) // timedelta(seconds=0.1)
            rows.append({**of, **event, "tx": tx})
    events = spark.createDataFrame(
        [tuple(row[name] for name in EVENTS) for row in rows], TABLES["lease_events"].schema(EVENTS)
    )
    topics = [(number, case.is_whole, START, MOST, START) for number, case in enumerate(CASES)]
    live = [(number, seq) for number, case in enumerate(CASES) for seq in case.live]
    history = audit.checkpoint(histories(events))
    found = audit.checkpoint(
        faults(history, spark.createDataFrame(topics, TOPICS)).unionByName(
            loose_ends(history, spark.createDataFrame(live, "topic_id int, seq bigint"))
        )
    )
    seen = sorted((row["topic_id"], row["seq"], row["fault"]) for row in found.collect())
    assert seen == [(n, seq, fault) for n, case in enumerate(CASES) for seq, fault in case.wrong.items()]
    assert {fault for *_, fault in seen} == set(FAULTS)
    told_of(history, found)


def told_of(history: DataFrame, found: DataFrame) -> None:
    """A counterexample is told with the events of its job, the one that shows the fault marked."""
    one = audit.examples(history, found.where("fault = 'together'"), 1)
    window = Window(one[0][0]["at"], one[0][0]["at"] + timedelta(seconds=1))
    lines = list(audit.report_lines(audit.Findings(window, 9, 3, 1, 2, {"together": 4, "lost": 1}, one)))
    assert lines[1:3] == [
        "2 of the jobs began earlier: what happened to them before the window is not checked",
        "5 counterexamples: lost 1, together 4",
    ]
    assert lines[4].startswith("together: job 2 of q")
    assert lines[4].endswith("was released while another job of its group was (job 1)")
    [marked] = [line for line in lines if line.startswith("> ")]
    assert "2 unblocked" in marked
    assert any("1 acked" in line for line in lines)
    assert lines[-1] == "and 4 more: --limit"
