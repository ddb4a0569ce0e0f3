"""Archived jobs of a window become jobs again: of the same topic or of another one, each once."""

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
from spark.archive.kept_days import Kept, kept, rows
from spark.errors import Mistake, reason
from spark.progress import Progress
from spark.source.connection import connect
from spark.windows import Window

TABLE: Final = "archive"
FIFO: Final = ".fifo"  # where a job without a dedupe id has its payload's
MOST_NAMED: Final = 10  # days
NOT_KEPT: Final = "ids and seqs, deliveries, results, delays and times, the time to live (the topic's counts), webhooks"


def arguments(parser: ArgumentParser) -> None:
    windows.arguments(parser, "when they were completed; it has to be over")
    parser.add_argument("--topic", required=True, help="whose jobs; those of an earlier topic of the name count, too")
    parser.add_argument("--into", metavar="TOPIC", help="a queue that exists; the same, if left out")
    parser.add_argument("--where", metavar="EXPR", help="Spark SQL over the archive's columns: deliveries > 1 AND …")
    kept_days.arguments(parser)
    parser.add_argument("--run", metavar="NAME", help="the same is done once; once more under a name of its own")
    parser.add_argument("--dry-run", action="store_true", help="count, and write nothing")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be replayed, and where to. The same is done once."""

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
        """What dedupe ids are made of; None where jobs need none, and are placed faster without."""
        return self.write_id if self.into.endswith(FIFO) else None


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    if args.day is None and args.end is None:
        raise Mistake("which end? A window up to now is another one each time: --day, or --from and --to")
    asked = Asked(args.topic, args.into or args.topic, windows.window(args), args.where, args.run)
    files = None if args.from_files is None else Files(spark, args.from_files)
    try:
        return run(spark, dsn, asked, files, dry_run=args.dry_run)
    except PySparkException as error:
        raise Mistake(reason(error)) from error


def run(spark: SparkSession, dsn: str, asked: Asked, files: Files | None = None, *, dry_run: bool = False) -> int:
    """Extract, transform, load. Killed anywhere, it goes again, and each job comes once."""
    _must_be_closed(dsn, asked.window)
    there = kept(dsn, TABLE, asked.window, files)
    print(
        f"replay of {asked.topic}, {asked.window}, into {asked.into}; in files: {len(there.files)} days, "
        f"in the database: {len(there.database)}"
    )
    for note in notes(there):
        print(f"note: {note}")
    before = writes.find(dsn, asked.write_id)
    if before is not None:
        print(f"nothing to do: this was replayed before, {before}; --run NAME does it once more")
        return 0
    if not (there.files or there.database):
        raise Mistake(f"nothing is kept of {asked.window}; the oldest day that is kept is {there.oldest}")
    archived = extract(spark, dsn, asked, files)
    if dry_run:
        every, last = archived.count(), transform(archived).count()
        print(f"{every:,} jobs; {last:,} would be enqueued, {every - last:,} not: a later one has their key")
        print(f"not kept: {NOT_KEPT}")
        print("they become claimable all at once; the topic's throughput_limit holds their claims to a rate")
        return 0
    with Progress("jobs") as progress:
        written = writes.enqueue(transform(archived, asked.ids), dsn, asked.into, asked.write_id)
        progress.advance(written.jobs)
        if not written.jobs and (hint := topics.note(dsn, asked.topic)):
            progress.say(hint)
    print(f"enqueued {written}; not kept: {NOT_KEPT}")
    return 0


def notes(there: Kept) -> list[str]:
    """What a person should know of where the days are. Raises Mistake for a day that is in other files only."""
    found = [
        f"{day} is read from the database; {there.marks[day]} may have more: --from-files"
        for day in there.database
        if day in there.marks
    ]
    for day in there.nowhere:
        if day in there.marks:
            raise Mistake(f"{day} is in files only, at {there.marks[day]}: --from-files the folder that has it")
    if there.nowhere:
        more = f" and {len(there.nowhere) - MOST_NAMED} more" if len(there.nowhere) > MOST_NAMED else ""
        found.append(f"kept nowhere: {', '.join(map(str, there.nowhere[:MOST_NAMED]))}{more}")
    return found


def extract(spark: SparkSession, dsn: str, asked: Asked, files: Files | None) -> DataFrame:
    """The archived jobs that are asked for, as the table has them. Raises Mistake for an expression that can't be."""
    frame = rows(spark, dsn, TABLE, asked.window, files, topic=asked.topic)
    try:
        return frame if asked.where is None else frame.where(asked.where)
    except PySparkException as error:
        raise Mistake(f"--where {asked.where}: {reason(error)}") from None


def transform(archived: DataFrame, ids: str | None = None) -> DataFrame:
    """Jobs as they are enqueued, in the order in which they were completed; `ids`: dedupe ids, one's own each.

    Of several with one key the last counts, as in an enqueue. A dead letter's key and group are data, and stay behind.
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
    """Raises Mistake for a window that may have more jobs later: they would never be replayed."""
    with connect(dsn, read_only=True, purpose="replay") as db:
        [(now,)] = db.execute("SELECT clock_timestamp()")
        if window.end > now:
            raise Mistake(f"the window ends at {window.end.isoformat()}, and in the database it is {now.isoformat()}")
        for writer in day_partitions.settled(db):
            if writer.may_write_before(window.end):
                raise Mistake(f"{writer.name} may still write into this window: wait for its end")
