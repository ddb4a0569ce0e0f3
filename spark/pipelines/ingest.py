"""Rows of files, or of a query, become jobs of a topic."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType
from pyspark.storagelevel import StorageLevel

from spark import input_files, jdbc, writes
from spark.errors import Mistake, reason
from spark.folders import File, Folder, listed
from spark.input_files import CORRUPT, FILE, LINE
from spark.progress import Progress
from spark.source import columns
from spark.texts import line

# What a job can have besides its payload, and the type that a mapped column is made.
TYPES: Final[Mapping[str, str]] = {name: kinds[0] for name, kinds in columns.TYPES.items() if name != "payload"}
PRIORITIES: Final = (0, 9)
SHOWN: Final = 5  # rows
LONGEST: Final = 1_000  # characters of one
REASON: Final = "_reason"
RECORD: Final = "_record"
NULLS: Final = {"ignoreNullFields": "false"}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", help="a queue that exists; or map it: --map topic=…")
    source = parser.add_argument_group("where rows come from")
    source.add_argument("--files", nargs="+", metavar="PATH", help="files, folders, wildcards; of any file system")
    source.add_argument(
        "--format", choices=sorted(set(input_files.FORMATS.values())), help="if their names don't say it"
    )
    source.add_argument("--schema", metavar="DDL", help="their columns: 'id BIGINT, at TIMESTAMP'; else they say it")
    source.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="one of Spark's, as sep=;")
    source.add_argument(
        "--query", metavar="SQL", help="Spark SQL over the files, as the view `input`; with --jdbc, that database's SQL"
    )
    source.add_argument("--jdbc", metavar="URL", help="jdbc:postgresql://…: the database that --query asks")
    jobs = parser.add_argument_group("what jobs they become")
    jobs.add_argument(
        "--payload", metavar="EXPR", help="text and bytes as they stand, others as JSON; all columns, if left out"
    )
    jobs.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OPTION=EXPR",
        help=f"more of a job, as priority=prio,key=order_id; there are {', '.join(TYPES)}",
    )
    parser.add_argument(
        "--bad", metavar="DIR", help="where bad rows go, and the others become jobs; else one refuses all"
    )
    parser.add_argument("--run", metavar="NAME", help="the same is done once; once more under a name of its own")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the schema, the count and some jobs; write nothing"
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be ingested. The same is done once."""

    topic: str | None
    format: str | None
    schema: str | None
    options: Mapping[str, str]
    query: str | None
    jdbc: str | None
    payload: str | None
    mapping: Mapping[str, str]
    run: str | None

    @classmethod
    def of(cls, args: Namespace) -> Asked:
        """Raises Mistake."""
        mapping = mapped(args.map)
        if (args.topic is None) == ("topic" not in mapping):
            raise Mistake("which topic? --topic NAME, or --map topic=EXPR")
        if args.jdbc is not None and (args.query is None or args.files or args.run is None):
            raise Mistake("--jdbc needs --query and --run NAME (nobody sees whether its rows are new), and no --files")
        if args.jdbc is None and not args.files:
            raise Mistake("where do rows come from? --files PATH …, or --jdbc URL")
        options = {name: value for name, _, value in (one.partition("=") for one in args.option)}
        return cls(
            args.topic, args.format, args.schema, options, args.query, args.jdbc, args.payload, mapping, args.run
        )

    def write_id(self, files: Sequence[File]) -> str:
        """Of files by their addresses, sizes and times: one that was changed is another one."""
        return writes.write_id("ingest", asdict(self), [asdict(file) for file in files])


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """0; 1 if bad rows refused all."""
    asked = Asked.of(args)
    files = [] if asked.jdbc else listed(spark, args.files)
    name = asked.write_id(files)
    before = writes.find(dsn, name)
    if before is not None and not args.dry_run:
        print(f"nothing to do: these were ingested before, {before}; --run NAME does it once more")
        return 0
    rows = extract(spark, asked, files)
    # Read once, and all of it: what is counted, shown and written is the same, whatever happens to the files meanwhile.
    jobs = transform(rows, asked).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return run(dsn, asked, jobs, name, bad_to=_bad_folder(spark, args.bad, name), dry_run=args.dry_run)
    except PySparkException as error:
        raise Mistake(reason(error)) from error
    finally:
        jobs.unpersist()


def run(dsn: str, asked: Asked, jobs: DataFrame, name: str, *, bad_to: Folder | None, dry_run: bool) -> int:
    """Look at the rows, and load them."""
    good, bad = jobs.where(f.col(REASON).isNull()).drop(REASON, RECORD, FILE), jobs.where(f.col(REASON).isNotNull())
    with Progress("rows") as progress:
        refused = bad.count()
        progress.advance(jobs.count())
    print(f"{progress.done:,} rows, {refused:,} of them bad")
    for row in bad.limit(SHOWN).collect():
        print(f"bad: {line(row[REASON])}: {line(row[RECORD], LONGEST)}{f'  ({line(row[FILE])})' if row[FILE] else ''}")
    if dry_run:
        print(f"columns of a job: {good.schema.simpleString()}")
        for row in good.limit(SHOWN).collect():
            print(f"job: {line(_shown(row), LONGEST)}")
        return 0
    if refused and bad_to is None:
        print("nothing was enqueued; --bad DIR puts bad rows there, and enqueues the others", file=sys.stderr)
        return 1
    if refused and bad_to is not None:
        aside = bad.select(f.col(FILE).alias("file"), f.col(REASON).alias("reason"), f.col(RECORD).alias("record"))
        aside.write.mode("overwrite").json(bad_to.path)
        print(f"bad rows are in {bad_to.path}")
    written = writes.enqueue(good, dsn, asked.topic, name)
    print(f"enqueued {written}")
    return 0


