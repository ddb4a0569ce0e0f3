"""Dead letters that an expression selects go back to where they died: at a rate, and a few of them first.

Spark finds them; the service puts them back, by its own operation of up to MOST seqs: what that asks of a job (its
key, its group, its topic) holds here as well.
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
from spark.texts import line
from spark.windows import instant

MOST: Final = 1000  # seqs of an operation
LOOK_SECONDS: Final = 0.25
LONGEST_PAUSE: Final = 5.0  # seconds between two looks at an operation, while nobody answers
PATIENCE_SECONDS: Final = 120.0  # without an answer: longer than a service takes to come back
SHOWN: Final = 10
READ: Final = (
    *("topic", "original_seq", "last_error", "original_deliveries", "original_crashes", "original_max_deliveries"),
    *("payload", "content_type", "metadata", "tag", "key", "grp", "original_tenant", "tenant", "priority", "producer"),
    *("cluster", "created_at", "failed_in", "failed_at", "dlq_moved_at"),
)


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", required=True, help="the queue that they died in, and go back to")
    parser.add_argument(
        "--where", metavar="EXPR", help="Spark SQL: deliveries > 3 AND last_error LIKE …; all, if left out"
    )
    parser.add_argument("--dead-letters", metavar="TOPIC", help="where they are; the topic's dead_letter, if left out")
    parser.add_argument("--before", metavar="TIME", help="died before; RFC 3339, UTC without an offset")
    parser.add_argument("--dry-run", action="store_true", help="count and show, and change nothing")
    parser.add_argument(
        "--rate", type=int, default=0, metavar="N", help="jobs a second; as many as it can, if left out"
    )
    parser.add_argument(
        "--canary",
        type=int,
        default=10,
        metavar="N",
        help="so many go first, and are waited for; 10; 0: none",
    )
    parser.add_argument(
        "--stop-at-percent",
        type=float,
        default=10,
        metavar="P",
        help="if more of these are out again, the rest stays; 10, if left out",
    )
    parser.add_argument(
        "--canary-seconds", type=float, default=600, metavar="S", help="how long these are waited for; 600, if left out"
    )
    parser.add_argument("--url", help=f"the service; {URL}, or {LOCAL}, if left out")
    parser.add_argument("--key", help=f"a key with write for the topic; {KEY}, if left out")


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast, and how carefully. `rate`: jobs a second, 0 for any; `canary`: what the first operation asks for."""

    rate: int = 0
    canary: dict[str, Any] | None = None


@dataclass(slots=True)
class Outcome:
    """What has become of them so far. `reason`: why the rest stayed; `goes_on`: an operation that was begun, of which
    it is not known how it ends; `may_go_on`: it is not even known whether one was begun, and which."""

    requeued: int = 0
    skipped: int = 0
    failed_again: int = 0
    reason: str | None = None
    goes_on: str | None = None
    may_go_on: bool = False


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """1 if some stayed, or it is not known whether they did. Raises Mistake."""
    service = Service.of(args.url, args.key)
    canary = {
        "first": args.canary,
        "stop_at_percent": args.stop_at_percent,
        "timeout_ms": int(args.canary_seconds * 1000),
    }
    pace = Pace(args.rate, canary if args.canary else None)
    letters = select(extract(spark, dsn, service, args.topic, args.dead_letters), args.where, args.before)
    seqs = found(letters)
    print(f"{len(seqs):,} dead letters of {args.topic}" + (f" where {args.where}" if args.where else ""))
    if not seqs and (note := topics.note(dsn, args.topic)):
        print(note, file=sys.stderr)
    if args.dry_run:
        for row in reasons(letters).collect():
            print(f"{row['count']:>12,}  {line(row['last_error'] or '(no error)')}")
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
    print(f"stopped: {outcome.reason}; {rest:,} were not back when it was last heard of")
    print(_how_to_find(args.topic) if outcome.goes_on is None else _how_to_look(service, outcome.goes_on))
    return 1


def extract(spark: SparkSession, dsn: str, service: Service, topic: str, holder: str | None = None) -> DataFrame:
    """The dead letters of a topic, where they are: in `holder`, or what the topic's configuration names."""
    if holder is None:
        holder = service.get("v0", "topics", topic)["config"].get("dead_letter") or f"{topic}.dlq"
    died_there = [("original_topic", "=", topic)]
    return transform(source.frame(spark, dsn, "dead_letters", holder, columns=READ, filters=died_there))


def transform(letters: DataFrame) -> DataFrame:
    """Dead letters as what they were in the topic that they died in; `data`: the payload, if it is text."""
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
    """Those that fit the expression, and died before. Raises Mistake for an expression that Spark can't read."""
    try:
        fit = letters if where is None else letters.where(where)
    except (AnalysisException, ParseException) as error:
        raise Mistake(f"--where {where}: {reason(error)}") from None
    return fit if before is None else fit.where(f.col("dlq_moved_at") < f.lit(instant(before, "--before")))


def found(letters: DataFrame) -> list[int]:
    """Their seqs, those first that died first."""
    return [row["seq"] for row in letters.select("dlq_moved_at", "seq").sort("dlq_moved_at", "seq").toLocalIterator()]


def reasons(letters: DataFrame) -> DataFrame:
    """How many died of what, the most frequent first."""
    counted = letters.groupBy("cluster").agg(f.count("*").alias("count"), f.max("last_error").alias("last_error"))
    return counted.select("count", "last_error").sort(f.desc("count"), "last_error").limit(SHOWN)


def load(service: Service, topic: str, seqs: Sequence[int], pace: Pace, progress: Progress) -> Outcome:
    """Puts them back, by one operation after the other. The first one's canary decides for all of them.

    Who interrupts it cancels the operation that is under way: what is back stays back.
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
            outcome.reason = str(mistake)  # those before are back, and are to be told of
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
            print(_cancelled(service, operation, before[0]), file=sys.stderr)
            raise
        outcome.failed_again += state["failed_again"]
        if state["state"] != "done":
            outcome.reason = state["reason"] or state["state"]
            break
    return outcome


def _cancelled(service: Service, operation: str, before: int) -> str:
    try:
        ended = service.post("v0", "operations", operation, "cancel")
    except Mistake as mistake:
        return f"not cancelled: {mistake}\n{_how_to_look(service, operation)}"
    return f"cancelled; requeued {before + ended['requeued']:,}"


def _how_to_look(service: Service, operation: str) -> str:
    address = f"{service.url}/v0/operations/{operation}"
    return f"its operation goes on by itself: GET {address} says how far it is, POST {address}/cancel ends it"


def _how_to_find(topic: str) -> str:
    begun = f"SELECT id FROM holdfast.operations WHERE topic = '{topic}' AND ended_at IS NULL"  # noqa: S608
    return f"an operation may have begun, and goes on by itself then: {begun}"


def _states(service: Service, operation: str, progress: Progress) -> Iterator[dict[str, Any]]:
    """How far an operation is, up to its end. Raises NoAnswer if nobody has said so for PATIENCE_SECONDS."""
    heard, pause, ended = time.monotonic(), LOOK_SECONDS, False
    while not ended:
        try:
            state = service.get("v0", "operations", operation)
        except NoAnswer as error:
            if time.monotonic() - heard > PATIENCE_SECONDS:
                raise
            if pause == LOOK_SECONDS:
                progress.say(f"{error}; asked again")
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            heard, pause = time.monotonic(), LOOK_SECONDS
            yield state
            ended = state["ended_at"] is not None
        if not ended:
            time.sleep(pause)
