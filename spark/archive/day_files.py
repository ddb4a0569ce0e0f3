"""Days in files: where they lie, what says that one is whole, and how they are read again.

    <root>/<table>/day=2026-11-21/topic=orders/part-….parquet
    <root>/<table>/day=2026-11-21/_holdfast.json

The manifest `_holdfast.json` is written when everything else was read back. A day without one is not finished: nobody
reads it. Folders are named as Spark names them, `:` as `%3A`. A topic's name that is too long for a folder is cut, and
the manifest has it whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from spark.archive.checksums import Sum, total
from spark.archive.day_partitions import Part
from spark.errors import Mistake
from spark.folders import Folder

MANIFEST: Final = "_holdfast.json"
FORMAT: Final = 1
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


class Files:
    """The days under one root, of all tables."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = Folder(spark, root)

    def folder(self, part: Part) -> Folder:
        return self._root / part.table / f"day={part.day}"

    def manifest(self, part: Part) -> Manifest | None:
        """None for a day that is not finished, or not there. Raises OSError if that can't be seen."""
        text = self.folder(part).read(MANIFEST)
        return None if text is None else Manifest.parse(text)

    def days(self, table: str) -> dict[date, Manifest]:
        """The finished days of a table, the oldest first."""
        found: dict[date, Manifest] = {}
        for name in (self._root / table).names():
            key, _, day = name.partition("=")
            if key == "day" and (manifest := self.manifest(Part(date.fromisoformat(day), table))) is not None:
                found[date.fromisoformat(day)] = manifest
        return found

    def write(self, part: Part, frame: DataFrame, time: str) -> None:
        """A day's rows, in the place of all that lies there; `time` is the column that they are put in order by. Not
        finished: `finish` does that."""
        folder = self.folder(part)
        folder.delete(MANIFEST)
        (
            frame.withColumn("topic", _folder(f.col("topic")))
            .hint("rebalance", "topic")
            .sortWithinPartitions("topic", time)
            .write.mode("overwrite")
            .partitionBy("topic")
            .option("compression", "zstd")
            .parquet(folder.path)
        )

    def set_aside(self, part: Part) -> str | None:
        """Put all that lies there under a name that neither this nor Spark reads: where that is; None for nothing."""
        folder = self.folder(part)
        now = datetime.now(UTC)
        return folder.move(f"_damaged-{part.day}-{now:%Y%m%dT%H%M%S%fZ}") if folder.exists() else None

    def clear(self, part: Part) -> None:
        """Remove all that lies there."""
        self.folder(part).delete()

    def finish(self, part: Part, manifest: Manifest) -> str:
        """Say that a day is whole: where it is."""
        folder = self.folder(part)
        folder.write(MANIFEST, manifest.text())
        return folder.path

    def frame(self, table: str, days: Mapping[date, Manifest]) -> DataFrame:
        """The rows of these days, with the table's columns in their order; a column that a day does not have is NULL.

        Raises Mistake where the days have one column with two types.
        """
        schema = _merged(manifest.schema for manifest in days.values())
        paths = [self.folder(Part(day, table)).path for day, manifest in days.items() if manifest.topics]
        if not paths:
            return self._spark.createDataFrame([], schema)
        names = {folder_of(topic): topic for manifest in days.values() for topic in manifest.topics}
        cut = {folder: topic for folder, topic in names.items() if folder != topic}
        # A schema, lest Spark take a topic's name for a number or a date.
        read = self._spark.read.schema(StructType([*schema, StructField("day", StringType())])).option(
            "basePath", (self._root / table).path
        )
        return read.parquet(*paths).withColumn("topic", _topic(f.col("topic"), cut)).select(*schema.names)


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
