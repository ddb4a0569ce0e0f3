"""Requeues dead letters that an expression selects, at a rate, with a canary.

Spark selects them. The service requeues them with its own operations of up to MOST seqs, whose rules for keys, groups
and topics apply.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark import source, topics
from spark.errors import Mistake, reason
from spark.http_api import KEY, LOCAL, URL, NoAnswer, Service
from spark.progress import Progress
from spark.texts import clean_line
from spark.windows import instant

MOST: Final = 1000  # seqs of an operation
LOOK_SECONDS: Final = 0.25
LONGEST_PAUSE: Final = 5.0  # seconds between two requests for an operation's state, without answers
PATIENCE_SECONDS: Final = 120.0  # without an answer: longer than a restart takes
SHOWN: Final = 10
READ: Final = (
    *("topic", "original_seq", "last_error", "original_deliveries", "original_crashes", "original_max_deliveries"),
    *("payload", "content_type", "metadata", "tag", "key", "grp", "original_tenant", "tenant", "priority", "producer"),
    *("cluster", "created_at", "failed_in", "failed_at", "dlq_moved_at"),
)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", required=True, help="the queue where they failed, and to which they return")
    parser.add_argument("--where", metavar="EXPR", help="Spark SQL: deliveries > 3 AND last_error LIKE …; default: all")
    parser.add_argument(
        "--dead-letters", metavar="TOPIC", help="their dead-letter topic; default: the topic's dead_letter"
    )
    parser.add_argument(
        "--before", metavar="TIME", help="only dead letters that died before; RFC 3339, UTC without an offset"
    )
    parser.add_argument("--dry-run", action="store_true", help="count and print them; change nothing")
    parser.add_argument("--rate", type=int, default=0, metavar="N", help="jobs a second; default: no limit")
    parser.add_argument(
        "--canary",
        type=int,
        default=10,
        metavar="N",
        help="how many go first and are waited for; default: 10; 0: none",
    )
    parser.add_argument(
        "--stop-at-percent",
        type=float,
        default=10,
        metavar="P",
        help="if a larger share of the canary fails again, the rest stays; default: 10",
    )
    parser.add_argument(
        "--canary-seconds", type=float, default=600, metavar="S", help="how long to wait for the canary; default: 600"
    )
    parser.add_argument("--url", help=f"the service; default: {URL}, or {LOCAL}")
    parser.add_argument("--key", help=f"a key with write for the topic; default: {KEY}")


@dataclass(frozen=True, slots=True)
class Pace:
    """`rate`: jobs a second, 0 for no limit. `canary`: the canary of the first operation's request, or None."""

    rate: int = 0
    canary: dict[str, Any] | None = None


