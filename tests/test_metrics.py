"""What a process counts, how several processes' numbers come together, and what the manual says of them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.base.metrics import MergedNumbers, Metrics, Numbers, catalogue
from app.base.metrics.catalogue import FAMILIES, MetricType
from app.base.metrics.exposition import ORIGINAL, Scrape

MANUAL = Path(__file__).parents[1] / "docs/metrics.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \| ([^|]*) \| (\S.*) \|$", re.MULTILINE)
Sample = tuple[str, frozenset[tuple[str, str]]]


def shown(merged: MergedNumbers, *topics: str) -> dict[Sample, float]:
    text = Scrape(merged, frozenset(topics)).text("")[0].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(samples: dict[Sample, float], name: str, **labels: str) -> float:
    return samples["holdfast_" + name, frozenset(labels.items())]


def acks(numbers: Numbers) -> Callable[[float], None]:
    return numbers.counter(catalogue.CALLS, "v0", "ack", "ok").add


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0.0, 0), (0.0005, 0), (0.00051, 1), (0.001, 1), (29.9, 14), (30.0, 14), (30.1, 15), (1e9, 15)],
)
def test_a_value_falls_below_its_bound_or_on_it(value: float, bucket: int) -> None:
    histogram = Numbers().histogram(catalogue.CALL_SECONDS, "v0", "ack")
    histogram.observe(value)
    histogram.observe_all([value, value])
    assert [i for i, count in enumerate(histogram.counts) if count] == [bucket]
    assert histogram.counts[bucket] == 3
    assert histogram.sum == pytest.approx(3 * value)


def test_a_sum_never_falls() -> None:
    histogram = Numbers().histogram(catalogue.TOPIC_WAIT, "t")
    histogram.observe_all([-5, -5])
    assert (histogram.sum, histogram.counts[0]) == (0, 2)


async def test_units_are_seconds_whatever_was_counted() -> None:
    metrics = Metrics()
    metrics.topic("t").wait_us.observe(2_000_000)
    metrics.topic("t").processing_ms.observe_all([60, 40])
    samples = shown(await metrics.gather(), "t")
    assert of(samples, "topic_wait_seconds_sum", topic="t") == 2.0
    assert of(samples, "topic_wait_seconds_bucket", topic="t", le="1.0") == 0
    assert of(samples, "topic_wait_seconds_bucket", topic="t", le="5.0") == 1
    assert of(samples, "topic_wait_seconds_bucket", topic="t", le="+Inf") == 1
    assert of(samples, "topic_processing_seconds_sum", topic="t") == 0.1
    assert of(samples, "topic_processing_seconds_count", topic="t") == 2


async def test_topics_beyond_the_cap_are_counted_together_only() -> None:
    metrics = Metrics(most_topics=2)
    for name in ("a", "b", "c", "d"):
        metrics.topic(name).enqueued.add()
    assert (metrics.topics(), metrics.full) == (["a", "b"], True)
    metrics.forget(["a"])
    metrics.topic("d").enqueued.add(5)
    assert metrics.topics() == ["b", "d"]
    samples = shown(await metrics.gather(), "a", "b", "c", "d")
    assert {dict(labels)["topic"]: value for (name, labels), value in samples.items() if "enqueued" in name} == {
        "b": 1,
        "d": 5,
    }


async def test_a_name_needs_no_care() -> None:
    metrics = Metrics()
    name = 'quote" back\\slash\nline'
    metrics.topic(name).enqueued.add(3)
    assert of(shown(await metrics.gather(), name), "topic_enqueued_total", topic=name) == 3


async def test_alone_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    metrics = Metrics()
    metrics.start()
    await metrics.gather()
    await metrics.stop()
    assert list(tmp_path.iterdir()) == []


async def test_whichever_is_scraped_answers_for_all(tmp_path: Path) -> None:
    one, two = Metrics(0, tmp_path), Metrics(1, tmp_path)
    for metrics, calls in ((one, 3), (two, 4)):
        acks(metrics)(calls)
        metrics.topic("t").wait_us.observe_all([1_000] * calls)
        metrics.levels.append([(catalogue.PARKED, (), calls), (catalogue.REDIS, (), calls - 3.0)].copy)
    await one.gather()  # which writes it, and so does every second
    for samples in (shown(await two.gather(), "t"), shown(await one.gather(), "t")):
        assert of(samples, "calls_total", dialect="v0", verb="ack", code="ok") == 7
        assert of(samples, "topic_wait_seconds_count", topic="t") == 7
        assert of(samples, "topic_wait_seconds_sum", topic="t") == pytest.approx(0.007)
        assert of(samples, "waiters_parked") == 7
        assert of(samples, "redis_connected") == 0, "one does not hear it"
        assert of(samples, "processes") == 2
        assert {of(samples, "process_uptime_seconds", slot=slot) >= 0 for slot in ("0", "1")} == {True}


async def test_what_changed_is_written_within_a_second(tmp_path: Path) -> None:
    one, two = Metrics(0, tmp_path), Metrics(1, tmp_path)
    one.start()
    acks(one)(5)
    async with asyncio.timeout(10):
        while of_acks(await two.gather()) != 5:
            await asyncio.sleep(0.02)
    await one.stop()
    samples = shown(await two.gather())
    assert of_acks(await two.gather()) == 5, "its counters stay"
    assert of(samples, "processes") == 1


def of_acks(merged: MergedNumbers) -> float:
    return merged.counters.get("calls", {}).get(("v0", "ack", "ok"), 0)


DIES = """
import asyncio, os, pathlib, sys
from app.base.metrics import catalogue
from app.base.metrics import Metrics

