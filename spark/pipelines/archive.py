"""Closed days of events, results and archived jobs become Parquet files, and are marked once these are verified."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

import psycopg
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark import source
from spark.archive import day_partitions
from spark.archive.checksums import Sum, of_frame, total
from spark.archive.day_files import Day, Files, Manifest
from spark.archive.day_partitions import Mark, Part
from spark.errors import Mistake, reason
from spark.progress import Progress
from spark.source.connection import connect
from spark.windows import Window, day

TABLES: Final = ("lease_events", "results", "archive")
TIMES: Final = {"lease_events": "at", "results": "completed_at", "archive": "finished_at"}
SPARKS: Final = (PySparkException, Py4JJavaError)
ATTEMPTS: Final = 2  # a sweep may delete rows of a deleted topic while a day is being written


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="DIR", help="a folder of any file system that Spark reaches")
    parser.add_argument("--day", metavar="DATE", help="only this day, as 2026-11-21; every closed one, if left out")
    parser.add_argument("--table", choices=TABLES, help="only this one; all three, if left out")
    parser.add_argument(
        "--verify", action="store_true", help="read marked days again; marks of damaged ones are taken back"
    )


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """0; 1 if a day that is over could not be archived, or files are not what was marked."""
    only = Only(None if args.day is None else day(args.day, "--day"), args.table)
    files = Files(spark, args.to)
    return verify(dsn, files, only) if args.verify else run(spark, dsn, files, only)


@dataclass(frozen=True, slots=True)
class Only:
    """Which days are meant; None: any."""

    day: date | None = None
    table: str | None = None

    def covers(self, part: Part) -> bool:
        return self.day in (None, part.day) and self.table in (None, part.table)


EVERY: Final = Only()


class Left(Exception):
    """Why a day is left to another run."""


def run(spark: SparkSession, dsn: str, files: Files, only: Only = EVERY) -> int:
    """Archive every day that is closed and not marked, the oldest first; a line for each on stdout. Then remove what
    runs that stalled and were killed have left of days that others have marked."""
    parts, writers = day_partitions.unmarked(dsn)
    parts = [part for part in parts if only.covers(part)]
    left = 0
    with Progress("days", len(parts)) as progress:
        if not parts:
            progress.say("nothing to archive: what is meant is not over, or is marked, or is not in the database")
        for part in parts:
            try:
                for writer in writers:
                    if writer.may_write_before(part.end):
                        raise Left(f"not closed: {writer.name} may still write")
                print(_line(part, archive(spark, dsn, files, part), "verified"), flush=True)
            except (Left, psycopg.Error, OSError, *SPARKS) as error:
                left += 1
                progress.say(f"{part}: {reason(error)}")
            progress.advance()
        for part in filter(only.covers, day_partitions.marked(dsn)):
            try:
                sweep(dsn, files, part)
            except (psycopg.Error, OSError, *SPARKS) as error:
                progress.say(f"{part}: what runs have left there: {reason(error)}")
    return 1 if left else 0


def sweep(dsn: str, files: Files, part: Part) -> None:
    """Remove what runs that were killed have left of a day, unless another run has it."""
    with day_partitions.marking(dsn, part) as marking:
        if marking is not None:
            files.sweep(part, marking.database, marking.location)


def archive(spark: SparkSession, dsn: str, files: Files, part: Part) -> Mapping[str, Sum]:
    """Write a day into a folder of its own, read it back, mark it: its sums by topic. Killed anywhere, it goes again.

    Raises Left, and what the database, the file system and Spark raise.
    """
    with day_partitions.marking(dsn, part) as marking:
        if marking is None or marking.location is not None:
            raise Left("another run has it")
        files.sweep(part, marking.database, None)
        for _ in range(ATTEMPTS):
            frame = extract(spark, dsn, part)
            day = Day(files.attempt(part, marking.database), Manifest(frame.schema, _sums(dsn, part, frame.schema)))
            is_whole = False
            try:
                if day.manifest.topics:
                    files.write(day.folder, frame, TIMES[part.table])
                if _held(files, part, day) == day.manifest.topics:
                    # The mark is nobody else's to see before this transaction ends. If another run has the day by now,
                    # there is none, and this attempt stays unfinished.
                    marking.mark(total(day.manifest.topics), day.folder.path)
                    files.finish(day)
                    is_whole = True
                    return day.manifest.topics
            finally:
                if not is_whole:
                    day.folder.delete()
        raise Left("what was read back is not what the database has, twice: is somebody writing to that folder?")


def extract(spark: SparkSession, dsn: str, part: Part) -> DataFrame:
    """A day's rows, with every column that the table has. Raises Mistake for a column that the data source has not."""
    frame = source.frame(spark, dsn, part.table, window=Window(part.start, part.end))
    with connect(dsn, read_only=True, purpose="archive") as db:
        there = day_partitions.columns(db, part.table)
    if there != frame.columns:
        unknown = ", ".join(sorted(set(there) ^ set(frame.columns))) or "their order"
        raise Mistake(f"{part.table} has columns that this version does not know ({unknown}): use the service's own")
    return frame


def verify(dsn: str, files: Files, only: Only = EVERY) -> int:
    """Read the files of every day again that is marked as being here.

    The mark of a day that is not what it was is taken back, if the day is still in the database: so it stays there, and
    the next run writes it anew. The files are set aside: of rows past their window they may be the only ones.
    """
    marks = {part: mark for part, mark in day_partitions.marks(dsn).items() if only.covers(part)}
    here = {part: mark for part, mark in marks.items() if mark.location == files.folder(part, mark).path}
    bad = 0
    with Progress("days", len(here)) as progress:
        if len(here) < len(marks):
            progress.say(f"{len(marks) - len(here)} days are marked as being elsewhere, and are not looked at")
        if not marks:
            progress.say("no day that is meant is marked")
        for part, mark in here.items():
            day = files.day(part, mark)
            if day is None:
                fault = "there is no manifest that says what was marked"
            elif _held(files, part, day) != day.manifest.topics:
                fault = "the files are not what the manifest says"
            else:
                print(_line(part, day.manifest.topics, "as marked"), flush=True)
                progress.advance()
                continue
            bad += 1
            try:
                left = _taken_back(dsn, files, part, mark)
            except (psycopg.Error, OSError) as error:
                left = f"still marked: {reason(error)}"
            print(f"{part}: {fault}; {left}", flush=True)
            progress.advance()
    return 1 if bad else 0


def _taken_back(dsn: str, files: Files, part: Part, mark: Mark) -> str:
    with day_partitions.unmarking(dsn, part, mark) as is_there:
        if not is_there:
            return "the database has it no more, or another run has marked it anew"
        # Before the mark is gone for others: killed here, the day is marked, and the next look finds no manifest.
        aside = files.set_aside(part, mark)
    return "not marked any more: run again" + ("" if aside is None else f"; what was there is now at {aside}")


def _sums(dsn: str, part: Part, schema: StructType) -> dict[str, Sum]:
    with connect(dsn, read_only=True, purpose="archive") as db, Progress(f"{part}: rows") as progress:
        return day_partitions.sums(db, part, schema, progress.advance)


def _held(files: Files, part: Part, day: Day) -> dict[str, Sum] | None:
    """What a day's files hold; None if they can't be read."""
    try:
        return of_frame(files.frame(part.table, [day]), day.manifest.schema, "topic")
    except SPARKS:
        return None


def _line(part: Part, topics: Mapping[str, Sum], state: str) -> str:
    whole = total(topics)
    return f"{part.table:<12} {part.day}  {whole.rows:>12,} rows  {len(topics):>6,} topics  {whole.checksum:x}  {state}"