@dataclass(slots=True)
class Outcome:
    """The result so far.

    reason     why the rest stayed
    goes_on    an operation that was started and whose end is unknown
    may_go_on  whether an unknown operation may have been started
    """

    requeued: int = 0
    skipped: int = 0
    failed_again: int = 0
    reason: str | None = None
    goes_on: str | None = None
    may_go_on: bool = False


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Returns 1 if dead letters stayed, or if that is unknown. Raises Mistake."""
    service = Service.of(args.url, args.key)
    canary = {
        "first": args.canary,
        "stop_at_percent": args.stop_at_percent,
        "timeout_ms": int(args.canary_seconds * 1000),
    }
    pace = Pace(args.rate, canary if args.canary else None)
    letters = select(extract(spark, dsn, service, args.topic, args.dead_letters), args.where, args.before)
    seqs = find_seqs(letters)
    print(f"{len(seqs):,} dead letters of {args.topic}" + (f" where {args.where}" if args.where else ""))
    if not seqs and (note := topics.note(dsn, args.topic)):
        print(note, file=sys.stderr)
    if args.dry_run:
        for row in reasons(letters).collect():
            print(f"{row['count']:>12,}  {clean_line(row['last_error'] or '(no error)')}")
        return 0
    with Progress(f"redrive of {args.topic}", len(seqs)) as progress:
        outcome = load(service, args.topic, seqs, pace, progress)
    print(f"requeued {outcome.requeued:,}, skipped {outcome.skipped:,}, failed again {outcome.failed_again:,}")
    if outcome.reason is None:
        return 0
    rest = len(seqs) - outcome.requeued - outcome.skipped
    if outcome.goes_on is None and not outcome.may_go_on:
        print(f"stopped: {outcome.reason}; {rest:,} stay")
        return 1
    print(f"stopped: {outcome.reason}; {rest:,} were not requeued by the last known state")
    print(_how_to_find(args.topic) if outcome.goes_on is None else _how_to_look(service, outcome.goes_on))
    return 1


def extract(spark: SparkSession, dsn: str, service: Service, topic: str, holder: str | None = None) -> DataFrame:
    """The dead letters of a topic in `holder`; None: the dead-letter topic of its configuration."""
    if holder is None:
        holder = service.get("v0", "topics", topic)["config"].get("dead_letter") or f"{topic}.dlq"
    died_there = [("original_topic", "=", topic)]
    return transform(source.frame(spark, dsn, "dead_letters", holder, columns=READ, filters=died_there))


def transform(letters: DataFrame) -> DataFrame:
    """Dead letters with the columns that --where sees: as they were in their topic; `data` is the payload as text."""
    return letters.select(
        f.col("original_seq").alias("seq"),
        "last_error",
        f.col("original_deliveries").alias("deliveries"),
        f.col("original_crashes").alias("crashes"),
        f.col("original_max_deliveries").alias("max_deliveries"),
        f.col("payload").cast("string").alias("data"),
        "content_type",
        "metadata",
        "tag",
        "key",
        f.col("grp").alias("group"),
        f.coalesce("original_tenant", "tenant").alias("tenant"),
        "priority",
        "producer",
        "cluster",
        "created_at",
        "failed_in",
        "failed_at",
        "dlq_moved_at",
        f.col("topic").alias("dead_letters"),
    )


def select(letters: DataFrame, where: str | None = None, before: str | None = None) -> DataFrame:
    """The dead letters that fit the expression and died before a time. Raises Mistake for an invalid expression."""
    try:
        fit = letters if where is None else letters.where(where)
    except (AnalysisException, ParseException) as error:
        raise Mistake(f"--where {where}: {reason(error)}") from None
    return fit if before is None else fit.where(f.col("dlq_moved_at") < f.lit(instant(before, "--before")))


def find_seqs(letters: DataFrame) -> list[int]:
    """Their seqs, the earliest deaths first."""
    return [row["seq"] for row in letters.select("dlq_moved_at", "seq").sort("dlq_moved_at", "seq").toLocalIterator()]


def reasons(letters: DataFrame) -> DataFrame:
    """The most frequent errors, with counts."""
    counted = letters.groupBy("cluster").agg(f.count("*").alias("count"), f.max("last_error").alias("last_error"))
    return counted.select("count", "last_error").sort(f.desc("count"), "last_error").limit(SHOWN)


def load(service: Service, topic: str, seqs: Sequence[int], pace: Pace, progress: Progress) -> Outcome:
    """Requeue the dead letters, one operation after the other. The first one's canary decides for all.

    An interrupt cancels the current operation; requeued jobs stay requeued.
    """
    outcome = Outcome()
    for start in range(0, len(seqs), MOST):
        body: dict[str, Any] = {"seqs": list(seqs[start : start + MOST]), "rate": pace.rate}
        if start == 0 and pace.canary is not None:
            body["canary"] = pace.canary
        try:
            operation = service.post("v0", "topics", topic, "requeue", body=body)["id"]
        except NoAnswer as error:
            outcome.reason, outcome.may_go_on = str(error), True
            break
        except Mistake as mistake:
            if start == 0:
                raise
            outcome.reason = str(mistake)  # earlier operations have ended and are reported
            break
        before = (outcome.requeued, outcome.skipped)
        try:
            for state in _states(service, operation, progress):
                seen = outcome.requeued + outcome.skipped
                outcome.requeued, outcome.skipped = before[0] + state["requeued"], before[1] + state["skipped"]
                progress.advance(outcome.requeued + outcome.skipped - seen)
        except Mistake as mistake:
            outcome.reason, outcome.goes_on = str(mistake), operation
            break
        except KeyboardInterrupt:
            print(_cancel(service, operation, before[0]), file=sys.stderr)
            raise
        outcome.failed_again += state["failed_again"]
        if state["state"] != "done":
            outcome.reason = state["reason"] or state["state"]
            break
    return outcome


def _cancel(service: Service, operation: str, before: int) -> str:
    try:
        ended = service.post("v0", "operations", operation, "cancel")
    except Mistake as mistake:
        return f"not cancelled: {mistake}\n{_how_to_look(service, operation)}"
    return f"cancelled; requeued {before + ended['requeued']:,}"


def _how_to_look(service: Service, operation: str) -> str:
    address = f"{service.url}/v0/operations/{operation}"
    return f"the operation continues by itself: GET {address} shows its progress, POST {address}/cancel cancels it"


def _how_to_find(topic: str) -> str:
    begun = f"SELECT id FROM holdfast.operations WHERE topic = '{topic}' AND ended_at IS NULL"  # noqa: S608
    return f"an operation may have started and continues by itself. To find it: {begun}"


def _states(service: Service, operation: str, progress: Progress) -> Iterator[dict[str, Any]]:
    """The states of an operation until its end. Raises NoAnswer after PATIENCE_SECONDS without an answer."""
    heard, pause, ended = time.monotonic(), LOOK_SECONDS, False
    while not ended:
        try:
            state = service.get("v0", "operations", operation)
        except NoAnswer as error:
            if time.monotonic() - heard > PATIENCE_SECONDS:
                raise
            if pause == LOOK_SECONDS:
                progress.say(f"{error}; retrying")
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            heard, pause = time.monotonic(), LOOK_SECONDS
            yield state
            ended = state["ended_at"] is not None
        if not ended:
            time.sleep(pause)
