"""Estimates how many workers a queue needs, and simulates a day with other numbers. docs/pipelines.md."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark import report, source, topics, windows
from spark.analysis import demand
from spark.analysis.demand import DAY, Known, Past, Schedule, Step
from spark.analysis.queueing import Service, nearest_rank, replay
from spark.archive import kept_days
from spark.archive.kept_days import Ledger
from spark.errors import Mistake
from spark.progress import Progress
from spark.source.connection import connect
from spark.windows import Window

STEPS: Final = {"hour": timedelta(hours=1), "minute": timedelta(minutes=1)}
MOST_STEPS: Final = 1_500
MOST_REPLAYED: Final = 5_000_000
_SCHEDULES: Final = "SELECT cron, time_zone, created_at FROM holdfast.schedules WHERE topic = %s AND NOT paused"


@dataclass(frozen=True, slots=True)
class Replay:
    """The waits of a day, in seconds, as they were or with a number of workers.

    `within`: the share of waits within the goal. `busy`: the share of time that workers work; None if it is unknown.
    """

    name: str
    p50: float
    p95: float
    p99: float
    longest: float
    within: float
    busy: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The result of a forecast."""

    topic: str
    goal: float
    unit: str
    steps: list[Step]
    service: Service
    ended: int
    backlog: int
    past: Window
    day: str
    replays: list[Replay]
    replay_notes: list[str]


def arguments(parser: ArgumentParser) -> None:
    windows.arguments(parser, "the history to use; default: the last seven days")
    parser.add_argument("--topic", required=True, help="the queue")
    kept_days.arguments(parser)
    parser.add_argument(
        "--goal", type=float, default=5.0, metavar="SECONDS", help="how long 95 %% of jobs may wait; default: 5"
    )
    parser.add_argument(
        "--hours", type=int, default=24, metavar="N", help="hours to forecast from the window's end; default: 24"
    )
    parser.add_argument("--by", choices=STEPS, default="hour", help="steps of the forecast; default: hour")
    parser.add_argument("--replay", metavar="DATE", help="simulate this UTC day with each number of --workers")
    parser.add_argument("--workers", metavar="N,N", default="", help="numbers of workers, such as 4,8,16")
    parser.add_argument("--html", metavar="FILE", default="forecast.html", help="the page; default: forecast.html")
    parser.add_argument("--json", metavar="FILE", help="the forecast as JSON; - is stdout")


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Raises Mistake."""
    report.check(args.html, args.json)
    found = run(spark, dsn, args)
    report.write(args.html, render(found))
    if args.json is not None:
        report.write(args.json, report.as_json(asdict(found)))
    if args.json != "-":
        print(summary(found))
        print(f"{args.html} has the full report with charts")
    return 0


def run(spark: SparkSession, dsn: str, args: Namespace) -> Forecast:
    """Make the forecast. Raises Mistake."""
    step, numbers = STEPS[args.by], _numbers(args)
    past = _past(args, step)
    if args.hours < 1 or timedelta(hours=1) / step * args.hours > MOST_STEPS:
        raise Mistake(f"--hours {args.hours}: must be 1 or more; at most {MOST_STEPS} steps (--by hour)")
    if args.goal <= 0:
        raise Mistake(f"--goal {args.goal:g}: must be more than 0")
    if not topics.exists(dsn, args.topic):
        raise Mistake(f"--topic {args.topic}: there is no queue of that name")
    future = Window(past.end, past.end + timedelta(hours=args.hours))
    with Progress("forecast", 3 + len(numbers)) as progress:
        ledger = Ledger(spark, dsn, args.topic, args.from_files)
        ledger.days(past).check("forecast", since_oldest=True)
        rows = demand.arrivals(ledger.events(past, *demand.COMES), step).collect()
        came = {row["place"]: Past(row["fresh"], row["late"]) for row in rows}
        (took,) = demand.services(ledger.events(past, *demand.ENDS)).collect()
        progress.advance()
        if not took["count"]:
            raise Mistake(f"no delivery of {args.topic} ended in {past}, so its duration is unknown")
        service = Service(took["mean"], took["variance"] / took["mean"] ** 2 if took["mean"] else 0.0)
        filters = [("state", "in", ["ready", "scheduled"])]
        waiting = source.frame(spark, dsn, "jobs", args.topic, columns=["visible_at", "state"], filters=filters)
        ahead = demand.waiting_by_step(waiting, future, step).collect()
        known = {row["place"]: row["n"] for row in ahead}
        progress.advance()
        of = Known(past, came, known, schedules(dsn, args.topic))
        steps = demand.forecast(future, step, of, service, args.goal)
        progress.advance()
        replays: list[Replay] = []
        notes: list[str] = []
        if args.replay is not None:
            replays, notes = replay_day(ledger, args, numbers, service)
            progress.advance(len(numbers))
    return Forecast(
        topic=args.topic,
        goal=args.goal,
        unit=args.by,
        steps=steps,
        service=service,
        ended=took["count"],
        backlog=sum(row["backlog"] for row in ahead),
        past=past,
        day=args.replay or "",
        replays=replays,
        replay_notes=notes,
    )


def schedules(dsn: str, topic: str) -> list[Schedule]:
    """A topic's schedules that are not paused."""
    with connect(dsn, read_only=True, purpose="forecast") as connection:
        return [Schedule(*row) for row in connection.execute(_SCHEDULES, [topic]).fetchall()]


