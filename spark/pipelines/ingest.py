"""Turns rows of files, or of a query, into jobs of a topic."""

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
from spark.folders import File, Folder, list_files
from spark.input_files import CORRUPT, FILE, LINE
from spark.progress import Progress
from spark.source import columns
from spark.texts import clean_line

# The fields of a job besides its payload, and the types that mapped columns are cast to.
TYPES: Final[Mapping[str, str]] = {name: kinds[0] for name, kinds in columns.TYPES.items() if name != "payload"}
PRIORITIES: Final = (0, 9)
SHOWN: Final = 5  # rows
LONGEST: Final = 1_000  # characters of one
REASON: Final = "_reason"
RECORD: Final = "_record"
NULLS: Final = {"ignoreNullFields": "false"}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", help="an existing queue; or --map topic=…")
    source = parser.add_argument_group("input")
    source.add_argument("--files", nargs="+", metavar="PATH", help="files, folders, wildcards, on any file system")
    source.add_argument(
        "--format", choices=sorted(set(input_files.FORMATS.values())), help="default: by the files' names"
    )
    source.add_argument(
        "--schema", metavar="DDL", help="the columns, such as 'id BIGINT, at TIMESTAMP'; default: the files decide"
    )
    source.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one of Spark's options for the format, such as sep=;",
    )
    source.add_argument(
        "--query", metavar="SQL", help="Spark SQL over the files, as view `input`; with --jdbc, SQL of that database"
    )
    source.add_argument("--jdbc", metavar="URL", help="jdbc:postgresql://…: the database of --query")
    jobs = parser.add_argument_group("jobs")
    jobs.add_argument(
        "--payload", metavar="EXPR", help="text and bytes are unchanged, other values become JSON; default: all columns"
    )
    jobs.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OPTION=EXPR",
        help=f"other fields of a job, such as priority=prio,key=order_id. Options: {', '.join(TYPES)}",
    )
    parser.add_argument(
        "--bad", metavar="DIR", help="write bad rows here and enqueue the others; default: one bad row refuses all"
    )
    parser.add_argument("--run", metavar="NAME", help="ingest the same input again, once for each name")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the schema, the count and some jobs; write nothing"
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What to ingest. Equal requests are ingested once."""

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
    def of(cls, args: Namespace) -> Request:
        """From the arguments. Raises Mistake."""
        mapping = parse_map(args.map)
        if (args.topic is None) == ("topic" not in mapping):
            raise Mistake("give --topic NAME or --map topic=EXPR")
        if args.jdbc is not None and (args.query is None or args.files or args.run is None):
            raise Mistake("--jdbc needs --query and --run NAME (its rows may not be new), and no --files")
        if args.jdbc is None and not args.files:
            raise Mistake("give --files PATH … or --jdbc URL")
        options = {name: value for name, _, value in (one.partition("=") for one in args.option)}
        return cls(
            args.topic, args.format, args.schema, options, args.query, args.jdbc, args.payload, mapping, args.run
        )

    def write_id(self, files: Sequence[File]) -> str:
        """The write id of this request and the files' addresses, sizes and times: a changed file is another input."""
        return writes.write_id("ingest", asdict(self), [asdict(file) for file in files])


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Returns 0; 1 if bad rows refused all. Raises Mistake."""
    request = Request.of(args)
    files = [] if request.jdbc else list_files(spark, args.files)
    name = request.write_id(files)
    before = writes.find(dsn, name)
    if before is not None and not args.dry_run:
        print(f"nothing to do: these were ingested before, {before}; --run NAME ingests them again")
        return 0
    rows = extract(spark, request, files)
    # Read once: the same rows are counted, printed and written, even if the files change meanwhile.
    jobs = transform(rows, request).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return run(dsn, request, jobs, name, bad_to=_bad_folder(spark, args.bad, name), dry_run=args.dry_run)
    except PySparkException as error:
        raise Mistake(reason(error)) from error
    finally:
        jobs.unpersist()


def run(dsn: str, request: Request, jobs: DataFrame, name: str, *, bad_to: Folder | None, dry_run: bool) -> int:
    """Check the rows and enqueue the good ones. Returns the exit code."""
    good, bad = jobs.where(f.col(REASON).isNull()).drop(REASON, RECORD, FILE), jobs.where(f.col(REASON).isNotNull())
    with Progress("rows") as progress:
        refused = bad.count()
        progress.advance(jobs.count())
    print(f"{progress.done:,} rows, {refused:,} of them bad")
    for row in bad.limit(SHOWN).collect():
        file = f"  ({clean_line(row[FILE])})" if row[FILE] else ""
        print(f"bad: {clean_line(row[REASON])}: {clean_line(row[RECORD], LONGEST)}{file}")
    if dry_run:
        print(f"columns of a job: {good.schema.simpleString()}")
        for row in good.limit(SHOWN).collect():
            print(f"job: {clean_line(_job_text(row), LONGEST)}")
        return 0
    if refused and bad_to is None:
        print("nothing was enqueued; --bad DIR writes bad rows there and enqueues the others", file=sys.stderr)
        return 1
    if refused and bad_to is not None:
        aside = bad.select(f.col(FILE).alias("file"), f.col(REASON).alias("reason"), f.col(RECORD).alias("record"))
        aside.write.mode("overwrite").json(bad_to.path)
        print(f"bad rows are in {bad_to.path}")
    written = writes.enqueue(good, dsn, request.topic, name)
    print(f"enqueued {written}")
    return 0


def extract(spark: SparkSession, request: Request, files: Sequence[File]) -> DataFrame:
    """The rows and unreadable records with _file, _line and _corrupt, which are NULL for a query's rows."""
    if request.jdbc is not None:
        assert request.query is not None
        options = {"url": request.jdbc, "query": request.query, **request.options}
        if request.jdbc.startswith(jdbc.SCHEME):  # DriverManager does not find drivers in the session's jars
            options.setdefault("driver", jdbc.DRIVER)
        return _plain(spark.read.format("jdbc").options(**options).load())
    read = input_files.read(
        spark, files, request.format or input_files.format_of(files), request.schema, request.options
    )
    if request.query is None:
        return read
    read.where(f.col(CORRUPT).isNull()).drop(FILE, LINE, CORRUPT).createOrReplaceTempView("input")
    try:
        found = _plain(spark.sql(request.query))
    except PySparkException as error:
        raise Mistake(f"--query: {reason(error)}") from None
    bad = read.where(f.col(CORRUPT).isNotNull()).select(FILE, LINE, CORRUPT)
    return found.unionByName(bad, allowMissingColumns=True)


