"""Days in files: where they lie, what says that one is whole, and how they are read again.

    <root>/<table>/day=2026-11-21/attempt=5f1c…-e07a…/topic=orders/part-….parquet
    <root>/<table>/day=2026-11-21/attempt=5f1c…-e07a…/_holdfast.json

Each attempt to archive a day writes into a folder that no other one has, so none can harm what another has finished.
The mark in the database says which of them counts; nobody reads another. The manifest `_holdfast.json` is written when
everything else was read back. Earlier versions had no attempts, and wrote into the day's own folder: their marks say
so. Folders are named as Spark names them, `:` as `%3A`. A topic's name that is too long for a folder is cut, and the
manifest has it whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from hashlib import sha256
from secrets import token_hex
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from spark.archive.checksums import Sum, total
from spark.archive.day_partitions import Mark, Part
from spark.errors import Mistake
from spark.folders import Folder

MANIFEST: Final = "_holdfast.json"
FORMAT: Final = 1
ATTEMPT: Final = "attempt="
# A folder's name has 255 bytes at most in most file systems, "topic=" is 6 of them, and an escaped character three.
LONGEST: Final = 240
KEPT: Final = 150  # characters of a longer name, before a mark that no topic's name can have, and a digest
CUT: Final = "~"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished day holds: its columns, and the sums of its rows by topic."""

    schema: StructType
    topics: Mapping[str, Sum]

    def text(self) -> str:
        """As it is kept: the same for the same rows."""
        whole = total(self.topics)
        kept = {
            "format": FORMAT,
            "rows": whole.rows,
            "checksum": str(whole.checksum),
            "topics": [
                {"topic": topic, "folder": folder_of(topic), "rows": held.rows, "checksum": str(held.checksum)}
                for topic, held in sorted(self.topics.items())
            ],
            "schema": self.schema.jsonValue(),
        }
        return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def parse(cls, text: str) -> Manifest | None:
        """None for what is no manifest. Raises Mistake for one of a later version."""
        try:
            kept: dict[str, Any] = json.loads(text)
            if kept["format"] != FORMAT:
                raise Mistake(f"{MANIFEST} has the format {kept['format']}, which a later version wrote")
            topics = {one["topic"]: Sum(one["rows"], int(one["checksum"])) for one in kept["topics"]}
            return cls(StructType.fromJson(kept["schema"]), topics)
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class Day:
    """Where the files of a day are, and what they hold."""

    folder: Folder
    manifest: Manifest


