"""audit: proves over the ledger, or its archive, that nothing was lost and no two leases of a job overlapped."""

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
from spark.texts import line
from spark.windows import Window, midnight

TABLE: Final = "lease_events"
SETTLE_SECONDS: Final = 60.0
# What one transaction writes about two jobs has two times. So events are read from a little before the window to a
# little after it; a fault is told in the window that it lies in.
MARGIN: Final = timedelta(minutes=1)

_NOW = "SELECT clock_timestamp()"
# As docs/semantics.md, section 2, has it; after a change of a topic, processes work by the old settings for up to 30 s.
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
class Found:
    """What an audit says: how many faults of each name, and the earliest of them with the events of their jobs."""

    window: Window
    events: int
    jobs: int
    topics: int
    older: int  # jobs that had begun before the window: what they were then is not known
    counts: dict[str, int]
    shown: list[tuple[Row, list[Row]]]


def arguments(parser: ArgumentParser) -> None:
    windows.arguments(parser, "all that is kept, if left out")
    kept_days.arguments(parser)
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="counterexamples to print at most; 20")


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """1 if there is a counterexample."""
    if args.limit < 0:
        raise Mistake(f"--limit {args.limit}: 0 or more")
    asked = None if (args.day, args.start, args.end) == (None, None, None) else windows.window(args)
    files = None if args.from_files is None else Files(spark, args.from_files)
    found = run(spark, dsn, asked, files, limit=args.limit)
    print("\n".join(told(found)))
    return 1 if found.counts else 0


def run(
    spark: SparkSession, dsn: str, asked: Window | None = None, files: Files | None = None, *, limit: int = 20
) -> Found:
    """Audit what happened in a window, or all that is kept. Raises Mistake."""
    with Progress("audited events") as progress, connect(dsn, read_only=True, purpose="audit") as database:
        window, end = settled(database, asked or everything(database, dsn, files))
        window = readable(dsn, window, files)
        if files is not None and not set(kept_days.days_of(window)) & set(kept_days.finished(dsn, TABLE, files)):
            progress.say(f"note: no day of {window} is whole in those files")
        topics = spark.createDataFrame(topic_rows(database, window), TOPICS)
        history = kept(histories(events(spark, dsn, Window(window.start - MARGIN, end), files)))
        sums = history.selectExpr(
            "count(*) AS events", "count_if(n = 1) AS jobs", "count(DISTINCT topic_id) AS topics",
            "count_if(n = 1 AND NOT begins) AS older",
        ).collect()[0]  # fmt: skip
        progress.advance(sums["events"])
        # The table of jobs is read after the events, and what has happened since then after that: a job that is in
        # neither is nowhere.
        loose = kept(loose_ends(history, frame(spark, dsn, "jobs", columns=("topic_id", "seq"))))
        if not loose.isEmpty():
            later = events(spark, dsn, Window(end, datetime.now(UTC) + timedelta(days=1)), files)
            loose = loose.join(later, ["topic_id", "seq"], "left_anti")
        found = kept(within(faults(history, topics).unionByName(loose), window))
        counts = {row["fault"]: row["count"] for row in found.groupBy("fault").count().collect()}
        shown = examples(history, found, limit) if counts else []
    return Found(window, sums["events"], sums["jobs"], sums["topics"], sums["older"], counts, shown)


def everything(database: Connection, dsn: str, files: Files | None) -> Window:
    """From the first day that is kept, in files or in the database."""
    first = min([*days.listed(database, TABLE), *kept_days.finished(dsn, TABLE, files)])
    return Window(midnight(first), datetime.max.replace(tzinfo=UTC))


