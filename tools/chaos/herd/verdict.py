"""What a scenario found, and whether that is what is promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Found:
    """One figure, and the bound that it has to keep: at most, or at least. None: it never came."""

    what: str
    value: float | None
    most: float | None = None
    least: float | None = None

    @property
    def passed(self) -> bool:
        if self.value is None:
            return False
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    def line(self) -> str:
        value = "never" if self.value is None else f"{self.value:.2f}"
        bound = f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"
        return f"{self.what:62} {value:>9}  ({bound})  {'passed' if self.passed else 'FAILED'}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one scenario; `notes` are figures without a bound."""

    name: str
    found: Sequence[Found]
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.found)

    def lines(self) -> str:
        head = f"{self.name}: {'passed' if self.passed else 'FAILED'}"
        notes = ", ".join(f"{name} {value:,.1f}" for name, value in self.notes.items())
        return "\n".join([head, *(f"  {one.line()}" for one in self.found), f"  {notes}"])

    def record(self) -> dict[str, object]:
        """For the JSON."""
        found = [asdict(one) | {"passed": one.passed} for one in self.found]
        return {"name": self.name, "passed": self.passed, "found": found, "notes": self.notes}