class Files:
    """The days under one root, of all tables."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = Folder(spark, root)

    def folder(self, part: Part, mark: Mark) -> Folder:
        """Where a marked day is, if it is here: the root may have moved since."""
        return self._root / part.table / mark.location.rpartition(f"/{part.table}/")[2]

    def day(self, part: Part, mark: Mark) -> Day | None:
        """None if what was marked is not here. Raises OSError if that can't be seen."""
        folder = self.folder(part, mark)
        text = folder.read(MANIFEST)
        manifest = None if text is None else Manifest.parse(text)
        return None if manifest is None or total(manifest.topics) != mark.held else Day(folder, manifest)

    def days(self, table: str, marks: Mapping[Part, Mark]) -> dict[date, Day]:
        """The marked days of a table that are here, in the order of their marks."""
        found = {part.day: self.day(part, mark) for part, mark in marks.items() if part.table == table}
        return {at: day for at, day in found.items() if day is not None}

    def attempt(self, part: Part, database: str) -> Folder:
        """A new folder, for one attempt of this database (its epoch) to archive a day."""
        return self._day(part) / f"{_prefix(database)}{token_hex(6)}"

    def sweep(self, part: Part, database: str, marked: str | None) -> None:
        """Remove what this database's attempts have left unfinished, but for what is `marked`, whatever it has become.
        For whoever has the right to mark the day: no other run can mark one of these any more. Finished ones stay: a
        copy of the database, which has the same epoch, may have marked them."""
        day = self._day(part)
        kept = (marked or "").rpartition("/")[2]
        for name in day.names():
            if name.startswith(_prefix(database)) and name != kept and (day / name).read(MANIFEST) is None:
                (day / name).delete()

    def write(self, folder: Folder, frame: DataFrame, time: str) -> None:
        """A day's rows, into an attempt's folder; `time` is the column that they are put in order by. Not finished:
        `finish` does that."""
        (
            frame.withColumn("topic", _folder(f.col("topic")))
            .hint("rebalance", "topic")
            .sortWithinPartitions("topic", time)
            .write.partitionBy("topic")
            .option("compression", "zstd")
            .parquet(folder.path)
        )

    def finish(self, day: Day) -> None:
        """Say that a day is whole."""
        day.folder.write(MANIFEST, day.manifest.text())

    def set_aside(self, part: Part, mark: Mark) -> str | None:
        """Put what was marked under a name that neither this nor Spark reads: where that is; None for nothing."""
        folder = self.folder(part, mark)
        now = datetime.now(UTC)
        return folder.move(f"_damaged-{part.day}-{now:%Y%m%dT%H%M%S%fZ}") if folder.exists() else None

    def _day(self, part: Part) -> Folder:
        return self._root / part.table / f"day={part.day}"

    def frame(self, table: str, days: Iterable[Day]) -> DataFrame:
        """The rows of these days, with the table's columns in their order; a column that a day does not have is NULL.

        Raises Mistake where the days have one column with two types.
        """
        days = list(days)
        schema = _merged(day.manifest.schema for day in days)
        paths = [day.folder.path for day in days if day.manifest.topics]
        names = {folder_of(topic): topic for day in days for topic in day.manifest.topics}
        cut = {folder: topic for folder, topic in names.items() if folder != topic}
        # A schema, lest Spark take a topic's name for a number or a date.
        read = self._spark.read.schema(StructType([*schema, StructField("day", StringType())])).option(
            "basePath", (self._root / table).path
        )
        # Spark takes folders for one table only if they are equally deep.
        attempts = [path for path in paths if path.rpartition("/")[2].startswith(ATTEMPT)]
        frames = [
            read.parquet(*alike).withColumn("topic", _topic(f.col("topic"), cut)).select(*schema.names)
            for alike in (attempts, [path for path in paths if path not in set(attempts)])
            if alike
        ]
        return reduce(DataFrame.unionAll, frames) if frames else self._spark.createDataFrame([], schema)


def _prefix(database: str) -> str:
    return f"{ATTEMPT}{sha256(database.encode()).hexdigest()[:12]}-"


def folder_of(topic: str) -> str:
    """The name of a topic's folder, before Spark escapes it."""
    if len(topic) + 2 * topic.count(":") <= LONGEST:
        return topic
    return f"{topic[:KEPT].replace(':', '_')}{CUT}{sha256(topic.encode()).hexdigest()[:16]}"


def _folder(topic: Column) -> Column:
    cut = f.concat(
        f.translate(f.substring(topic, 1, KEPT), ":", "_"), f.lit(CUT), f.substring(f.sha2(topic, 256), 1, 16)
    )
    length = f.length(topic) + f.lit(2) * (f.length(topic) - f.length(f.translate(topic, ":", "")))
    return f.when(length <= LONGEST, topic).otherwise(cut)


def _topic(folder: Column, cut: Mapping[str, str]) -> Column:
    if not cut:
        return folder
    names = f.create_map(*(f.lit(one) for pair in cut.items() for one in pair))
    return f.coalesce(f.element_at(names, folder), folder)


def _merged(schemas: Iterable[StructType]) -> StructType:
    fields: dict[str, StructField] = {}
    for schema in schemas:
        for field in schema:
            if fields.setdefault(field.name, field).dataType != field.dataType:
                raise Mistake(f"the column {field.name} changes its type within these days: read them apart")
    return StructType(list(fields.values()))
