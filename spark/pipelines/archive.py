"""Writes closed days of events, results and archived jobs to Parquet files, and marks them once they are verified."""

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
ATTEMPTS: Final = 2  # a sweep may delete rows of a deleted topic during a write


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="DIR", help="a folder on any file system that Spark reaches")
    parser.add_argument("--day", metavar="DATE", help="only this day, such as 2026-11-21; default: every closed day")
    parser.add_argument("--table", choices=TABLES, help="only this table; default: all three")
    parser.add_argument(
        "--verify", action="store_true", help="read marked days again, and remove the marks of damaged ones"
    )


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Returns 0; 1 if a finished day could not be archived, or if files don't match their mark."""
    only = Only(None if args.day is None else day(args.day, "--day"), args.table)
    files = Files(spark, args.to)
    return verify(dsn, files, only) if args.verify else run(spark, dsn, files, only)


@dataclass(frozen=True, slots=True)
class Only:
    """The selected days and tables; None: all."""

    day: date | None = None
    table: str | None = None

    def covers(self, part: Part) -> bool:
        return self.day in (None, part.day) and self.table in (None, part.table)


EVERY: Final = Only()


class Skipped(Exception):
    """A day is left for a later run; the text says why."""


def run(spark: SparkSession, dsn: str, files: Files, only: Only = EVERY) -> int:
    """Archive every closed day without a mark, the oldest first, with a line for each on stdout.

    Then delete files that killed and stalled runs left for days that other runs have marked. Returns the exit code.
    """
    parts, writers = day_partitions.list_unmarked(dsn)
    parts = [part for part in parts if only.covers(part)]
    left = 0
    with Progress("days", len(parts)) as progress:
        if not parts:
            progress.say(
                "nothing to archive: the selected days are not over, are marked already, or are not in the database"
            )
        for part in parts:
            try:
                for writer in writers:
                    if writer.may_write_before(part.end):
                        raise Skipped(f"not closed: {writer.name} may still write")
                print(_line(part, archive(spark, dsn, files, part), "verified"), flush=True)
            except (Skipped, psycopg.Error, OSError, *SPARKS) as error:
                left += 1
                progress.say(f"{part}: {reason(error)}")
            progress.advance()
        for part in filter(only.covers, day_partitions.list_marked(dsn)):
            try:
                sweep(dsn, files, part)
            except (psycopg.Error, OSError, *SPARKS) as error:
                progress.say(f"{part}: files of earlier runs could not be deleted: {reason(error)}")
    return 1 if left else 0


def sweep(dsn: str, files: Files, part: Part) -> None:
    """Delete files that killed runs left for a day, unless another run works on it."""
    with day_partitions.lock_day(dsn, part) as marking:
        if marking is not None:
            files.sweep(part, marking.database, marking.location)


def archive(spark: SparkSession, dsn: str, files: Files, part: Part) -> Mapping[str, Sum]:
    """Write a day to its own folder, read it back and mark it. Returns its sums by topic. A killed run can be repeated.

    Raises Skipped, and errors of the database, the file system and Spark.
    """
    with day_partitions.lock_day(dsn, part) as marking:
        if marking is None or marking.location is not None:
            raise Skipped("another run is archiving it")
        files.sweep(part, marking.database, None)
        for _ in range(ATTEMPTS):
            frame = extract(spark, dsn, part)
            day = Day(files.attempt(part, marking.database), Manifest(frame.schema, _sums(dsn, part, frame.schema)))
            is_whole = False
            try:
                if day.manifest.topics:
                    files.write(day.folder, frame, TIMES[part.table])
                if _read_sums(files, part, day) == day.manifest.topics:
                    # Other sessions see the mark once this transaction commits. If another run has marked the day,
                    # marking fails, and this attempt stays unfinished.
                    marking.mark(total(day.manifest.topics), day.folder.path)
                    files.finish(day)
                    is_whole = True
                    return day.manifest.topics
            finally:
                if not is_whole:
                    day.folder.delete()
        raise Skipped("the files differed from the database twice: does another program write to that folder?")


def extract(spark: SparkSession, dsn: str, part: Part) -> DataFrame:
    """A day's rows with all columns. Raises Mistake if the table has columns that the data source does not know."""
    frame = source.frame(spark, dsn, part.table, window=Window(part.start, part.end))
    with connect(dsn, read_only=True, purpose="archive") as db:
        there = day_partitions.columns(db, part.table)
    if there != frame.columns:
        unknown = ", ".join(sorted(set(there) ^ set(frame.columns))) or "their order"
        raise Mistake(
            f"{part.table} has columns that this version does not know ({unknown}): use the service's version"
        )
    return frame


def verify(dsn: str, files: Files, only: Only = EVERY) -> int:
    """Read the files of every day that is marked in this folder again. Returns the exit code.

    If a day's files are damaged and the database still has the day, its mark is removed, so that retention keeps it and
    the next run writes it again. The files are renamed, because they may have the only copy of rows past their window.
    """
    marks = {part: mark for part, mark in day_partitions.marks(dsn).items() if only.covers(part)}
    here = {part: mark for part, mark in marks.items() if mark.location == files.folder(part, mark).path}
    bad = 0
    with Progress("days", len(here)) as progress:
        if len(here) < len(marks):
            progress.say(f"{len(marks) - len(here)} days are marked in other folders and are not checked")
        if not marks:
            progress.say("none of the selected days is marked")
        for part, mark in here.items():
            day = files.day(part, mark)
            if day is None:
                fault = "the manifest of the marked files is missing"
            elif _read_sums(files, part, day) != day.manifest.topics:
                fault = "the files don't match the manifest"
            else:
                print(_line(part, day.manifest.topics, "as marked"), flush=True)
                progress.advance()
                continue
            bad += 1
            try:
                left = _remove_mark(dsn, files, part, mark)
            except (psycopg.Error, OSError) as error:
                left = f"still marked: {reason(error)}"
            print(f"{part}: {fault}; {left}", flush=True)
            progress.advance()
    return 1 if bad else 0


def _remove_mark(dsn: str, files: Files, part: Part, mark: Mark) -> str:
    with day_partitions.remove_mark(dsn, part, mark) as is_there:
        if not is_there:
            return "the database no longer has it, or another run has marked it again"
        # Before the mark is removed: if killed here, the day stays marked, and the next check finds no manifest.
        aside = files.set_aside(part, mark)
    return "its mark was removed: run again" + ("" if aside is None else f"; the damaged files are at {aside}")


def _sums(dsn: str, part: Part, schema: StructType) -> dict[str, Sum]:
    with connect(dsn, read_only=True, purpose="archive") as db, Progress(f"{part}: rows") as progress:
        return day_partitions.sum_rows(db, part, schema, progress.advance)


def _read_sums(files: Files, part: Part, day: Day) -> dict[str, Sum] | None:
    """The sums of a day's files; None if they can't be read."""
    try:
        return of_frame(files.frame(part.table, [day]), day.manifest.schema, "topic")
    except SPARKS:
        return None


def _line(part: Part, topics: Mapping[str, Sum], state: str) -> str:
    whole = total(topics)
    return f"{part.table:<12} {part.day}  {whole.rows:>12,} rows  {len(topics):>6,} topics  {whole.checksum:x}  {state}"
