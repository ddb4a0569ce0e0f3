"""The numbers of one process. Adding to one is a few instructions: no lock, no clock, no allocation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final

import msgspec

from app.base.metrics import catalogue
from app.base.metrics.catalogue import Family, Kind

Labels = tuple[str, ...]

MOST_TOPICS: Final = 1_000


class Counter(msgspec.Struct, array_like=True, gc=False):
    """A number that only grows."""

    value: float = 0

    def add(self, more: float = 1) -> None:
        """Add to it; not less than 0."""
        self.value += more


class Histogram(msgspec.Struct, array_like=True, gc=False):
    """How often values fell below each bound. counts[i] is of values in (bounds[i - 1], bounds[i]]; one more than there
    are bounds."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float = 0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count values. The sum never falls, though a time may come out negative: two clocks were read."""
        counts = self.counts
        for place in map(bisect_left, repeat(self.bounds), values):
            counts[place] += 1
        self.sum += max(sum(values), 0)


class Verb:
    """What is counted of a verb's shared statements."""

    __slots__ = ("_calls", "_jobs", "_jobs_of_call")

    def __init__(self, numbers: Numbers, verb: str) -> None:
        self._calls = numbers.histogram(catalogue.GROUP_CALLS, verb)
        self._jobs = numbers.histogram(catalogue.GROUP_JOBS, verb)
        self._jobs_of_call = numbers.histogram(catalogue.CALL_JOBS, verb)

    def shared(self, sizes: list[int]) -> None:
        """A statement did the work of calls with so many jobs each."""
        self._calls.observe(len(sizes))
        self._jobs.observe(sum(sizes))
        self._jobs_of_call.observe_all(sizes)


class TopicNumbers:
    """What is counted of one topic."""

    __slots__ = (
        "acked",
        "appended",
        "cancelled",
        "claimed",
        "crashes",
        "dead_lettered",
        "deliveries",
        "duplicates",
        "enqueued",
        "evicted",
        "expired",
        "extended",
        "failed",
        "nacked",
        "processing_ms",
        "read",
        "refunded",
        "refused",
        "suspected",
        "throttled",
        "unfit",
        "wait_us",
    )

    def __init__(self, numbers: Numbers, name: str) -> None:
        self.enqueued = numbers.counter(catalogue.TOPIC_ENQUEUED, name)
        self.duplicates = numbers.counter(catalogue.TOPIC_DUPLICATES, name)
        self.refused = numbers.counter(catalogue.TOPIC_REFUSED, name)
        self.unfit = numbers.counter(catalogue.TOPIC_UNFIT, name)
        self.throttled = numbers.counter(catalogue.TOPIC_THROTTLED, name)
        self.appended = numbers.counter(catalogue.TOPIC_APPENDED, name)
        self.read = numbers.counter(catalogue.TOPIC_READ, name)
        self.claimed = numbers.counter(catalogue.TOPIC_CLAIMED, name)
        self.acked = numbers.counter(catalogue.TOPIC_ACKED, name)
        self.nacked = numbers.counter(catalogue.TOPIC_NACKED, name)
        self.extended = numbers.counter(catalogue.TOPIC_EXTENDED, name)
        self.cancelled = numbers.counter(catalogue.TOPIC_CANCELLED, name)
        self.expired = numbers.counter(catalogue.TOPIC_EXPIRED, name)
        self.evicted = numbers.counter(catalogue.TOPIC_EVICTED, name)
        self.failed = numbers.counter(catalogue.TOPIC_FAILED, name)
        self.dead_lettered = numbers.counter(catalogue.TOPIC_DEAD, name)
        self.refunded = numbers.counter(catalogue.TOPIC_REFUNDED, name)
        self.crashes = numbers.counter(catalogue.TOPIC_CRASHES, name)
        self.suspected = numbers.counter(catalogue.TOPIC_SUSPECTED, name)
        self.wait_us = numbers.histogram(catalogue.TOPIC_WAIT, name)
        self.processing_ms = numbers.histogram(catalogue.TOPIC_PROCESSING, name)
        self.deliveries = numbers.histogram(catalogue.TOPIC_DELIVERIES, name)


class Numbers:
    """Counters and histograms by metric and labels, made when first asked for. Keep what you got: asking costs more
    than adding. `levels` are asked at a scrape for what is the case then."""

    def __init__(self, most_topics: int = MOST_TOPICS) -> None:
        self.counters: dict[str, dict[Labels, Counter]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}
        self.levels: list[Callable[[], Iterable[tuple[Family, Labels, float]]]] = []
        self.full = False  # more topics were met than are counted one by one
        self._most_topics = most_topics
        self._topics: dict[str, TopicNumbers] = {}
        self._rest: TopicNumbers | None = None

    def counter(self, family: Family, *labels: str) -> Counter:
        """The counter of these labels."""
        assert family.kind is Kind.COUNTER
        assert len(labels) == len(family.labels)
        return self.counters.setdefault(family.name, {}).setdefault(labels, Counter())

    def histogram(self, family: Family, *labels: str) -> Histogram:
        """The histogram of these labels."""
        assert family.kind is Kind.HISTOGRAM
        assert len(labels) == len(family.labels)
        return self.histograms.setdefault(family.name, {}).setdefault(labels, empty(family))

    def topic(self, name: str) -> TopicNumbers:
        """A topic's numbers. Beyond `most_topics` they are counted nowhere."""
        topic = self._topics.get(name)
        if topic is None:
            if len(self._topics) >= self._most_topics:
                self.full = True
                if self._rest is None:
                    self._rest = TopicNumbers(Numbers(), "")
                return self._rest
            topic = self._topics[name] = TopicNumbers(self, name)
        return topic

    def topics(self) -> list[str]:
        """The topics that are counted one by one."""
        return list(self._topics)

    def forget(self, names: Iterable[str]) -> None:
        """These topics are gone; what was counted of them is dropped."""
        for name in names:
            if self._topics.pop(name, None) is not None:
                self.full = False
            for family in catalogue.OF_TOPICS:
                self.counters.get(family.name, {}).pop((name,), None)
                self.histograms.get(family.name, {}).pop((name,), None)


def empty(family: Family) -> Histogram:
    """A histogram of a metric, with nothing counted."""
    return Histogram(tuple(bound * family.scale for bound in family.bounds), [0] * (len(family.bounds) + 1))
