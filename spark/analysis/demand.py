"""Forecasts arrivals and workers from past arrivals, schedules, and waiting jobs. Pure."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cronsim import CronSim
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark.analysis.queueing import Service, workers_needed
from spark.windows import Window

DAY: Final = timedelta(days=1)
COMES: Final = ("enqueued", "released", "requeued")
ENDS: Final = ("acked", "released", "failed", "dead_lettered", "cancelled")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron schedule."""

    cron: str
    time_zone: str
    since: datetime  # when it was created

    def fires(self, window: Window) -> list[datetime]:
        """Its due times in a window, after its creation."""
        start = max(window.start, self.since)
        zone = UTC if self.time_zone == "UTC" else zoneinfo.ZoneInfo(self.time_zone)
        found = []
        for due in CronSim(self.cron, (start - timedelta(seconds=1)).astimezone(zone)):
            if due >= window.end:
                break
            if due >= start:
                found.append(due.astimezone(UTC))
        return found


@dataclass(frozen=True, slots=True)
class Past:
    """Arrivals in a past step: `fresh` were claimable at once, `late` were delayed or returned."""

    fresh: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """The basis of a forecast.

    history    a past window
    came       its arrivals by step
    waiting    waiting jobs by the step in which they become claimable
    schedules  the topic's schedules
    """

    history: Window
    came: Mapping[int, Past]
    waiting: Mapping[int, int]
    schedules: Sequence[Schedule] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """The forecast of a step.

    expected  arrivals
    known     of these, jobs that wait now or come from schedules
    busiest   the most arrivals at this time of day so far
    workers, workers_busiest  the workers needed for each
    """

    at: datetime
    expected: float
    known: int
    busiest: float
    workers: int
    workers_busiest: int


def arrivals(events: DataFrame, step: timedelta) -> DataFrame:
    """place (the step since 1970), fresh and late: how many jobs became claimable, or claimable again, in each step."""
    event, later = f.col("event"), f.col("until").isNotNull()
    # A requeue of a dead letter has two events; the one where it left does not count.
    comes = event.isin(*COMES) & ~((event == "requeued") & f.coalesce("detail", f.lit("")).like("to %"))
    return (
        events.select("at", "until", "event", "detail")
        .where(comes)
        .groupBy(_place(f.coalesce("until", "at"), step).alias("place"))
        .agg(f.count_if(~later).alias("fresh"), f.count_if(later).alias("late"))
        .select("place", "fresh", "late")
    )


def services(events: DataFrame) -> DataFrame:
    """count, mean and variance, in seconds, of the durations of deliveries that their holders ended."""
    took = (f.unix_micros("at") - f.unix_micros("began_at")) / 1e6
    return (
        events.select("at", "began_at", "event")
        .where(f.col("event").isin(*ENDS) & f.col("began_at").isNotNull())
        .agg(f.count("*").alias("count"), f.avg(took).alias("mean"), f.var_pop(took).alias("variance"))
        .select("count", "mean", "variance")
    )


def deliveries(events: DataFrame) -> DataFrame:
    """topic_id, seq, could_be_had, waited and took of each delivery, in seconds; took is NULL if it did not end."""
    claimed, ended = f.col("event") == "claimed", f.col("event").isin(*ENDS)
    micros = {name: f.unix_micros(name) for name in ("since", "claimed_at", "ended_at")}
    return (
        events.select("lease_id", "topic_id", "seq", "at", "event", "began_at")
        .where((claimed | ended) & f.col("began_at").isNotNull() & f.col("lease_id").isNotNull())
        .groupBy("lease_id", "topic_id", "seq")
        .agg(
            f.min(f.when(claimed, f.col("began_at"))).alias("since"),
            f.min(f.when(claimed, f.col("at"))).alias("claimed_at"),
            f.max(f.when(ended, f.col("at"))).alias("ended_at"),
        )
        .where(f.col("since").isNotNull())
        .select(
            "topic_id",
            "seq",
            (micros["since"] / 1e6).alias("could_be_had"),
            (f.greatest(micros["claimed_at"] - micros["since"], f.lit(0)) / 1e6).alias("waited"),
            ((micros["ended_at"] - micros["claimed_at"]) / 1e6).alias("took"),
        )
    )


def waiting_by_step(jobs: DataFrame, window: Window, step: timedelta) -> DataFrame:
    """place, n and backlog: waiting jobs by the step in which they become claimable.

    Jobs that were claimable before the window are its backlog, and count in its first step.
    """
    when = f.greatest(f.col("visible_at"), f.lit(window.start))
    return (
        jobs.select("visible_at", "state")
        .where(f.col("state").isin("ready", "scheduled") & (f.col("visible_at") < window.end))
        .groupBy(_place(when, step).alias("place"))
        .agg(f.count("*").alias("n"), f.count_if(f.col("visible_at") < window.start).alias("backlog"))
        .select("place", "n", "backlog")
    )


def place(at: datetime, step: timedelta) -> int:
    """The step since 1970 that a time is in."""
    return int(at.timestamp() // step.total_seconds())


def forecast(window: Window, step: timedelta, of: Known, service: Service, goal: float) -> list[Step]:
    """The forecast of each step of a window, with the workers that keep 95 % of waits within `goal` seconds.

    A step's arrivals are the average at the same time of day since the first arrival. Jobs of schedules are subtracted
    there and added where they are due. Delayed jobs that already wait count where they exceed the average.
    """
    made, due = _fires(of.schedules, of.history, step), _fires(of.schedules, window, step)
    per_day, seconds = int(DAY / step), step.total_seconds()
    first = max(-(-int(of.history.start.timestamp()) // int(seconds)), min(of.came, default=0))
    last = place(of.history.end, step)
    steps = []
    for now in range(place(window.start, step), -(-int(window.end.timestamp()) // int(seconds))):
        days = [day for day in range(now - per_day, first - 1, -per_day) if day < last]
        fresh = [max(of.came.get(day, Past()).fresh - made.get(day, 0), 0) for day in days]
        late = [of.came.get(day, Past()).late for day in days]
        fires, waiting = due.get(now, 0), of.waiting.get(now, 0)
        expected = _mean(fresh) + max(_mean(late), waiting) + fires
        busiest = max(expected, *(fresh[n] + max(late[n], waiting) + fires for n in range(len(days))), 0)
        steps.append(
            Step(
                datetime.fromtimestamp(now * seconds, UTC),
                expected,
                waiting + fires,
                busiest,
                workers_needed(expected / seconds, service, goal),
                workers_needed(busiest / seconds, service, goal),
            )
        )
    return steps


def _fires(schedules: Sequence[Schedule], window: Window, step: timedelta) -> dict[int, int]:
    found: dict[int, int] = {}
    for schedule in schedules:
        for due in schedule.fires(window):
            found[place(due, step)] = found.get(place(due, step), 0) + 1
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _place(at: Column, step: timedelta) -> Column:
    return f.floor(f.unix_micros(at) / (step.total_seconds() * 1e6)).cast("long")
