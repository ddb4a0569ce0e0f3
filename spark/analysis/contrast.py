"""Finds features of payloads that distinguish failing jobs from good ones. Pure.

A feature is a path's value (`$.country = "NO"`), its type or absence, or a range of its numbers. It is reported only if
enough failing jobs have it, if it is more common among them, and if chance is an unlikely cause: Fisher's exact test,
one-sided, multiplied by the number of tested features (Bonferroni).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MOST_DEPTH: Final = 6
MOST_FEATURES: Final = 300  # of one job
LONGEST_VALUE: Final = 80  # characters; a longer text is not compared
LONGEST_PATH: Final = 200
LEAST_SUPPORT: Final = 3  # failing jobs
LEAST_SHARE: Final = 0.05  # of the failing jobs
LEAST_LIFT: Final = 1.2
MOST_CHANCE: Final = 0.01  # after the correction

TYPE: Final = "type"
VALUE: Final = "value"
NUMBER: Final = "number"
ABSENT: Final = "absent"

Feature = tuple[str, str, str]  # path, kind, value


def features(payload: bytes | None, metadata: str | None) -> list[Feature]:
    """The distinct features of one job, at most MOST_FEATURES. A payload that is not JSON has only a type."""
    found: dict[Feature, None] = {}
    for root, given in (("$", payload), ("meta", metadata)):
        if given is None:
            continue
        try:
            document = json.loads(given)
        except (ValueError, RecursionError):
            found[root, TYPE, "not JSON"] = None
            continue
        for one in _walk(root, document, 0):
            if len(found) >= MOST_FEATURES:
                return list(found)
            found[one] = None
    return list(found)


def _walk(path: str, node: Any, depth: int) -> Iterator[Feature]:
    if len(path) > LONGEST_PATH:
        return
    match node:
        case dict():
            yield path, TYPE, "object"
            if depth < MOST_DEPTH:
                for name, child in node.items():
                    yield from _walk(f"{path}.{name}", child, depth + 1)
        case list():
            yield path, TYPE, "array"
            yield f"{path}.length", NUMBER, range_start(len(node))
            if depth < MOST_DEPTH:
                for child in node:
                    yield from _walk(f"{path}[]", child, depth + 1)
        case bool() | None:
            yield path, TYPE, "null" if node is None else "boolean"
            yield path, VALUE, json.dumps(node)
        case str():
            yield path, TYPE, "string"
            if len(node) <= LONGEST_VALUE:
                yield path, VALUE, json.dumps(node, ensure_ascii=False)
        case _:
            yield path, TYPE, "number"
            yield path, VALUE, json.dumps(node)
            if math.isfinite(node):
                yield path, NUMBER, range_start(node)


def range_start(number: float) -> str:
    """The start of a number's range: 0, or 1, 2 or 5 times a power of ten; mirrored below 0."""
    if number == 0:
        return "0"
    size = abs(number)
    if size >= 1e300 or size < 1e-300:
        return "0" if size < 1 else ("1e+300" if number > 0 else "-inf")
    power = 10.0 ** math.floor(math.log10(size))
    bounds = [power / 2, power, 2 * power, 5 * power, 10 * power, 20 * power]
    if number > 0:
        return f"{max(bound for bound in bounds if bound <= size):g}"
    return f"{-min(bound for bound in bounds if bound >= size):g}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A feature that distinguishes failing jobs, and how many failing and good jobs have it."""

    path: str
    what: str
    failing: int
    failing_of: int
    good: int
    good_of: int
    chance: float

    @property
    def support(self) -> float:
        """The share of failing jobs that have it."""
        return self.failing / self.failing_of

    @property
    def good_share(self) -> float:
        """The share of good jobs that have it."""
        return self.good / self.good_of

    @property
    def lift(self) -> float:
        """The failure rate of jobs that have it, divided by the overall failure rate."""
        return self.support / ((self.failing + self.good) / (self.failing_of + self.good_of))


def marks(failing: Mapping[Feature, int], failing_of: int, good: Mapping[Feature, int], good_of: int) -> list[Mark]:
    """The distinguishing features: for each path the most certain one, the most common first."""
    if not failing_of or not good_of:
        return []
    looked = list(_candidates(failing, failing_of, good, good_of))
    best: dict[str, Mark] = {}
    for path, what, a, b in looked:
        if a < LEAST_SUPPORT or a < LEAST_SHARE * failing_of:
            continue
        if a * (failing_of + good_of) < LEAST_LIFT * failing_of * (a + b):
            continue
        chance = min(1.0, fisher(a, failing_of, b, good_of) * len(looked))
        mark = Mark(path, what, a, failing_of, b, good_of, chance)
        if chance <= MOST_CHANCE and (path not in best or _order(mark) < _order(best[path])):
            best[path] = mark
    return sorted(best.values(), key=lambda mark: (-mark.support * (1 - mark.good_share), mark.path))


def _order(mark: Mark) -> tuple[float, int, str]:
    return mark.chance, -mark.failing, mark.what


def _candidates(
    failing: Mapping[Feature, int], failing_of: int, good: Mapping[Feature, int], good_of: int
) -> Iterator[tuple[str, str, int, int]]:
    """All candidates: path, text, and how many failing and good jobs have it."""
    present: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    numbers: dict[str, dict[float, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for side, counts in enumerate((failing, good)):
        for (path, kind, value), n in counts.items():
            if kind == TYPE:
                present[path][side] += n
            elif kind == NUMBER and "[]" not in path:  # a job may have several
                numbers[path][float(value)][side] += n
    for path, kind, value in sorted(failing.keys() | good.keys()):
        a, b = failing.get((path, kind, value), 0), good.get((path, kind, value), 0)
        if kind == VALUE:
            yield path, f"= {value}", a, b
        elif kind == TYPE:
            yield path, f"is {value}", a, b
    for path, (a, b) in sorted(present.items()):
        # For an array's items it is not known which jobs have none.
        if "[]" not in path:
            yield path, ABSENT, max(failing_of - a, 0), max(good_of - b, 0)
    for path, ranges in sorted(numbers.items()):
        yield from _thresholds(path, ranges)


def _thresholds(path: str, ranges: Mapping[float, Iterable[int]]) -> Iterator[tuple[str, str, int, int]]:
    bounds = sorted(ranges)
    counted = [tuple(ranges[bound]) for bound in bounds]
    for n in range(1, len(bounds)):
        below, above = counted[:n], counted[n:]
        yield path, f"< {bounds[n]:g}", sum(a for a, _ in below), sum(b for _, b in below)
        yield path, f">= {bounds[n]:g}", sum(a for a, _ in above), sum(b for _, b in above)


def fisher(a: int, failing: int, b: int, good: int) -> float:
    """The probability that `a` or more of the jobs with a feature (a + b) fail, if it is unrelated to failing."""
    having, total = a + b, failing + good
    whole = _log_choose(total, failing)
    last = min(having, failing)
    chance = 0.0
    for n in range(a, last + 1):
        if having - n > total or failing - n > total - having:
            continue
        term = math.exp(_log_choose(having, n) + _log_choose(total - having, failing - n) - whole)
        chance += term
        if term < chance * 1e-12 and n > having * failing / total:
            break  # the remaining terms are smaller
    return min(chance, 1.0)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