def replay_day(
    ledger: Ledger, args: Namespace, numbers: Sequence[int], service: Service
) -> tuple[list[Replay], list[str]]:
    """A day as it was and with each number of workers, and notes about it. Raises Mistake."""
    start = windows.midnight(windows.day(args.replay, "--replay"))
    day = Window(start, start + DAY)
    ledger.days(day).check("--replay")
    # A delivery of that day may be claimed and end later; events up to a day later are read.
    events = ledger.events(Window(day.start, day.end + DAY), "claimed", *demand.ENDS)
    jobs = with_priority(demand.deliveries(events), _archived_priorities(ledger, day))
    of_day = (f.col("could_be_had") >= day.start.timestamp()) & (f.col("could_be_had") < day.end.timestamp())
    table = jobs.where(of_day).orderBy("could_be_had", "topic_id", "seq").limit(MOST_REPLAYED + 1).toArrow()
    if table.num_rows == 0:
        raise Mistake(f"--replay {args.replay}: {args.topic} has no known delivery on that day")
    if table.num_rows > MOST_REPLAYED:
        raise Mistake(f"--replay {args.replay}: more than {MOST_REPLAYED:,} deliveries")
    since, waited, took, ranks = (table[name].to_pylist() for name in ("could_be_had", "waited", "took", "rank"))
    unended = took.count(None)
    filled = [service.mean if one is None else one for one in took]
    found = [_summarize("as it was", waited, args.goal, None)]
    for number in numbers:
        waits = replay(since, filled, number, ranks)
        span = max(at + wait + one for at, wait, one in zip(since, waits, filled, strict=True)) - since[0]
        found.append(
            _summarize(f"{number:,}", waits, args.goal, min(sum(filled) / (number * span), 1.0) if span else 0.0)
        )
    notes = [
        f"{table.num_rows:,} deliveries, each with its arrival and duration of that day. A retry arrives when it did, "
        "even if the first attempt would now be earlier."
    ]
    if unended:
        notes.append(f"{unended:,} of them were not ended by their worker; the average duration is used for them.")
    if len(set(ranks)) == 1:
        notes.append("No priorities are known, so they are claimed first come, first served.")
    return found, notes


def with_priority(jobs: DataFrame, archived: DataFrame) -> DataFrame:
    """Deliveries with a rank, the lowest first. Jobs that are not archived have priority 0."""
    return jobs.join(archived, ["topic_id", "seq"], "left").select(
        "topic_id", "seq", "could_be_had", "waited", "took", (-f.coalesce("priority", f.lit(0))).alias("rank")
    )