async def main():
    metrics = Metrics(1, pathlib.Path(sys.argv[1]), most_topics=5)
    metrics.counter(catalogue.CALLS, "v0", "ack", "ok").add(10)
    metrics.topic("t").deliveries.observe(2)
    metrics.levels.append(lambda: [(catalogue.PARKED, (), 7)])
    merged = await metrics.gather()
    print(merged.counters["calls"]["v0", "ack", "ok"], flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def test_counters_never_go_back_when_a_process_is_killed(tmp_path: Path) -> None:
    """What a scrape has shown counts for the process that is started again in the slot, and meanwhile."""
    other = Metrics(0, tmp_path)
    for round_ in (1, 2):
        died = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", DIES, str(tmp_path)],
            stdout=subprocess.PIPE,
            check=False,
            text=True,
            cwd=MANUAL.parents[1],
        )
        assert (died.returncode, float(died.stdout)) == (-9, 10.0 * round_)
        merged = await other.gather()
        assert of_acks(merged) == 10 * round_
        samples = shown(merged, "t")
        assert of(samples, "topic_deliveries_count", topic="t") == round_
        assert ("holdfast_waiters_parked", frozenset()) not in samples, "the dead wait for nothing"
        assert of(samples, "processes") == 1


async def test_a_file_that_holds_no_metrics_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "0.metrics").write_bytes(b"\xc1 nonsense")
    (tmp_path / "1.metrics").write_bytes(b"")
    metrics = Metrics(0, tmp_path)
    acks(metrics)(2)
    assert of_acks(await metrics.gather()) == 2
    assert of_acks(await Metrics(0, tmp_path).gather()) == 2


async def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    metrics = Metrics(0, tmp_path / "sub")
    metrics.start()
    acks(metrics)(2)
    assert of_acks(await metrics.gather()) == 2
    await metrics.stop()


def manual() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric, as its tables have them."""
    rows = ROW.findall(MANUAL.read_text())
    assert len(rows) == len({name for name, *_ in rows}), "a metric stands there twice"
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}


def test_the_manual_has_every_metric_and_no_other() -> None:
    known = {family.exposed_name: (family.kind.value, set(family.labels)) for family in FAMILIES.values()}
    told = manual()
    assert {name: told[name] for name in told if name.startswith("holdfast_")} == known
    assert {name for name in told if not name.startswith("holdfast_")} == set(ORIGINAL)


async def test_what_is_shown_is_what_the_manual_says() -> None:
    """Every metric at once, each with its labels."""
    metrics = Metrics()
    gauges = []
    for family in FAMILIES.values():
        labels = ("t",) * len(family.labels)
        match family.kind:
            case MetricType.COUNTER:
                metrics.counter(family, *labels).add()
            case MetricType.HISTOGRAM:
                metrics.histogram(family, *labels).observe(1)
            case MetricType.GAUGE:
                gauges.append((family, labels, 1.0))
    metrics.levels.append(lambda: gauges)
    text = Scrape(await metrics.gather(), frozenset("t")).text("")[0].decode()
    found = {
        metric.name + ("_total" if metric.type == "counter" else ""): (
            metric.type,
            {label for label in metric.samples[0].labels if label != "le"},
        )
        for metric in text_string_to_metric_families(text)
    }
    assert found == manual()


def test_counting_is_cheap_enough_for_every_job() -> None:
    """A value may cost half a microsecond; this allows ten times that, for machines that do other things."""
    histogram = Numbers().histogram(catalogue.TOPIC_WAIT, "t")
    values = list(range(0, 10_000_000, 1_000))
    began = os.times().user
    for _ in range(5):
        histogram.observe_all(values)
    assert (os.times().user - began) / (5 * len(values)) < 5e-6
