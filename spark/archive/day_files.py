"""Archived days: their folders, their manifests, and how they are read.


    <root>/<table>/day=2026-11-21/attempt=5f1c…-e07a…/topic=orders/part-….parquet
    <root>/<table>/day=2026-11-21/attempt=5f1c…-e07a…/_holdfast.json

Each attempt to archive a day writes to its own folder, so none can damage another. The mark in the database says which
one counts. The manifest `_holdfast.json` is written after everything else was read back. Earlier versions had no
attempts and wrote to the day's own folder, as their marks say. Folders are named as Spark names them, `:` as `%3A`. A
topic name that is too long for a folder is cut, and the manifest has the whole name.
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
# Most file systems allow 255 bytes in a name. "topic=" takes 6, and an escaped character 3.
LONGEST: Final = 240
KEPT: Final = 150  # characters of a longer name, followed by CUT, which no topic name contains, and a digest
CUT: Final = "~"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a finished day: its columns, and the sums of its rows by topic."""

    schema: StructType
    topics: Mapping[str, Sum]

    def text(self) -> str:
        """The file's text, the same for the same rows."""
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
        """None if the text is not a manifest. Raises Mistake if a later version wrote it."""
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
    """A day's folder and manifest."""

    folder: Folder
    manifest: Manifest


class Files:
    """The archived days of all tables under one root folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = Folder(spark, root)

    def folder(self, part: Part, mark: Mark) -> Folder:
        """Where a marked day is under this root, which may have moved since."""
        return self._root / part.table / mark.location.rpartition(f"/{part.table}/")[2]

    def day(self, part: Part, mark: Mark) -> Day | None:
        """A marked day; None if it is not here. Raises OSError if its manifest can't be read."""
        folder = self.folder(part, mark)
        text = folder.read(MANIFEST)
        manifest = None if text is None else Manifest.parse(text)
        return None if manifest is None or total(manifest.topics) != mark.held else Day(folder, manifest)

    def days(self, table: str, marks: Mapping[Part, Mark]) -> dict[date, Day]:
        """The marked days of a table under this root, in the order of `marks`."""
        found = {part.day: self.day(part, mark) for part, mark in marks.items() if part.table == table}
        return {at: day for at, day in found.items() if day is not None}

    def attempt(self, part: Part, database: str) -> Folder:
        """A new folder, for one attempt of this database (its epoch) to archive a day."""
        return self._day(part) / f"{_prefix(database)}{token_hex(6)}"

    def sweep(self, part: Part, database: str, marked: str | None) -> None:
        """Delete this database's unfinished attempts, except the folder `marked`.

        The caller must hold the day's lock, so that no other run can mark one of them. Finished attempts stay, because
        a copy of the database, which has the same epoch, may have marked them.
        """
        day = self._day(part)
        kept = (marked or "").rpartition("/")[2]
        for name in day.names():
            if name.startswith(_prefix(database)) and name != kept and (day / name).read(MANIFEST) is None:
                (day / name).delete()

    def write(self, folder: Folder, frame: DataFrame, time: str) -> None:
        """Write a day's rows to an attempt's folder, ordered by column `time`. Call `finish` afterwards."""
        (
            frame.withColumn("topic", _folder_column(f.col("topic")))
            .hint("rebalance", "topic")
            .sortWithinPartitions("topic", time)
            .write.partitionBy("topic")
            .option("compression", "zstd")
            .parquet(folder.path)
        )

    def finish(self, day: Day) -> None:
        """Write the manifest, which makes the day complete."""
        day.folder.write(MANIFEST, day.manifest.text())

    def set_aside(self, part: Part, mark: Mark) -> str | None:
        """Rename a marked folder so that it is no longer read. Returns its new address; None if there was none."""
        folder = self.folder(part, mark)
        now = datetime.now(UTC)
        return folder.move(f"_damaged-{part.day}-{now:%Y%m%dT%H%M%S%fZ}") if folder.exists() else None

    def _day(self, part: Part) -> Folder:
        return self._root / part.table / f"day={part.day}"

    def frame(self, table: str, days: Iterable[Day]) -> DataFrame:
        """The rows of these days with all their columns; a column that a day does not have is NULL.

        Raises Mistake if a column changes its type within the days.
        """
        days = list(days)
        schema = _merge_schemas(day.manifest.schema for day in days)
        paths = [day.folder.path for day in days if day.manifest.topics]
        names = {folder_of(topic): topic for day in days for topic in day.manifest.topics}
        cut = {folder: topic for folder, topic in names.items() if folder != topic}
        # With a schema, Spark does not read a topic name as a number or a date.
        read = self._spark.read.schema(StructType([*schema, StructField("day", StringType())])).option(
            "basePath", (self._root / table).path
        )
        # Spark reads folders as one table only if they are equally deep.
        attempts = [path for path in paths if path.rpartition("/")[2].startswith(ATTEMPT)]
        frames = [
            read.parquet(*alike).withColumn("topic", _topic_column(f.col("topic"), cut)).select(*schema.names)
            for alike in (attempts, [path for path in paths if path not in set(attempts)])
            if alike
        ]
        return reduce(DataFrame.unionAll, frames) if frames else self._spark.createDataFrame([], schema)


def _prefix(database: str) -> str:
    return f"{ATTEMPT}{sha256(database.encode()).hexdigest()[:12]}-"


def folder_of(topic: str) -> str:
    """A topic's folder name, before Spark escapes it."""
    if len(topic) + 2 * topic.count(":") <= LONGEST:
        return topic
    return f"{topic[:KEPT].replace(':', '_')}{CUT}{sha256(topic.encode()).hexdigest()[:16]}"


def _folder_column(topic: Column) -> Column:
    cut = f.concat(
        f.translate(f.substring(topic, 1, KEPT), ":", "_"), f.lit(CUT), f.substring(f.sha2(topic, 256), 1, 16)
    )
    length = f.length(topic) + f.lit(2) * (f.length(topic) - f.length(f.translate(topic, ":", "")))
    return f.when(length <= LONGEST, topic).otherwise(cut)


def _topic_column(folder: Column, cut: Mapping[str, str]) -> Column:
    if not cut:
        return folder
    names = f.create_map(*(f.lit(one) for pair in cut.items() for one in pair))
    return f.coalesce(f.element_at(names, folder), folder)


def _merge_schemas(schemas: Iterable[StructType]) -> StructType:
    fields: dict[str, StructField] = {}
    for schema in schemas:
        for field in schema:
            if fields.setdefault(field.name, field).dataType != field.dataType:
                raise Mistake(f"the column {field.name} changes its type within these days: read them separately")
    return StructType(list(fields.values()))