def _archived_priorities(ledger: Ledger, day: Window) -> DataFrame:
    kept = ledger.finished(Window(day.start, day.end + DAY), ("topic_id", "seq", "priority"))
    return kept.groupBy("topic_id", "seq").agg(f.max("priority").alias("priority"))


def _summarize(name: str, waits: Sequence[float], goal: float, busy: float | None) -> Replay:
    ordered = sorted(waits)
    p50, p95, p99 = (nearest_rank(ordered, percent) for percent in (50, 95, 99))
    return Replay(name, p50, p95, p99, ordered[-1], sum(wait <= goal for wait in ordered) / len(ordered), busy)


def summary(found: Forecast) -> str:
    """The forecast as text for a terminal."""
    rows = [
        f"{found.topic}: a delivery takes {report.duration(found.service.mean * 1000)} on average; "
        f"95 % may wait at most {report.duration(found.goal * 1000)}",
        f"{'from (UTC)':<17}{'expected':>10}{'known':>9}{'busiest':>10}{'workers':>9}{'if as busy':>12}",
    ]
    rows += [
        f"{step.at:%Y-%m-%d %H:%M} {step.expected:>10,.0f}{step.known:>9,}{step.busiest:>10,.0f}{step.workers:>9,}"
        f"{step.workers_busiest:>12,}"
        for step in found.steps
    ]
    if found.replays:
        heads = "".join(f"{name:>10}" for name in ("p50", "p95", "p99", "longest"))
        rows += ["", f"{found.day} simulated", f"{'workers':<12}{heads}{'within':>9}{'busy':>7}"]
        for one in found.replays:
            waits = "".join(f"{report.duration(wait * 1000):>10}" for wait in (one.p50, one.p95, one.p99, one.longest))
            busy = "" if one.busy is None else report.percent(one.busy)
            rows.append(f"{one.name:<12}{waits}{report.percent(one.within):>9}{busy:>7}")
        rows += found.replay_notes
    return "\n".join(rows)


def render(found: Forecast) -> str:
    """The forecast as HTML."""
    steps = found.steps
    times = [step.at for step in steps]
    view: dict[str, Any] = {name: getattr(found, name) for name in Forecast.__slots__}
    return report.page(
        "forecast.html",
        **view,
        peak=max(steps, key=lambda step: step.workers),
        total=sum(step.expected for step in steps),
        known=sum(step.known for step in steps),
        palette=report.PALETTE,
        arrivals=report.lines(times, {"a": [step.busiest for step in steps]}, {"b": [step.expected for step in steps]}),
        workers=report.lines(
            times, {"a": [step.workers_busiest for step in steps]}, {"b": [step.workers for step in steps]}
        ),
        notes=[
            f"Expected are the arrivals of {found.past} at the same time of day, schedules, and waiting delayed jobs. "
            "Workers are computed by Erlang C, corrected for varying durations (Allen and Cunneen): each does one "
            "job at a time, and arrivals within a step are random."
        ],
    )


def _past(args: Namespace, step: timedelta) -> Window:
    """The history up to the last complete step; default: seven days."""
    is_given = args.day is not None or args.start is not None or args.end is not None
    now = datetime.now(UTC)
    given = windows.window(args) if is_given else Window(now - 7 * DAY, now)
    end = min(given.end, now)
    return Window(given.start, end - (end - datetime.fromtimestamp(0, UTC)) % step)


def _numbers(args: Namespace) -> list[int]:
    try:
        numbers = [int(one) for one in args.workers.split(",") if one.strip()]
    except ValueError:
        numbers = [0]
    if any(not 1 <= number <= 100_000 for number in numbers) or len(numbers) > 20:
        raise Mistake(f"--workers {args.workers}: must be at most 20 whole numbers from 1 to 100000, such as 4,8,16")
    if bool(numbers) != (args.replay is not None):
        raise Mistake("--replay and --workers must be used together")
    return numbers
