"""Proves from the ledger, or its archive, that nothing was lost and no two leases of a job overlapped."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession

from spark import windows
from spark.analysis.faults import FAULTS, TOPICS, faults, loose_ends
from spark.analysis.job_histories import EVENTS, histories
from spark.archive import day_partitions, kept_days
from spark.archive.day_files import Files
from spark.archive.kept_days import rows
from spark.errors import Mistake
from spark.progress import Progress
from spark.source import days, frame
from spark.source.connection import Connection, connect
from spark.texts import clean_line
from spark.windows import Window, midnight

TABLE: Final = "lease_events"
SETTLE_SECONDS: Final = 60.0
# The events of two jobs in one transaction have two times. So events are read from a little before the window until a
# little after it. A fault belongs to the window that contains its time.
MARGIN: Final = timedelta(minutes=1)

_NOW = "SELECT clock_timestamp()"
# The limits of docs/semantics.md, section 2. After a change, processes use a topic's old settings for up to 30 s.
_TOPICS = """
    SELECT t.id, t.created_at >= %s, own.settled_at,
           CASE WHEN t.max_deliveries IS NULL
                THEN greatest(least(own.retries, coalesce(nullif(own.threshold, 0), own.retries)), 1)
                WHEN t.on_exhausted <> 'redeliver' THEN t.max_deliveries END,
           CASE WHEN letters.type = 'queue' THEN greatest(own.settled_at, letters.created_at) END
    FROM holdfast.topics t
    CROSS JOIN holdfast.defaults d
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.version = 1 THEN t.created_at ELSE t.updated_at + interval '35 s' END AS settled_at,
               coalesce(t.max_retries, d.max_retries) AS retries,
               coalesce(t.dlq_threshold, t.max_retries, d.dlq_threshold) AS threshold
    ) own
    LEFT JOIN holdfast.topics letters ON letters.name = coalesce(t.dead_letter, t.name || '.dlq')
"""


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an audit: the number of faults by name, and the earliest ones with the events of their jobs."""

    window: Window
    events: int
    jobs: int
    topics: int
    older: int  # jobs that began before the window, whose earlier state is unknown
    counts: dict[str, int]
    examples: list[tuple[Row, list[Row]]]


