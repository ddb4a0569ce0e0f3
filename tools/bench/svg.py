"""Lines over a logarithmic scale, as SVG by hand, named at their ends.

No library: one style sheet inside the picture makes it readable in a light and in a dark page, text stays text, and
the same figures give the same bytes, which a test compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

STYLE: Final = """
  svg { font: 13px system-ui, sans-serif; --page: #ffffff; --ink: #1f2328; --soft: #59636e; --rule: #d8dee4;
    --c0: #0a5fd0; --c1: #d9541e; --c2: #12875c; --c3: #a06a00; --c4: #c2417c; --c5: #6a4fc4; --c6: #55606b; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --ink: #e6edf3; --soft: #9aa4af; --rule: #2b323b;
      --c0: #58a6ff; --c1: #ff8a55; --c2: #3ec28f; --c3: #d9a52e; --c4: #f07fb1; --c5: #a893f5; --c6: #9aa4af; }
  }
  .page { fill: var(--page); } text { fill: var(--ink); } .soft { fill: var(--soft); font-size: 12px; }
  .title { font-size: 17px; font-weight: 600; } .rule { stroke: var(--rule); }
  .name { paint-order: stroke; stroke: var(--page); stroke-width: 3px; stroke-linejoin: round; }
  .first { font-weight: 600; } .line { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
  .line.first { stroke-width: 3; } .dot { fill: var(--c); stroke: var(--page); stroke-width: 1.5; }
  .ring { fill: var(--page); stroke: var(--c); }
"""
COLOURS: Final = 7
LABEL: Final = 16  # height of a line's name, pixels


@dataclass(frozen=True, slots=True)
class Line:
    """A named course of (x, y), both as they are; every y above 0. The first line of a panel is drawn thicker.

    Points whose x is in `hollow` are drawn as rings: there is something to say about them.
    """

    name: str
    points: Sequence[tuple[float, float]]
    hollow: frozenset[float] = frozenset()


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle of the picture, in pixels, and what its edges stand for. The y axis is logarithmic."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        low, high = map(math.log10, self.y)
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(y) - low) / (high - low)
        return round(self.left + across * self.width, 1), round(self.top + (1 - up) * self.height, 1)

    def scale(self, unit: str, *, numbers: bool = True) -> Iterator[str]:
        """Rules at the powers of ten and, where they are few, at twos and fives; the unit stands above the scale."""
        yield f'<path class="rule" d="M{self.left:g} {self.top + self.height:g}h{self.width:g}"/>'
        steps = (1, 2, 5) if self.y[1] / self.y[0] <= 200 else (1,)
        decades = range(math.floor(math.log10(self.y[0])), math.ceil(math.log10(self.y[1])) + 1)
        for value in (step * 10.0**decade for decade in decades for step in steps):
            if not self.y[0] * 0.999 <= value <= self.y[1] * 1.001:
                continue
            _, y = self.at(self.x[0], value)
            yield f'<path class="rule" d="M{self.left:g} {y}h{self.width:g}"/>'
            if numbers:
                yield f'<text class="soft" x="{self.left - 8:g}" y="{y + 4:g}" text-anchor="end">{value:,g}</text>'
        if numbers:
            yield f'<text class="soft" x="{self.left - 8:g}" y="{self.top - 12:g}" text-anchor="end">{unit}</text>'

    def below(self, x: float, text: str, row: int = 0) -> str:
        across, _ = self.at(x, self.y[0])
        y = self.top + self.height + 18 + 17 * row
        return f'<text class="soft" x="{across:g}" y="{y:g}" text-anchor="middle">{escape(text)}</text>'

    def lines(self, lines: Sequence[Line], *, dots: bool = False, names: bool = True) -> Iterator[str]:
        for i, line in reversed(list(enumerate(lines))):  # the first on top
            colour, first = f"var(--c{i % COLOURS})", " first" if i == 0 else ""
            course = " ".join(f"{x},{y}" for x, y in (self.at(x, y) for x, y in line.points))
            yield f'<polyline class="line{first}" style="stroke:{colour}" points="{course}"/>'
        yield from self._names(lines) if names else ()
        for i, line in reversed(list(enumerate(lines))):
            for point in line.points if dots else line.points[-1:]:
                x, y = self.at(*point)
                ring = " ring" if point[0] in line.hollow else ""
                yield f'<circle class="dot{ring}" style="--c:var(--c{i % COLOURS})" cx="{x}" cy="{y}" r="4"/>'

    def _names(self, lines: Sequence[Line]) -> Iterator[str]:
        """Each at its line's end; moved down, or up at the bottom, where it would lie on another."""
        ends = sorted((self.at(*line.points[-1])[::-1], i) for i, line in enumerate(lines) if line.points)
        placed: list[tuple[float, float, int]] = []
        for (y, x), i in ends:
            near = [other for other, across, _ in placed if abs(across - x) < 110]
            placed.append((max([y, *(other + LABEL for other in near)]), x, i))
        over = max(0.0, max(y for y, _, _ in placed) - self.top - self.height)
        for y, x, i in placed:
            first = " first" if i == 0 else ""
            place = f'x="{x + 9:g}" y="{y + 4 - over:g}"'
            yield f'<text class="name{first}" {place}>{escape(lines[i].name)}</text>'


def decades(values: Sequence[float]) -> tuple[float, float]:
    """The ends of a scale: the next 1, 2 or 5 times a power of ten outside of the values."""
    marks = [step * 10.0**decade for decade in range(-3, 8) for step in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= min(values) or mark == marks[0])
    return low, min(mark for mark in marks if (mark >= max(values) and mark > low) or mark == marks[-1])


def document(width: int, height: int, drawn: Sequence[str], below: Sequence[str], described: str) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{escape(described)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
        *drawn,
        *(
            f'<text class="soft" x="20" y="{height - 18 - 17 * row}">{escape(text)}</text>'
            for row, text in enumerate(reversed(below))
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
