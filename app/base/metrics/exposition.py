"""Formats a scrape as Prometheus text or JSON. Takes up to some tenths of a second with 1,000 topics: call it in a
thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from app.base.metrics import Histogram, Labels, MergedNumbers, catalogue
from app.base.metrics.catalogue import FAMILIES, PREFIX, Family, MetricType

# Gauges with the original server's names, and their help.
ORIGINAL: Final = {
    "topics_topics": "Topics.",
    "topics_topics_by_class": "Topics by durability class.",
    "topics_queue_topics": "Topics that are queues.",
    "topics_routers": "Always 0.",
    "topics_records_live": "Records and unfinished jobs, in the topics that are listed separately.",
    "topics_bytes_live": "Bytes of their data; for logs, with meta.",
    "topics_queue_leases_in_flight": "Jobs in flight, in the topics that are listed separately.",
    "topics_sse_connections": "Open work streams and watches.",
    "topics_watch_sessions": "Open watches.",
    "topics_ready": "1 if the database answers.",
    "topics_recovery_progress": "Always 1: the database does the recovery.",
    "topics_uptime_ms": "How long the oldest server process has been running.",
    "topics_topic_metrics_truncated": "1 if there are more topics than are listed separately.",
    "topics_topic_head_seq": "The last assigned seq.",
    "topics_topic_earliest_seq": "The lowest live seq; head + 1 if there is none.",
    "topics_topic_records_live": "Records, or unfinished jobs.",
    "topics_topic_bytes_live": "Bytes of their data; for a log, with meta.",
    "topics_topic_queue_ready": "Jobs that are ready now.",
    "topics_topic_queue_in_flight": "Jobs with a valid lease.",
}
PAUSE_SECONDS: Final = 0.00005
Item = TypeVar("Item")
_CLASSES: Final = ("ephemeral", "memory", "disk", "fsync")


@dataclass(frozen=True, slots=True, eq=False)
class Scrape(Collector):
    """The merged numbers, and the topics whose metrics the caller may see."""

    merged: MergedNumbers
    topics: frozenset[str]

    def collect(self) -> Iterator[Metric]:
        """All metrics, for a registry of prometheus_client."""
        for family in FAMILIES.values():
            if metric := self._family(family):
                yield metric
        for name, samples in self.original().items():
            label = {"topics_topics_by_class": ["class"]}.get(name, ["topic"] if "_topic_" in name else [])
            label = [] if name == "topics_topic_metrics_truncated" else label
            gauge = GaugeMetricFamily(name, ORIGINAL[name], labels=label)
            for labels, value in samples.items():
                gauge.add_metric(labels, value)
            yield gauge

    def original(self) -> dict[str, dict[Labels, float]]:
        """The gauges of ORIGINAL."""
        levels = self.merged.levels
        topics = levels.get(catalogue.TOPICS.name, {})
        ready, in_flight, scheduled = (
            self._levels(catalogue.TOPIC_READY),
            self._levels(catalogue.TOPIC_IN_FLIGHT),
            self._levels(catalogue.TOPIC_SCHEDULED),
        )
        blocked, size = self._levels(catalogue.TOPIC_BLOCKED), self._levels(catalogue.TOPIC_BYTES)
        watches = self._one(catalogue.WATCHES)
        live = {topic: n + in_flight[topic] + scheduled[topic] + blocked[topic] for topic, n in ready.items()}
        live |= self._levels(catalogue.TOPIC_RECORDS)
        return {
            "topics_topics": {(): sum(topics.values())},
            "topics_topics_by_class": {
                (name,): sum(n for (_, durability), n in topics.items() if durability == name) for name in _CLASSES
            },
            "topics_queue_topics": {(): sum(n for (kind, _), n in topics.items() if kind == "queue")},
            "topics_routers": {(): 0},
            "topics_records_live": {(): sum(live.values())},
            "topics_bytes_live": {(): sum(size.values())},
            "topics_queue_leases_in_flight": {(): sum(in_flight.values())},
            "topics_sse_connections": {(): self._one(catalogue.STREAMS) + watches},
            "topics_watch_sessions": {(): watches},
            "topics_ready": {(): self._one(catalogue.DATABASE_UP)},
            "topics_recovery_progress": {(): 1},
            "topics_uptime_ms": {(): int(max(levels.get(catalogue.UPTIME.name, {(): 0.0}).values()) * 1000)},
            "topics_topic_metrics_truncated": {(): self._one(catalogue.TRUNCATED)},
            "topics_topic_head_seq": self._levels(catalogue.TOPIC_HEAD),
            "topics_topic_earliest_seq": self._levels(catalogue.TOPIC_EARLIEST),
            "topics_topic_records_live": live,
            "topics_topic_bytes_live": dict(size),
            "topics_topic_queue_ready": dict(ready),
            "topics_topic_queue_in_flight": dict(in_flight),
        }

    def json(self) -> dict[str, Any]:
        """The original server's JSON, with every metric under `metrics`."""
        original = self.original()
        one = {name: samples[()] for name, samples in original.items() if () in samples}
        return {
            "topics": one["topics_topics"],
            **{f"topics_{name}": original["topics_topics_by_class"][name,] for name in _CLASSES},
            "routers": 0,
            "records_live": one["topics_records_live"],
            "bytes_live": one["topics_bytes_live"],
            "queue_topics": one["topics_queue_topics"],
            "queue_leases_in_flight": one["topics_queue_leases_in_flight"],
            "sse_connections": int(one["topics_sse_connections"]),
            "watch_sessions": int(one["topics_watch_sessions"]),
            "ready": bool(one["topics_ready"]),
            "replay_progress": 1.0,
            "uptime_ms": one["topics_uptime_ms"],
            "wal": {},
            "metrics": {
                metric.name: {
                    "type": metric.type,
                    "samples": [{"name": s.name, "labels": s.labels, "value": s.value} for s in metric.samples],
                }
                for metric in self.collect()
                if metric.name.startswith(PREFIX)
            },
        }

    def text(self, accept: str) -> tuple[bytes, str]:
        """Prometheus or OpenMetrics text, depending on the Accept header. Returns it and its content type."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            encode, kind = choose_encoder(accept)
        except (TypeError, ValueError):  # the library's errors for a malformed version
            encode, kind = choose_encoder("")
        return encode(registry), kind

    def _family(self, family: Family) -> Metric | None:
        match family.kind:
            case MetricType.COUNTER:
                counter = CounterMetricFamily(PREFIX + family.name, family.text, labels=family.labels)
                for labels, value in self._visible(family, self.merged.counters):
                    counter.add_metric(labels, value)
                return counter if counter.samples else None
            case MetricType.GAUGE:
                gauge = GaugeMetricFamily(PREFIX + family.name, family.text, labels=family.labels)
                for labels, value in self._visible(family, self.merged.levels):
                    gauge.add_metric(labels, value)
                return gauge if gauge.samples else None
            case MetricType.HISTOGRAM:
                histogram = HistogramMetricFamily(PREFIX + family.name, family.text, labels=family.labels)
                names = [*map(floatToGoString, family.bounds), "+Inf"]
                for labels, one in _gently(self._visible(family, self.merged.histograms), 5):
                    histogram.add_metric(labels, _cumulative(names, one), one.sum / family.scale)
                histogram.samples = _Gentle(histogram.samples)
                return histogram if histogram.samples else None

    def _visible(self, family: Family, numbers: Mapping[str, Mapping[Labels, Any]]) -> Iterable[tuple[Labels, Any]]:
        samples = numbers.get(family.name, {})
        if family.labels != ("topic",):
            return samples.items()
        return [(labels, value) for labels, value in samples.items() if labels[0] in self.topics]

    def _levels(self, family: Family) -> dict[Labels, float]:
        return dict(self._visible(family, self.merged.levels))

    def _one(self, family: Family) -> float:
        return self.merged.levels.get(family.name, {}).get((), 0)


class _Gentle(list[Sample]):
    """Samples whose iteration pauses briefly, so that the event loop gets the interpreter more often than once in
    5 ms."""

    def __iter__(self) -> Iterator[Sample]:
        return _gently(super().__iter__(), 50)


def _gently(items: Iterable[Item], piece: int) -> Iterator[Item]:
    for i, item in enumerate(items, 1):
        if i % piece == 0:
            time.sleep(PAUSE_SECONDS)
        yield item


def _cumulative(names: Sequence[str], histogram: Histogram) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for name, count in zip(names, histogram.counts, strict=True):
        total += count
        buckets.append((name, total))
    return buckets
