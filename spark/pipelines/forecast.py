"""How many workers a queue will need, and how a day would have been with another number. docs/pipelines.md."""

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
from spark.archive.ledger_events import Ledger
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
    """The waits of a day, in seconds: as they were, or with so many workers. `busy` is the part of the workers' time
    (None: nobody knows how many there were)."""

    name: str
    p50: float
    p95: float
    p99: float
    longest: float
    within: float
    busy: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What will come, and what it takes."""

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
    windows.arguments(parser, "the past to tell from; the last seven days, if left out")
    parser.add_argument("--topic", required=True, help="the queue")
    kept_days.arguments(parser)
    parser.add_argument("--goal", type=float, default=5.0, metavar="SECONDS", help="that 95 %% wait at most; 5")
    parser.add_argument("--hours", type=int, default=24, metavar="N", help="to look ahead, from the window's end; 24")
    parser.add_argument("--by", choices=STEPS, default="hour", help="steps of the forecast; hour")
    parser.add_argument("--replay", metavar="DATE", help="replay this day (UTC) with each number of --workers")
    parser.add_argument("--workers", metavar="N,N", default="", help="numbers of workers, as 4,8,16")
    parser.add_argument("--html", metavar="FILE", default="forecast.html", help="the page; forecast.html, if left out")
    parser.add_argument("--json", metavar="FILE", help="the same as JSON; - is stdout")


def main(spark: SparkSession, dsn: str, args: Namespace) -> int:
    """Raises Mistake."""
    report.check(args.html, args.json)
    found = run(spark, dsn, args)
    report.write(args.html, rendered(found))
    if args.json is not None:
        report.write(args.json, report.as_json(asdict(found)))
    if args.json != "-":
        print(told(found))
        print(f"{args.html} has it with pictures")
    return 0


def run(spark: SparkSession, dsn: str, args: Namespace) -> Forecast:
    """Extract, transform, and what the driver makes of it. Raises Mistake."""
    step, numbers = STEPS[args.by], _numbers(args)
    past = _past(args, step)
    if args.hours < 1 or timedelta(hours=1) / step * args.hours > MOST_STEPS:
        raise Mistake(f"--hours {args.hours}: 1 or more, and {MOST_STEPS} steps at most; --by hour has longer ones")
    if args.goal <= 0:
        raise Mistake(f"--goal {args.goal:g}: more than no time")
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
            raise Mistake(f"no delivery of {args.topic} ended within {past}: nobody knows how long one takes")
        service = Service(took["mean"], took["variance"] / took["mean"] ** 2 if took["mean"] else 0.0)
        filters = [("state", "in", ["ready", "scheduled"])]
        waiting = source.frame(spark, dsn, "jobs", args.topic, columns=["visible_at", "state"], filters=filters)
        ahead = demand.ahead(waiting, future, step).collect()
        known = {row["place"]: row["n"] for row in ahead}
        progress.advance()
        of = Known(past, came, known, schedules(dsn, args.topic))
        steps = demand.forecast(future, step, of, service, args.goal)
        progress.advance()
        replays: list[Replay] = []
        notes: list[str] = []
        if args.replay is not None:
            replays, notes = replayed(ledger, args, numbers, service)
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
    """Those that make jobs for a topic, unless they are paused."""
    with connect(dsn, read_only=True, purpose="forecast") as connection:
        return [Schedule(*row) for row in connection.execute(_SCHEDULES, [topic]).fetchall()]


def replayed(
    ledger: Ledger, args: Namespace, numbers: Sequence[int], service: Service
) -> tuple[list[Replay], list[str]]:
    """A day as it was, and with each number of workers; and what is to be known about that. Raises Mistake."""
    start = windows.midnight(windows.day(args.replay, "--replay"))
    day = Window(start, start + DAY)
    ledger.days(day).check("--replay")
    # What could be had on that day may have been claimed days later; what was claimed ends a day later at most.
    events = ledger.events(Window(day.start, day.end + DAY), "claimed", *demand.ENDS)
    jobs = with_priority(demand.deliveries(events), _archived(ledger, day))
    of_day = (f.col("could_be_had") >= day.start.timestamp()) & (f.col("could_be_had") < day.end.timestamp())
    table = jobs.where(of_day).orderBy("could_be_had", "topic_id", "seq").limit(MOST_REPLAYED + 1).toArrow()
    if table.num_rows == 0:
        raise Mistake(f"--replay {args.replay}: no delivery of {args.topic} on that day is known")
    if table.num_rows > MOST_REPLAYED:
        raise Mistake(f"--replay {args.replay}: more than {MOST_REPLAYED:,} deliveries")
    since, waited, took, ranks = (table[name].to_pylist() for name in ("could_be_had", "waited", "took", "rank"))
    unended = took.count(None)
    filled = [service.mean if one is None else one for one in took]
    found = [_summed("as it was", waited, args.goal, None)]
    for number in numbers:
        waits = replay(since, filled, number, ranks)
        span = max(at + wait + one for at, wait, one in zip(since, waits, filled, strict=True)) - since[0]
        found.append(_summed(f"{number:,}", waits, args.goal, min(sum(filled) / (number * span), 1.0) if span else 0.0))
    notes = [
        f"{table.num_rows:,} deliveries, each when it could be had and for as long as it took that day. A retry comes "
        "when it did, whatever the first try would have waited."
    ]
    if unended:
        notes.append(f"Nobody ended {unended:,} of them; those are taken to last as long as the average.")
    if len(set(ranks)) == 1:
        notes.append("They are claimed first come, first served: no priorities are known of them.")
    return found, notes


def with_priority(jobs: DataFrame, archived: DataFrame) -> DataFrame:
    """Deliveries with their rank, the lowest first; jobs that no archive has are of priority 0."""
    return jobs.join(archived, ["topic_id", "seq"], "left").select(
        "topic_id", "seq", "could_be_had", "waited", "took", (-f.coalesce("priority", f.lit(0))).alias("rank")
    )


def _archived(ledger: Ledger, day: Window) -> DataFrame:
    kept = ledger.finished(Window(day.start, day.end + DAY), ("topic_id", "seq", "priority"))
    return kept.groupBy("topic_id", "seq").agg(f.max("priority").alias("priority"))


def _summed(name: str, waits: Sequence[float], goal: float, busy: float | None) -> Replay:
    ordered = sorted(waits)
    p50, p95, p99 = (nearest_rank(ordered, percent) for percent in (50, 95, 99))
    return Replay(name, p50, p95, p99, ordered[-1], sum(wait <= goal for wait in ordered) / len(ordered), busy)


def told(found: Forecast) -> str:
    """The forecast as a table."""
    rows = [
        f"{found.topic}: a delivery takes {report.duration(found.service.mean * 1000)} on average; "
        f"95 % are to wait {report.duration(found.goal * 1000)} at most",
        f"{'from (UTC)':<17}{'expected':>10}{'known':>9}{'busiest':>10}{'workers':>9}{'if as busy':>12}",
    ]
    rows += [
        f"{step.at:%Y-%m-%d %H:%M} {step.expected:>10,.0f}{step.known:>9,}{step.busiest:>10,.0f}{step.workers:>9,}"
        f"{step.workers_busiest:>12,}"
        for step in found.steps
    ]
    if found.replays:
        heads = "".join(f"{name:>10}" for name in ("p50", "p95", "p99", "longest"))
        rows += ["", f"{found.day} again", f"{'workers':<12}{heads}{'within':>9}{'busy':>7}"]
        for one in found.replays:
            waits = "".join(f"{report.duration(wait * 1000):>10}" for wait in (one.p50, one.p95, one.p99, one.longest))
            busy = "" if one.busy is None else report.percent(one.busy)
            rows.append(f"{one.name:<12}{waits}{report.percent(one.within):>9}{busy:>7}")
        rows += found.replay_notes
    return "\n".join(rows)


def rendered(found: Forecast) -> str:
    """The page."""
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
            f"Arrivals of {found.past}, of the same time of day; schedules where they are due; delayed jobs that wait. "
            "Workers by Erlang C, with the wait corrected for how much deliveries vary (Allen and Cunneen): each does "
            "one at a time, and arrivals within a step are random."
        ],
    )


def _past(args: Namespace, step: timedelta) -> Window:
    """The history: what was asked for, up to the last whole step that is over; or seven days."""
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
        raise Mistake(f"--workers {args.workers}: whole numbers from 1 to 100000, 20 at most, as 4,8,16")
    if bool(numbers) != (args.replay is not None):
        raise Mistake("--replay and --workers belong together")
    return numbers
