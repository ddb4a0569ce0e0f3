"""What a bar comes to: a ratio of two rates that has a least, or a value that has a most."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Ratio:
    """A rate against a base, both in `unit` a second, taken in turns in one run: the medians of the rounds count.

    `notes` go into the JSON only: whatever a picture wants.
    """

    name: str
    unit: str
    rates: Sequence[float]
    bases: Sequence[float]
    least: float
    notes: Mapping[str, object] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def base(self) -> float:
        return statistics.median(self.bases)

    @property
    def ratio(self) -> float:
        return self.rate / self.base

    @property
    def passed(self) -> bool:
        return self.ratio >= self.least

    def line(self) -> str:
        rates = f"{self.rate:>9,.0f} / {self.base:>9,.0f} {self.unit}/s"
        return f"{rates:<32} = {self.ratio:>6.2f}  (at least {self.least:.2f})"

    def record(self) -> dict[str, object]:
        """For the JSON."""
        return {
            **asdict(self),
            "rate": self.rate,
            "base": self.base,
            "ratio": self.ratio,
            "passed": self.passed,
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """A value in `unit` that must be `most` at most; `rounds` are what it was made from, `notes` as those of Ratio."""

    name: str
    unit: str
    value: float
    most: float
    rounds: Sequence[float]
    notes: Mapping[str, object] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.value <= self.most

    def line(self) -> str:
        return f"{'':<32}   {self.value:>6.1f}  (at most {self.most:g} {self.unit})"

    def record(self) -> dict[str, object]:
        """For the JSON."""
        return {**asdict(self), "passed": self.passed}


@dataclass(frozen=True, slots=True)
class Missing:
    """A bar that could not be taken, and why: not passed."""

    name: str
    reason: str
    passed: bool = False

    def line(self) -> str:
        return f"could not be measured: {self.reason}"

    def record(self) -> dict[str, object]:
        """For the JSON."""
        return asdict(self)


Figure = Ratio | Bound | Missing


def table(figures: Sequence[Figure], *, verdicts: bool = True) -> str:
    """A line for each figure: bar, rate, base, ratio, bound, and, with `verdicts`, pass or MISSED."""
    width = max((len(figure.name) for figure in figures), default=0)
    return "\n".join(
        f"{figure.name:{width}}  {figure.line()}" + (f"  {'pass' if figure.passed else 'MISSED'}" if verdicts else "")
        for figure in figures
    )


async def in_turns(
    rounds: int, one: Callable[[], Awaitable[float]], other: Callable[[], Awaitable[float]]
) -> tuple[list[float], list[float]]:
    """The rates of both, taken in the same rounds; who goes first changes from round to round."""
    rates: list[float] = []
    bases: list[float] = []
    sides = [(rates, one), (bases, other)]
    for i in range(rounds):
        for taken, measure in sides if i % 2 == 0 else reversed(sides):
            taken.append(await measure())
    return rates, bases


def held(figures: Sequence[Figure]) -> str:
    """A line for each bar that was taken in several runs: in how many it held. It passes when it held in each."""
    by_name: dict[str, list[bool]] = {}
    for figure in figures:
        by_name.setdefault(figure.name, []).append(figure.passed)
    width = max(map(len, by_name))
    return "\n".join(
        f"{name:{width}}  held in {sum(runs)} of {len(runs)} runs  {'pass' if all(runs) else 'MISSED'}"
        for name, runs in by_name.items()
    )