def transform(rows: DataFrame, request: Request) -> DataFrame:
    """The jobs to enqueue, with _reason (NULL for a good row), _record and _file."""
    own = [name for name in rows.columns if name not in (FILE, LINE, CORRUPT)]
    record = f.to_json(f.struct(*(f.col(f"`{name}`") for name in own)), NULLS)
    try:
        payload = f.coalesce(f.col(LINE), record) if request.payload is None else _as_payload(rows, request.payload)
        named = {"payload": payload} | {name: _cast(rows, name, text) for name, text in request.mapping.items()}
        faults = [f.when(f.col(CORRUPT).isNotNull(), "it can't be read"), f.when(payload.isNull(), "it has no payload")]
        faults += [_fault(rows, name, text) for name, text in request.mapping.items() if TYPES[name] != "string"]
        kept = f.coalesce(f.col(CORRUPT), f.col(LINE), record)
        return rows.select(
            *(column.alias(name) for name, column in named.items()),
            f.coalesce(*faults).alias(REASON),
            kept.alias(RECORD),
            f.col(FILE),
        )
    except PySparkException as error:
        raise Mistake(f"--payload or --map: {reason(error)}") from None


def parse_map(words: Sequence[str]) -> dict[str, str]:
    """Parse words such as `priority=prio,key=upper(name)` into options and expressions. Raises Mistake.

    A comma separates two options only if an option's name follows it.
    """
    found: dict[str, str] = {}
    for word in words:
        for one in re.split(rf",(?=\s*(?:{'|'.join(TYPES)})\s*=[^=])", word):
            name, is_there, text = one.partition("=")
            name, text = name.strip(), text.strip()
            if name not in TYPES or not is_there or not text:
                raise Mistake(f"--map {one}: must be OPTION=EXPR, with an option of {', '.join(TYPES)}")
            if name in found:
                raise Mistake(f"--map {name} is given twice")
            found[name] = text
    return found


def _plain(frame: DataFrame) -> DataFrame:
    return frame.withColumns(dict.fromkeys((FILE, LINE, CORRUPT), f.lit(None).cast("string")))


def _as_payload(rows: DataFrame, text: str) -> Column:
    kind = rows.select(f.expr(text)).schema[0].dataType
    return f.expr(text) if isinstance(kind, StringType | BinaryType) else f.to_json(f.expr(text), NULLS)


def _cast(rows: DataFrame, name: str, text: str) -> Column:
    kind = rows.select(f.expr(text)).schema[0].dataType
    if name == "metadata" and not isinstance(kind, StringType):
        return f.to_json(f.expr(text), NULLS)
    return f.expr(f"try_cast({text} AS {TYPES[name]})")


def _fault(rows: DataFrame, name: str, text: str) -> Column:
    made = _cast(rows, name, text)
    fits = made.isNotNull() if name != "priority" else made.between(*PRIORITIES)
    lost = f.expr(text).isNotNull() & ~f.coalesce(fits, f.lit(False))
    return f.when(lost, f.concat(f.lit(f"{name} is "), f.expr(f"string({text})")))


def _bad_folder(spark: SparkSession, path: str | None, name: str) -> Folder | None:
    """A folder for this write: a repeated run writes the same there."""
    return None if path is None else Folder(spark, path) / name.replace(" ", "-")


def _job_text(row: Row) -> str:
    fields = {name: value for name, value in row.asDict().items() if value is not None}
    return json.dumps(fields, ensure_ascii=False, default=_text)


def _text(value: object) -> str:
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)
