"""forecast: arrivals by hand, from the service's own work, and with schedules; and a day again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.analysis import demand
from spark.analysis.demand import Known, Past, Schedule
from spark.analysis.queueing import Service
from spark.errors import Mistake
from spark.pipelines import forecast
from spark.windows import Window
from tests.spark.past import World, run

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)


def at(hours: float) -> datetime:
    return MIDNIGHT + timedelta(hours=hours)


def test_arrivals_by_hand(spark: SparkSession) -> None:
    rows = [
        (at(1.1), None, "enqueued", None),
        (at(1.2), at(3.5), "enqueued", None),  # delayed
        (at(1.3), at(1.3), "released", "no"),  # back at once
        (at(1.4), at(2.0), "claimed", None),
        (at(3.9), at(4.0), "requeued", "from q.dlq 1"),
        (at(3.9), None, "requeued", "to q 7"),  # where it left
        (at(4.1), None, "acked", None),
    ]
    events = spark.createDataFrame(rows, "at timestamp, until timestamp, event string, detail string")
    found = {row["place"]: (row["fresh"], row["late"]) for row in demand.arrivals(events, HOUR).collect()}
    first = demand.place(MIDNIGHT, HOUR)
    assert found == {first + 1: (1, 1), first + 3: (0, 1), first + 4: (0, 1)}


def test_deliveries_by_hand(spark: SparkSession) -> None:
    rows = [
        (at(1), None, "claimed", "a", 1, 7, at(0.5)),
        (at(1.5), None, "acked", "a", 1, 7, at(1)),
        (at(2), None, "claimed", "b", 1, 8, at(2.1)),  # a clock may lag
    ]
    events = spark.createDataFrame(
        rows, "at timestamp, until timestamp, event string, lease_id string, topic_id int, seq long, began_at timestamp"
    )
    ended, silent = demand.deliveries(events).orderBy("seq").collect()
    assert (ended["could_be_had"], ended["waited"], ended["took"]) == (at(0.5).timestamp(), 1800, 1800)
    assert (silent["waited"], silent["took"]) == (0, None)
    (took,) = demand.services(events).collect()
    assert (took["count"], took["mean"], took["variance"]) == (1, 1800, 0)


def test_a_schedule_fires_in_its_zone_and_not_before_it_was_made() -> None:
    """Eight in Berlin is seven in winter."""
    daily = Schedule("0 8 * * *", "Europe/Berlin", at(0))
    assert daily.fires(Window(at(-48), at(48))) == [at(7), at(31)]
    assert Schedule("0 * * * *", "UTC", at(1.5)).fires(Window(at(0), at(4))) == [at(2), at(3)]


def test_what_is_expected_by_hand() -> None:
    """At 10: 30 and 50 fresh on the two days before, one of each by a schedule; 4 delayed on average, and 9 wait:
    39 + 9 + 1. At 9 there were 1 and 3."""
    now = demand.place(at(48), HOUR)
    came = {now - 48 + 9: Past(1), now - 48 + 10: Past(30, 2), now - 24 + 10: Past(50, 6), now - 24 + 9: Past(3)}
    hourly = Schedule("0 10 * * *", "UTC", at(-100))
    service = Service(mean=60.0, variation=1.0)
    known = Known(Window(at(-72), at(48)), came, {now + 10: 9}, [hourly])
    steps = demand.forecast(Window(at(57), at(59)), HOUR, known, service, 5.0)
    nine, ten = steps
    assert (nine.at, nine.expected, nine.known, nine.busiest) == (at(57), 2, 0, 3)
    assert (ten.at, ten.expected, ten.known) == (at(58), 39 + 9 + 1, 10)
    assert ten.busiest == 49 + 9 + 1
    # 49 an hour of a minute each is a load of 0.82: one worker makes 95 % wait for minutes, three for no time.
    assert ten.workers == 3
    assert ten.workers_busiest >= ten.workers


async def test_a_queues_own_past_and_what_waits(
    spark: SparkSession, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = await world.topic("mail", max_deliveries=5, replayable=True)
    await world.move(days=1)  # nothing yet: it makes the day
    await world.work(mail, [{"data": n, "priority": n % 2} for n in range(8)])
    await world.pools.rest.execute(  # it was the same time yesterday
        "UPDATE holdfast.lease_events SET at = at - interval '1 day', began_at = began_at - interval '1 day', "
        "until = until - interval '1 day'"
    )
    await mail.append({"data": 1}, {"data": 2}, *({"data": n, "delay_ms": 3_600_000} for n in range(3)))
    await world.http.put("/v0/schedules/often", json={"topic": "mail", "cron": "*/20 * * * *", "record": {"data": 1}})
    now = datetime.now(UTC)
    page, data = tmp_path / "f.html", tmp_path / "f.json"
    words = ["--topic", "mail", "--from", (now - 2 * DAY).isoformat(), "--hours", "24", "--html", str(page)]
    words += ["--replay", str((now - DAY).date()), "--workers", "1,100", "--json", str(data)]
    assert await run(forecast, spark, world.dsn, *words) == 0
    found = json.loads(data.read_text())
    assert len(found["steps"]) == 24
    assert found["ended"] == 8
    assert found["backlog"] == 0, "they came in the hour that is not over"
    over = now.minute // 20 + 1  # of the three times an hour, those before now
    assert [step["known"] for step in found["steps"][:3]] == [2 + 3 - over, 3 + 3, 3]
    assert sum(step["known"] for step in found["steps"]) == 2 + 3 + 24 * 3 - over
    assert found["steps"][0]["expected"] == 8 + found["steps"][0]["known"], "eight came at that time yesterday"
    was, one, many = found["replays"]
    assert (was["name"], one["name"], many["name"]) == ("as it was", "1", "100")
    assert many["longest"] == 0, "with a hundred nobody waits"
    assert one["longest"] > 0
    assert 0 < many["busy"] < one["busy"] <= 1
    assert "8 deliveries" in found["replay_notes"][0]
    out = capsys.readouterr().out
    assert "as it was" in out
    assert "workers" in page.read_text()
    assert "<script" not in page.read_text()


async def test_what_can_not_be_told_is_refused(spark: SparkSession, world: World) -> None:
    await world.topic("idle")
    for words, why in (
        (("--hours", "0"), "--hours"),
        (("--by", "minute", "--hours", "99"), "at most 1500 steps"),
        (("--goal", "0"), "--goal"),
        (("--workers", "3"), "must be used together"),
        (("--workers", "x", "--replay", "2026-01-31"), "whole numbers"),
        (("--day", "2026-01-31"), "every day of lease_events"),
        ((), "its duration is unknown"),
        (("--topic", "ilde"), "there is no queue of that name"),
        (("--html", "/nowhere/x.html"), r"/nowhere/x\.html: there is no such folder"),
    ):
        with pytest.raises(Mistake, match=why):
            await run(forecast, spark, world.dsn, "--topic", "idle", *words)