def settled(database: Connection, asked: Window) -> tuple[Window, datetime]:
    """The window, no later than now, and up to when events are to be read. None of before will appear any more: what
    was under way has ended. Raises Mistake if it has not within SETTLE_SECONDS."""
    # Clock first. Who writes an earlier time has the lock that day_partitions.settled looks for. Transaction ids don't
    # do: one is given after the clock was looked at, and a snapshot's xmax is not above all that are under way.
    (now,) = _row(database, _NOW)
    window = Window(asked.start, min(asked.end, now))
    if day_partitions.settled(database, SETTLE_SECONDS):
        raise Mistake(f"a transaction that writes has been open for {SETTLE_SECONDS:.0f} s: end it, and try again")
    return window, min(window.end + MARGIN, now)


def readable(dsn: str, window: Window, files: Files | None) -> Window:
    """The part of a window that is not before the oldest day that is kept. Raises Mistake if a day from there up to now
    can't be read: nobody knows what was in it, and a job that ended in it would be lost."""
    there = kept_days.kept(dsn, TABLE, Window(window.start - MARGIN, max(window.end, datetime.now(UTC))), files)
    there.check("audit", since_oldest=True)
    start = max(window.start, midnight(there.oldest)) if there.oldest else window.start
    if start >= window.end:
        raise Mistake(f"audit: of {window} nothing is kept; the oldest day that is kept is {there.oldest}")
    return Window(start, window.end)


def events(spark: SparkSession, dsn: str, window: Window, files: Files | None) -> DataFrame:
    """The ledger of a window: the days that are in files from there, the others from the database."""
    return rows(spark, dsn, TABLE, window, files, columns=EVENTS)


def topic_rows(database: Connection, window: Window) -> list[tuple[Any, ...]]:
    """The topics that there are, as spark.analysis.faults.TOPICS has them."""
    return database.execute(_TOPICS, [window.start - MARGIN]).fetchall()


def within(found: DataFrame, window: Window) -> DataFrame:
    """Those whose time lies in the window."""
    return found.where(found["at"].between(window.start, window.end - timedelta(microseconds=1)))


def examples(history: DataFrame, found: DataFrame, limit: int) -> list[tuple[Row, list[Row]]]:
    """The earliest faults, with the events of their jobs in order."""
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


def told(found: Found) -> Iterator[str]:
    """The lines of the report."""
    yield f"{found.events:,} events of {found.jobs:,} jobs in {found.topics:,} topics, {found.window}"
    if found.older:
        yield f"{found.older:,} of the jobs are older than that: what they were before it is not looked at"
    if not found.counts:
        yield "no counterexample"
        return
    total = sum(found.counts.values())
    kinds = ", ".join(f"{fault} {found.counts[fault]:,}" for fault in FAULTS if fault in found.counts)
    yield f"{total:,} counterexample{'s' if total > 1 else ''}: {kinds}"
    for fault, events in found.shown:
        yield ""
        other = "" if fault["other"] is None else f" (job {fault['other']})"
        yield f"{fault['fault']}: job {fault['seq']} of {fault['topic']} {FAULTS[fault['fault']]}{other}"
        yield from _events(fault, events)
    if total > len(found.shown):
        yield ""
        yield f"and {total - len(found.shown):,} more: --limit"


def _events(fault: Row, events: Sequence[Row]) -> Iterator[str]:
    for row in events:
        mark = ">" if (row["seq"], row["at"]) == (fault["seq"], fault["at"]) else " "
        words = [f"{mark} {row['at'].astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"]  # Spark's rows have the time of here
        words += [f"{row['seq']:>6} {row['event']:<13} {row['deliveries']}", line(row["node"] or "")]
        words += [f"lease {row['lease_id'][:8]}"] if row["lease_id"] else []
        words += [f"until {row['until'].astimezone(UTC):%H:%M:%S.%f}"] if row["until"] else []
        words += [line(row["detail"], 60)] if row["detail"] else []
        yield "  ".join(words).rstrip()


def kept(one: DataFrame) -> DataFrame:
    """The frame as it is now: it is read once, and what comes of it is told of one and the same state."""
    return one.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def _row(database: Connection, statement: str, *values: object) -> tuple[Any, ...]:
    row = database.execute(statement, values).fetchone()
    assert row is not None
    return row
