"""Turns archived jobs of a window into jobs again, in the same topic or another, each once."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window as Over

from spark import topics, windows, writes
from spark.archive import day_partitions, kept_days
from spark.archive.day_files import Files
from spark.archive.kept_days import Kept, locate_days, rows
from spark.errors import Mistake, reason
from spark.progress import Progress
from spark.source.connection import connect
from spark.windows import Window

TABLE: Final = "archive"
FIFO: Final = ".fifo"  # topics where a job without a dedupe id takes its payload's hash
MOST_NAMED: Final = 10  # days
NOT_KEPT: Final = "ids and seqs, deliveries, results, delays and times, the time to live (the topic's counts), webhooks"


def arguments(parser: ArgumentParser) -> None:
    windows.arguments(parser, "when they were completed; it must be over")
    parser.add_argument(
        "--topic", required=True, help="the topic of the jobs, including an earlier topic of the same name"
    )
    parser.add_argument("--into", metavar="TOPIC", help="an existing queue; default: the same topic")
    parser.add_argument("--where", metavar="EXPR", help="Spark SQL over the archive's columns, such as deliveries > 1")
    kept_days.arguments(parser)
    parser.add_argument("--run", metavar="NAME", help="replay the same again, once for each name")
    parser.add_argument("--dry-run", action="store_true", help="count, and write nothing")


@dataclass(frozen=True, slots=True)
class Request:
    """What to replay, and into which topic. Equal requests are replayed once."""

    topic: str
    into: str
    window: Window
    where: str | None = None
    run: str | None = None

    @property
    def write_id(self) -> str:
        return writes.write_id("replay", self.topic, self.into, str(self.window), self.where, self.run)

    @property
    def ids(self) -> str | None:
        """The base of dedupe ids; None if the topic needs none, which is faster."""
        return self.write_id if self.into.endswith(FIFO) else None


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    if args.day is None and args.end is None:
        raise Mistake("give the end with --day or --to: a window up to now would be another one each time")
    request = Request(args.topic, args.into or args.topic, windows.window(args), args.where, args.run)
    files = None if args.from_files is None else Files(spark, args.from_files)
    try:
        return run(spark, dsn, request, files, dry_run=args.dry_run)
    except PySparkException as error:
        raise Mistake(reason(error)) from error


def run(spark: SparkSession, dsn: str, request: Request, files: Files | None = None, *, dry_run: bool = False) -> int:
    """Replay a window. A killed run can be repeated, and each job comes once. Returns the exit code."""
    _must_be_closed(dsn, request.window)
    there = locate_days(dsn, TABLE, request.window, files)
    print(
        f"replay of {request.topic}, {request.window}, into {request.into}; in files: {len(there.files)} days, "
        f"in the database: {len(there.database)}"
    )
    for note in notes(there):
        print(f"note: {note}")
    before = writes.find(dsn, request.write_id)
    if before is not None:
        print(f"nothing to do: this was replayed before, {before}; --run NAME replays it again")
        return 0
    if not (there.files or there.database):
        raise Mistake(f"nothing is kept of {request.window}; the oldest day that is kept is {there.oldest}")
    archived = extract(spark, dsn, request, files)
    if dry_run:
        every, last = archived.count(), transform(archived).count()
        print(f"{every:,} jobs; {last:,} would be enqueued, {every - last:,} not, because a later one has their key")
        print(f"not kept: {NOT_KEPT}")
        print("they become claimable all at once; the topic's throughput_limit limits the rate of claims")
        return 0
    with Progress("jobs") as progress:
        written = writes.enqueue(transform(archived, request.ids), dsn, request.into, request.write_id)
        progress.advance(written.jobs)
        if not written.jobs and (hint := topics.note(dsn, request.topic)):
            progress.say(hint)
    print(f"enqueued {written}; not kept: {NOT_KEPT}")
    return 0


def notes(there: Kept) -> list[str]:
    """Notes on where the days are. Raises Mistake if a day is only in other files."""
    found = [
        f"{day} is read from the database; {there.marks[day]} may have more: --from-files"
        for day in there.database
        if day in there.marks
    ]
    for day in there.nowhere:
        if day in there.marks:
            raise Mistake(f"{day} is only in files at {there.marks[day]}: give that folder as --from-files")
    if there.nowhere:
        more = f" and {len(there.nowhere) - MOST_NAMED} more" if len(there.nowhere) > MOST_NAMED else ""
        found.append(f"not kept anywhere:  {', '.join(map(str, there.nowhere[:MOST_NAMED]))}{more}")
    return found


def extract(spark: SparkSession, dsn: str, request: Request, files: Files | None) -> DataFrame:
    """The requested archived jobs, with the table's columns. Raises Mistake for an invalid expression."""
    frame = rows(spark, dsn, TABLE, request.window, files, topic=request.topic)
    try:
        return frame if request.where is None else frame.where(request.where)
    except PySparkException as error:
        raise Mistake(f"--where {request.where}: {reason(error)}") from None


def transform(archived: DataFrame, ids: str | None = None) -> DataFrame:
    """The jobs to enqueue, in the order of completion. `ids` is the base of their dedupe ids; None: they get none.

    Of several jobs with one key the last counts, as in an enqueue. A dead letter's key and group are not applied.
    """
    at_first = f.col("original_topic").isNull()
    jobs = archived.select(
        "payload",
        "content_type",
        "metadata",
        "tag",
        f.col("producer").alias("node"),
        f.col("priority").cast("int").alias("priority"),
        "max_deliveries",
        f.when(at_first, f.col("key")).alias("key"),
        f.nullif(f.col("tenant"), f.lit("")).alias("tenant"),
        f.when(at_first, f.col("grp")).alias("group"),
        "finished_at",
        "seq",
        "topic_id",
    )
    own = f.when(f.col("key").isNull(), f.struct("topic_id", "seq"))
    of_key = Over.partitionBy("tenant", "key", own).orderBy(f.desc("finished_at"), f.desc("seq"))
    own_id = f.sha2(f.concat_ws(" ", f.lit(ids), "topic_id", "seq"), 256)
    return (
        jobs.withColumn("place", f.row_number().over(of_key))
        .where("place = 1")
        .orderBy("finished_at", "seq")
        .select(
            *("payload", "content_type", "metadata", "tag", "node", "priority", "max_deliveries"),
            *("key", "tenant", "group"),
            *([] if ids is None else [own_id.alias("dedupe_id")]),
        )
    )


def _must_be_closed(dsn: str, window: Window) -> None:
    """Raises Mistake if the window may still get jobs, which would never be replayed."""
    with connect(dsn, read_only=True, purpose="replay") as db:
        [(now,)] = db.execute("SELECT clock_timestamp()")
        if window.end > now:
            raise Mistake(f"the window ends at {window.end.isoformat()}, but the database's time is {now.isoformat()}")
        for writer in day_partitions.wait_for_writers(db):
            if writer.may_write_before(window.end):
                raise Mistake(f"{writer.name} may still write to this window: wait for its end")