def extract(spark: SparkSession, asked: Asked, files: Sequence[File]) -> DataFrame:
    """Rows with _file, _line and _corrupt. Those of a query have none of them, and bad rows come beside them."""
    if asked.jdbc is not None:
        assert asked.query is not None
        options = {"url": asked.jdbc, "query": asked.query, **asked.options}
        if asked.jdbc.startswith(jdbc.SCHEME):  # DriverManager knows no driver of a session's own jars
            options.setdefault("driver", jdbc.DRIVER)
        return _plain(spark.read.format("jdbc").options(**options).load())
    read = input_files.read(spark, files, asked.format or input_files.format_of(files), asked.schema, asked.options)
    if asked.query is None:
        return read
    read.where(f.col(CORRUPT).isNull()).drop(FILE, LINE, CORRUPT).createOrReplaceTempView("input")
    try:
        found = _plain(spark.sql(asked.query))
    except PySparkException as error:
        raise Mistake(f"--query: {reason(error)}") from None
    bad = read.where(f.col(CORRUPT).isNotNull()).select(FILE, LINE, CORRUPT)
    return found.unionByName(bad, allowMissingColumns=True)


def transform(rows: DataFrame, asked: Asked) -> DataFrame:
    """Jobs as they would be enqueued, with _reason (NULL: it is a good one), _record and _file."""
    own = [name for name in rows.columns if name not in (FILE, LINE, CORRUPT)]
    record = f.to_json(f.struct(*(f.col(f"`{name}`") for name in own)), NULLS)
    try:
        payload = f.coalesce(f.col(LINE), record) if asked.payload is None else _as_payload(rows, asked.payload)
        named = {"payload": payload} | {name: _made(rows, name, text) for name, text in asked.mapping.items()}
        faults = [f.when(f.col(CORRUPT).isNotNull(), "it can't be read"), f.when(payload.isNull(), "it has no payload")]
        faults += [_fault(rows, name, text) for name, text in asked.mapping.items() if TYPES[name] != "string"]
        kept = f.coalesce(f.col(CORRUPT), f.col(LINE), record)
        return rows.select(
            *(column.alias(name) for name, column in named.items()),
            f.coalesce(*faults).alias(REASON),
            kept.alias(RECORD),
            f.col(FILE),
        )
    except PySparkException as error:
        raise Mistake(f"--payload or --map: {reason(error)}") from None


def mapped(words: Sequence[str]) -> dict[str, str]:
    """`priority=prio,key=upper(name)` and further ones, as options and expressions. Commas part them only where an
    option's name follows. Raises Mistake."""
    found: dict[str, str] = {}
    for word in words:
        for one in re.split(rf",(?=\s*(?:{'|'.join(TYPES)})\s*=[^=])", word):
            name, is_there, text = one.partition("=")
            name, text = name.strip(), text.strip()
            if name not in TYPES or not is_there or not text:
                raise Mistake(f"--map {one}: OPTION=EXPR, where an option is one of {', '.join(TYPES)}")
            if name in found:
                raise Mistake(f"--map {name}: twice")
            found[name] = text
    return found


def _plain(frame: DataFrame) -> DataFrame:
    return frame.withColumns(dict.fromkeys((FILE, LINE, CORRUPT), f.lit(None).cast("string")))


def _as_payload(rows: DataFrame, text: str) -> Column:
    kind = rows.select(f.expr(text)).schema[0].dataType
    return f.expr(text) if isinstance(kind, StringType | BinaryType) else f.to_json(f.expr(text), NULLS)


def _made(rows: DataFrame, name: str, text: str) -> Column:
    kind = rows.select(f.expr(text)).schema[0].dataType
    if name == "metadata" and not isinstance(kind, StringType):
        return f.to_json(f.expr(text), NULLS)
    return f.expr(f"try_cast({text} AS {TYPES[name]})")


def _fault(rows: DataFrame, name: str, text: str) -> Column:
    made = _made(rows, name, text)
    fits = made.isNotNull() if name != "priority" else made.between(*PRIORITIES)
    lost = f.expr(text).isNotNull() & ~f.coalesce(fits, f.lit(False))
    return f.when(lost, f.concat(f.lit(f"{name} is "), f.expr(f"string({text})")))


def _bad_folder(spark: SparkSession, path: str | None, name: str) -> Folder | None:
    """One of the write's own: a run that is repeated puts the same there."""
    return None if path is None else Folder(spark, path) / name.replace(" ", "-")


def _shown(row: Row) -> str:
    fields = {name: value for name, value in row.asDict().items() if value is not None}
    return json.dumps(fields, ensure_ascii=False, default=_text)


def _text(value: object) -> str:
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)
