"""Reports kinds of errors, and what distinguishes their jobs from good ones. docs/pipelines.md."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark import report, source, topics, windows
from spark.analysis import contrast
from spark.analysis.contrast import LEAST_SUPPORT, VALUE, Feature, Mark
from spark.analysis.error_clusters import add_titles
from spark.archive import kept_days
from spark.archive.kept_days import Ledger
from spark.progress import Progress
from spark.texts import clean_line
from spark.windows import Window

OUT: Final = ("failed", "dead_lettered")
MONTH: Final = timedelta(days=30)
SILENCE: Final = "No error recorded"
MOST_CLUSTERS: Final = 20
MOST_MARKS: Final = 8
MOST_WORKERS: Final = 6
MOST_JOBS: Final = 50_000  # of each side in the sample, chosen by a hash of their seqs
VERSIONS: Final = ("version", "worker_version", "app_version", "release", "build")
FEATURE: Final = "array<struct<path string, kind string, value string>>"
NO_GOOD: Final = (
    "There is nothing to compare with: only replayable topics keep payloads of completed jobs, in their archive, and "
    "there are none for this topic and time."
)


@dataclass(frozen=True, slots=True)
class Worker:
    """A node: how many of a cluster's jobs failed there, and its share of all completions (None: there are none)."""

    name: str
    failed: int
    share: float | None
    stands_out: bool


@dataclass(frozen=True, slots=True)
class Version:
    """A value of a metadata field that names a version, and how many failing and good jobs have it."""

    path: str
    value: str
    failing: int
    good: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Errors of one kind in one topic. `payloads`: how many of its jobs have a payload; `note`: what is unknown."""

    topic: str
    cluster: str
    title: str
    count: int
    first: datetime
    last: datetime
    example: str | None
    times: list[int]
    workers: list[Worker]
    colour: str = report.PALETTE[-1]
    payloads: int = 0
    good: int = 0
    marks: tuple[Mark, ...] = ()
    versions: tuple[Version, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The failures of a window, the most common clusters first."""

    topic: str | None
    start: datetime
    end: datetime
    failed: int
    completed: int
    kinds: int
    times: list[datetime]
    clusters: list[Cluster]
    notes: list[str]