def arguments(parser: ArgumentParser) -> None:
    windows.arguments(parser, "default: everything that is kept")
    kept_days.arguments(parser)
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="most counterexamples to print; default: 20")


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Returns 1 if there is a counterexample. Raises Mistake."""
    if args.limit < 0:
        raise Mistake(f"--limit {args.limit}: must be 0 or more")
    asked = None if (args.day, args.start, args.end) == (None, None, None) else windows.window(args)
    files = None if args.from_files is None else Files(spark, args.from_files)
    found = run(spark, dsn, asked, files, limit=args.limit)
    print("\n".join(report_lines(found)))
    return 1 if found.counts else 0


def run(
    spark: SparkSession, dsn: str, asked: Window | None = None, files: Files | None = None, *, limit: int = 20
) -> Findings:
    """Audit a window, or everything that is kept. Raises Mistake."""
    with Progress("audited events") as progress, connect(dsn, read_only=True, purpose="audit") as database:
        window, end = settle_window(database, asked or kept_window(database, dsn, files))
        window = readable_window(dsn, window, files)
        if files is not None and not set(kept_days.days_of(window)) & set(kept_days.archived_days(dsn, TABLE, files)):
            progress.say(f"note: those files have no complete day of {window}")
        topics = spark.createDataFrame(topic_rows(database, window), TOPICS)
        history = checkpoint(histories(events(spark, dsn, Window(window.start - MARGIN, end), files)))
        sums = history.selectExpr(
            "count(*) AS events", "count_if(n = 1) AS jobs", "count(DISTINCT topic_id) AS topics",
            "count_if(n = 1 AND NOT begins) AS older",
        ).collect()[0]  # fmt: skip
        progress.advance(sums["events"])
        # The table of jobs is read after the events, and later events after that: a job that is in neither is lost.
        loose = checkpoint(loose_ends(history, frame(spark, dsn, "jobs", columns=("topic_id", "seq"))))
        if not loose.isEmpty():
            later = events(spark, dsn, Window(end, datetime.now(UTC) + timedelta(days=1)), files)
            loose = loose.join(later, ["topic_id", "seq"], "left_anti")
        found = checkpoint(within(faults(history, topics).unionByName(loose), window))
        counts = {row["fault"]: row["count"] for row in found.groupBy("fault").count().collect()}
        shown = examples(history, found, limit) if counts else []
    return Findings(window, sums["events"], sums["jobs"], sums["topics"], sums["older"], counts, shown)


def kept_window(database: Connection, dsn: str, files: Files | None) -> Window:
    """The window from the first day that is kept, in files or in the database."""
    first = min([*days.list_days(database, TABLE), *kept_days.archived_days(dsn, TABLE, files)])
    return Window(midnight(first), datetime.max.replace(tzinfo=UTC))


def settle_window(database: Connection, asked: Window) -> tuple[Window, datetime]:
    """Cut the window at now, and wait until no earlier event can appear. Returns it, and the end of the events to read.

    Raises Mistake if a writing transaction stays open for SETTLE_SECONDS.
    """
    # The clock first: a transaction that writes an earlier time holds a lock that wait_for_writers finds. Transaction
    # ids would not do: they are assigned after the clock is read, and a snapshot's xmax is not above all of them.
    (now,) = _row(database, _NOW)
    window = Window(asked.start, min(asked.end, now))
    if day_partitions.wait_for_writers(database, SETTLE_SECONDS):
        raise Mistake(f"a transaction that writes has been open for {SETTLE_SECONDS:.0f} s: end it, and try again")
    return window, min(window.end + MARGIN, now)


def readable_window(dsn: str, window: Window, files: Files | None) -> Window:
    """Cut the window at the oldest day that is kept.

    Raises Mistake if a later day can't be read: a job that ended on it would count as lost.
    """
    there = kept_days.locate_days(dsn, TABLE, Window(window.start - MARGIN, max(window.end, datetime.now(UTC))), files)
    there.check("audit", since_oldest=True)
    start = max(window.start, midnight(there.oldest)) if there.oldest else window.start
    if start >= window.end:
        raise Mistake(f"audit: nothing is kept of {window}; the oldest day that is kept is {there.oldest}")
    return Window(start, window.end)


def events(spark: SparkSession, dsn: str, window: Window, files: Files | None) -> DataFrame:
    """The events of a window: archived days from files, the others from the database."""
    return rows(spark, dsn, TABLE, window, files, columns=EVENTS)


def topic_rows(database: Connection, window: Window) -> list[tuple[Any, ...]]:
    """The existing topics, with the columns of spark.analysis.faults.TOPICS."""
    return database.execute(_TOPICS, [window.start - MARGIN]).fetchall()


def within(found: DataFrame, window: Window) -> DataFrame:
    """The faults in the window."""
    return found.where(found["at"].between(window.start, window.end - timedelta(microseconds=1)))


def examples(history: DataFrame, found: DataFrame, limit: int) -> list[tuple[Row, list[Row]]]:
    """The earliest `limit` faults, with the events of their jobs in order."""
    chosen = found.orderBy("at", "topic", "seq", "fault").limit(limit).collect()
    wanted = sorted({(one["topic_id"], seq) for one in chosen for seq in (one["seq"], one["other"]) if seq is not None})
    keys = history.sparkSession.createDataFrame(wanted, "topic_id int, seq bigint")
    events: dict[tuple[int, int], list[Row]] = {key: [] for key in wanted}
    for row in history.join(keys.hint("broadcast"), ["topic_id", "seq"]).orderBy("at", "tx", "n").collect():
        events[row["topic_id"], row["seq"]].append(row)
    return [
        (one, [row for seq in (one["seq"], one["other"]) for row in events.get((one["topic_id"], seq), [])])
        for one in chosen
    ]


def report_lines(found: Findings) -> Iterator[str]:
    yield f"{found.events:,} events of {found.jobs:,} jobs in {found.topics:,} topics, {found.window}"
    if found.older:
        yield f"{found.older:,} of the jobs began earlier: what happened to them before the window is not checked"
    if not found.counts:
        yield "no counterexample"
        return
    total = sum(found.counts.values())
    kinds = ", ".join(f"{fault} {found.counts[fault]:,}" for fault in FAULTS if fault in found.counts)
    yield f"{total:,} counterexample{'s' if total > 1 else ''}: {kinds}"
    for fault, events in found.examples:
        yield ""
        other = "" if fault["other"] is None else f" (job {fault['other']})"
        yield f"{fault['fault']}: job {fault['seq']} of {fault['topic']} {FAULTS[fault['fault']]}{other}"
        yield from _events(fault, events)
    if total > len(found.examples):
        yield ""
        yield f"and {total - len(found.examples):,} more: --limit"


def _events(fault: Row, events: Sequence[Row]) -> Iterator[str]:
    for row in events:
        mark = ">" if (row["seq"], row["at"]) == (fault["seq"], fault["at"]) else " "
        words = [f"{mark} {row['at'].astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"]  # Spark's rows are in local time
        words += [f"{row['seq']:>6} {row['event']:<13} {row['deliveries']}", clean_line(row["node"] or "")]
        words += [f"lease {row['lease_id'][:8]}"] if row["lease_id"] else []
        words += [f"until {row['until'].astimezone(UTC):%H:%M:%S.%f}"] if row["until"] else []
        words += [clean_line(row["detail"], 60)] if row["detail"] else []
        yield "  ".join(words).rstrip()


def checkpoint(one: DataFrame) -> DataFrame:
    """Read the frame once and keep it, so that everything derived from it has the same state."""
    return one.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def _row(database: Connection, statement: str, *values: object) -> tuple[Any, ...]:
    row = database.execute(statement, values).fetchone()
    assert row is not None
    return row