def arguments(parser: ArgumentParser) -> None:
    windows.arguments(parser, "default: the last 30 days")
    parser.add_argument("--topic", help="only this topic; default: all")
    kept_days.arguments(parser)
    parser.add_argument("--html", metavar="FILE", default="failures.html", help="the page; default: failures.html")
    parser.add_argument("--json", metavar="FILE", help="the report as JSON; - is stdout")


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Raises Mistake."""
    report.check(args.html, args.json)
    found = run(spark, dsn, _window(args), args.topic, args.from_files)
    if not (found.failed or found.completed) and (note := topics.note(dsn, args.topic)):
        print(note, file=sys.stderr)
    report.write(args.html, render(found))
    if args.json is not None:
        report.write(args.json, report.as_json(as_object(found)))
    if args.json != "-":
        print(summary(found))
        print(f"{args.html} has the full report")
    return 0


def run(spark: SparkSession, dsn: str, window: Window, topic: str | None, files: str | None) -> Report:
    """Make the report. `files` is the folder of --from-files. Raises Mistake."""
    ledger = Ledger(spark, dsn, topic, files)
    with Progress("failures: events, payloads, features", 3) as progress:
        failed, completed = ledger.events(window, *OUT), ledger.events(window, "acked")
        found = cluster_errors(add_titles(failure_events(failed), dsn), completions(completed), window, topic)
        progress.advance()
        if not found.clusters:
            return found
        jobs = failing_payloads(spark, dsn, window, found).unionByName(good_payloads(ledger, window, found))
        sampled = sample(jobs).cache()
        try:
            totals = {
                (row["topic"], row["side"]): row["count"] for row in sampled.groupBy("topic", "side").count().collect()
            }
            progress.advance()
            counts = feature_counts(sampled).collect()
            progress.advance()
        finally:
            sampled.unpersist()
    return add_marks(found, totals, counts)


def failure_events(events: DataFrame) -> DataFrame:
    """The events by which jobs failed for good."""
    columns = ("at", "topic", "node", "detail")
    return events.select("event", *columns).where(f.col("event").isin(*OUT)).select(*columns)


def completions(events: DataFrame) -> DataFrame:
    """The number of jobs that each node completed, by topic."""
    return (
        events.select("topic", "node", "event")
        .where(f.col("event") == "acked")
        .groupBy("topic", "node")
        .count()
        .select("topic", "node", "count")
    )


def cluster_errors(titles: DataFrame, completed: DataFrame, window: Window, topic: str | None) -> Report:
    """The report with its clusters, without their marks."""
    step = timedelta(days=1) if window.end - window.start > timedelta(days=3) else timedelta(hours=1)
    first = datetime.fromtimestamp(window.start.timestamp() // step.total_seconds() * step.total_seconds(), UTC)
    times = [first + n * step for n in range(-((first - window.end) // step))]
    place = f.floor((f.unix_micros("at") - f.lit(int(first.timestamp()) * 1_000_000)) / (step.total_seconds() * 1e6))
    rows = (
        titles.groupBy("topic", "cluster", "title", "node", place.cast("int").alias("place"))
        .agg(
            f.count("*").alias("n"),
            f.min("at").alias("first"),
            f.max("at").alias("last"),
            f.max_by("detail", "at").alias("example"),
        )
        .select("topic", "cluster", "title", "node", "place", "n", "first", "last", "example")
        .collect()
    )
    done: dict[str, Counter[str]] = defaultdict(Counter)
    for row in completed.collect():
        done[row["topic"]][row["node"] or ""] += row["count"]
    grouped: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row["topic"], row["cluster"]].append(row)
    clusters = [_cluster(place, parts, len(times), done[place[0]]) for place, parts in grouped.items()]
    clusters.sort(key=lambda one: (-one.count, one.topic, one.cluster))
    coloured = [
        replace(one, colour=report.PALETTE[min(n, len(report.PALETTE) - 1)])
        for n, one in enumerate(clusters[:MOST_CLUSTERS])
    ]
    return Report(
        topic,
        window.start,
        window.end,
        sum(one.count for one in clusters),
        sum(sum(nodes.values()) for nodes in done.values()),
        len(clusters),
        times,
        coloured,
        [],
    )


def _cluster(place: tuple[str, str], parts: Sequence[Any], bins: int, done: Mapping[str, int]) -> Cluster:
    times = [0] * bins
    nodes: Counter[str] = Counter()
    for part in parts:
        times[part["place"]] += part["n"]
        nodes[part["node"] or ""] += part["n"]
    count, completed = sum(times), sum(done.values())
    workers = []
    for name, n in sorted(nodes.items(), key=lambda item: (-item[1], item[0]))[:MOST_WORKERS]:
        chance = contrast.fisher(n, count, done.get(name, 0), completed) * len(nodes) if completed else 1.0
        stands_out = n >= LEAST_SUPPORT and chance <= contrast.MOST_CHANCE
        workers.append(Worker(name or "(none)", n, done.get(name, 0) / completed if completed else None, stands_out))
    last = max(parts, key=lambda part: part["last"])
    return Cluster(
        place[0],
        place[1],
        parts[0]["title"] or SILENCE,
        count,
        min(part["first"] for part in parts).replace(tzinfo=UTC),
        last["last"].replace(tzinfo=UTC),
        last["example"],
        times,
        workers,
    )


def failing_payloads(spark: SparkSession, dsn: str, window: Window, found: Report) -> DataFrame:
    """Payloads of failed jobs that still exist; `side` is their cluster."""
    columns = ("failed_in", "cluster", "seq", "payload", "metadata", "failed_at")
    letters = source.frame(spark, dsn, "dead_letters", window=window, columns=columns)
    kept = source.frame(spark, dsn, "jobs", columns=columns, filters=[("state", "=", "failed")])
    within = (f.col("failed_at") >= window.start) & (f.col("failed_at") < window.end)
    return (
        letters.unionByName(kept)
        .where(within & f.col("cluster").isin(*{one.cluster for one in found.clusters}))
        .where(f.col("failed_in").isin(*{one.topic for one in found.clusters}))
        .select(f.col("failed_in").alias("topic"), f.col("cluster").alias("side"), "seq", "payload", "metadata")
    )


def good_payloads(ledger: Ledger, window: Window, found: Report) -> DataFrame:
    """Payloads of completed jobs in the archive; `side` is empty."""
    kept = ledger.finished(window, ("topic", "seq", "payload", "metadata"))
    return kept.where(f.col("topic").isin(*{one.topic for one in found.clusters})).select(
        "topic", f.lit("").alias("side"), "seq", "payload", "metadata"
    )


def sample(jobs: DataFrame, most: int = MOST_JOBS) -> DataFrame:
    """At most about `most` jobs of each topic and side, the same ones each time."""
    sizes = {(row["topic"], row["side"]): row["count"] for row in jobs.groupBy("topic", "side").count().collect()}
    parts = {place: -(-size // most) for place, size in sizes.items() if size > most}
    kept = f.lit(True)
    for (topic, side), part in parts.items():
        one = (f.col("topic") == topic) & (f.col("side") == side)
        kept = f.when(one, f.pmod(f.xxhash64("seq"), f.lit(part)) == 0).otherwise(kept)
    return jobs.where(kept)


def feature_counts(jobs: DataFrame) -> DataFrame:
    """topic, side, path, kind, value and n, the number of jobs; without values that hardly any failing job has."""
    extract = f.udf(contrast.features, FEATURE, useArrow=False)
    each = (
        jobs.select("topic", "side", f.explode(extract("payload", "metadata")).alias("one"))
        .groupBy("topic", "side", "one.path", "one.kind", "one.value")
        .agg(f.count("*").alias("n"))
    )
    common = (
        each.where((f.col("side") != "") & (f.col("kind") == VALUE))
        .groupBy("topic", "path", "kind", "value")
        .agg(f.max("n").alias("most"))
        .where(f.col("most") >= LEAST_SUPPORT)
    )
    values = each.where(f.col("kind") == VALUE).join(common, ["topic", "path", "kind", "value"], "left_semi")
    columns = ("topic", "side", "path", "kind", "value", "n")
    return each.where(f.col("kind") != VALUE).select(*columns).unionByName(values.select(*columns))


def add_marks(found: Report, totals: Mapping[tuple[str, str], int], counts: Sequence[Any]) -> Report:
    """Add to each cluster what distinguishes its jobs."""
    sides: dict[tuple[str, str], dict[Feature, int]] = defaultdict(dict)
    for row in counts:
        sides[row["topic"], row["side"]][row["path"], row["kind"], row["value"]] = row["n"]
    clusters = []
    for one in found.clusters:
        failed, well = sides[one.topic, one.cluster], sides[one.topic, ""]
        payloads, good_of = totals.get((one.topic, one.cluster), 0), totals.get((one.topic, ""), 0)
        marked = contrast.marks(failed, payloads, well, good_of)[:MOST_MARKS]
        clusters.append(
            replace(
                one,
                payloads=payloads,
                good=good_of,
                marks=tuple(marked),
                versions=tuple(_versions(failed, well)),
                note=_note(one, payloads, good_of, marked),
            )
        )
    notes = [
        "Counts are of events in the ledger. Payloads are of failed jobs that still exist and of completed jobs in the "
        f"archive, at most {MOST_JOBS:,} of each. A field is reported if at least {LEAST_SUPPORT} failing jobs have "
        "it and Fisher's exact test, multiplied by the number of tested fields, gives a probability of at most "
        f"{contrast.MOST_CHANCE:.0%}."
    ]
    return replace(found, clusters=clusters, notes=notes)


def _versions(failed: Mapping[Feature, int], well: Mapping[Feature, int]) -> list[Version]:
    wanted = {f"{root}.{name}" for root in ("meta", "$") for name in VERSIONS}
    versions = [
        Version(path, value, n, well.get((path, kind, value), 0))
        for (path, kind, value), n in failed.items()
        if kind == VALUE and path in wanted
    ]
    return sorted(versions, key=lambda one: (-one.failing, one.path, one.value))[:MOST_WORKERS]


def _note(one: Cluster, payloads: int, good_of: int, marked: Sequence[Mark]) -> str:
    if not payloads:
        return "None of these jobs exists any more, so their payloads are unknown."
    if not good_of:
        return NO_GOOD
    if payloads < LEAST_SUPPORT:
        return f"{payloads} payloads are too few to compare."
    if not marked:
        return f"No significant difference between {payloads:,} failing and {good_of:,} good payloads."
    return (
        ""
        if payloads >= one.count
        else f"{payloads:,} of {one.count:,} such jobs were compared: the existing ones, or a sample."
    )


def render(found: Report) -> str:
    """The report as HTML."""
    shown = found.clusters[: len(report.PALETTE) - 1]
    rest = [sum(values) for values in zip(*(one.times for one in found.clusters[len(shown) :]), strict=True)]
    layers: dict[str, Sequence[float]] = {str(n): one.times for n, one in enumerate(shown)}
    legend = [(one.title, one.colour) for one in shown]
    if any(rest):
        layers["others"] = rest
        legend.append(("others", report.PALETTE[-1]))
    timeline = report.stacked(found.times, layers) if found.clusters else ""
    return report.page("failures.html", report=found, timeline=timeline, legend=legend)


def as_object(found: Report) -> dict[str, Any]:
    """The report for JSON, with lift and shares beside the counts."""
    whole = asdict(found)
    for one, kept in zip(found.clusters, whole["clusters"], strict=True):
        del kept["colour"]
        kept["marks"] = [
            {**asdict(mark), "support": mark.support, "good_share": mark.good_share, "lift": mark.lift}
            for mark in one.marks
        ]
    return whole


def summary(found: Report) -> str:
    """The report as text for a terminal."""
    rows = [f"{found.failed:,} jobs failed, {found.completed:,} were completed; {found.kinds} kinds of errors"]
    for one in found.clusters[:10]:
        rows.append(f"{one.count:>9,}  {clean_line(one.topic, 30)}  {clean_line(one.title, 80)}")
        rows += [
            f"{'':>11}{clean_line(mark.path, 50)} {clean_line(mark.what, 50)}: "
            f"{report.percent(mark.support)} of them, {report.percent(mark.good_share)} of good ones"
            for mark in one.marks[:3]
        ]
    return "\n".join(rows)


def _window(args: Namespace) -> Window:
    if args.day is None and args.start is None and args.end is None:
        now = datetime.now(UTC)
        return Window(now - MONTH, now)
    return windows.window(args)
