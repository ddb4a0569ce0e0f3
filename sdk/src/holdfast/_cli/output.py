"""Output of commands: JSON for programs, tables and sentences for people."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast._body import data_of

PIPED_WIDTH: Final = 10_000  # without a terminal, nothing is cut
TABLE_ROWS: Final = 500  # longer lists are printed as several tables, to bound memory
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


class Output:
    """Prints a command's output. With `as_json` it prints one line of JSON per item and no sentences."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = console()

    def many(self, things: Iterable[Any], *columns: str) -> int:
        """Print items, each as a line of JSON or as a row with these columns. Returns their number."""
        count = 0
        if self.as_json:
            for thing in things:
                print(line_of(thing), flush=True)
                count += 1
            return count
        rest = iter(things)
        while rows := list(itertools.islice(rest, TABLE_ROWS)):
            self._print(table(rows, columns, self.console.width))
            count += len(rows)
        return count

    def one(self, thing: Any) -> None:
        """Print one item, as a line of JSON or field by field."""
        if self.as_json:
            print(line_of(thing), flush=True)
            return
        grid = Table(box=None, show_header=False, pad_edge=False)
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in fields(thing).items():
            if value not in (None, (), {}):
                grid.add_row(name, Text(cell(name, value)))
        self._print(grid)

    def _print(self, made: Table) -> None:
        """Print a table, without trailing spaces outside of a terminal."""
        if self.console.is_terminal:
            self.console.print(made)
            return
        with self.console.capture() as drawn:
            self.console.print(made)
        for line in drawn.get().splitlines():
            print(line.rstrip())
        sys.stdout.flush()

    def did(self, answer: Any, sentence: str) -> None:
        """Print a result: the answer as JSON, or the sentence."""
        if self.as_json:
            print(line_of(answer), flush=True)
        else:
            self.say(sentence)

    def say(self, sentence: str) -> None:
        """Print a sentence for people. Nothing with `as_json`."""
        if not self.as_json:
            print(visible(sentence), flush=True)

    def warn(self, thing: Any, sentence: str) -> None:
        """Print to stderr: JSON, or the sentence."""
        print(line_of(thing) if self.as_json else visible(sentence), file=sys.stderr, flush=True)

    def note(self, sentence: str) -> None:
        """Print a note to stderr."""
        self.warn({"note": sentence}, sentence)


def console(*, stderr: bool = False) -> Console:
    """A console with the terminal's width, or PIPED_WIDTH without a terminal."""
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = PIPED_WIDTH
    return made


def table(rows: Sequence[Any], columns: Sequence[str], width: int) -> Table:
    """A table with these columns. In a narrow terminal it cuts texts and drops columns, and names those below. Numbers
    are never cut."""
    values = [fields(row) for row in rows]
    texts = {name: [cell(name, value[name]) for value in values] for name in columns}
    sizes = {name: max(cell_len(text) for text in (_head(name), *texts[name])) for name in columns}
    left_out = _fit(sizes, width)
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    made.caption_style, made.caption_justify = "dim", "left"
    made.caption = f"Too narrow for {', '.join(map(_head, left_out))}." if left_out else None
    for name, size in sizes.items():
        numbers = any(isinstance(value[name], (int, float)) for value in values)
        made.add_column(
            _head(name), justify="right" if numbers else "left", no_wrap=True, overflow="ellipsis", width=size
        )
    for cells in zip(*(texts[name] for name in sizes), strict=True):
        made.add_row(*map(Text, cells))
    return made


GAP: Final = 2
LONG: Final = {"data": 12, "last_error": 12, "error": 12, "detail": 12, "title": 24, "topic": 12, "name": 12}
DISPENSABLE: Final = (
    *("lease_id", "head_seq", "bytes", "durable", "node", "priority", "deliveries", "first_seen"),
    *("retried", "blocked", "scheduled", "run_p95_ms", "wait_p95_ms", "failed", "completed", "enqueued"),
    *("calls", "seconds", "max_ms", "p95_ms", "prefixes", "tenant", "fires", "time_zone", "last_error", "deadline"),
    *("created_at", "last_seen", "went_out", "updated_at", "expires_at", "paused", "at"),
)


def _head(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _fit(sizes: dict[str, int], width: int) -> list[str]:
    """Make columns fit the width: cut texts to LONG and drop columns, down to one. Returns the dropped columns."""
    left_out: list[str] = []
    whole = dict(sizes)

    def over() -> int:
        return sum(sizes.values()) + GAP * (len(sizes) - 1) - width

    if over() > 0:
        sizes |= {name: min(size, LONG.get(name, size)) for name, size in sizes.items()}
    for name in (*DISPENSABLE, *list(sizes)[:0:-1]):
        if name in sizes and over() > 0:
            left_out.append(name)
            del sizes[name]
    for name in LONG:  # use remaining width for cut texts
        if name in sizes:
            sizes[name] = min(whole[name], sizes[name] + max(0, -over()))
    return left_out


def fields(thing: Any) -> Mapping[str, Any]:
    """The fields of an item, by name."""
    if isinstance(thing, Mapping):
        return thing
    return {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}


def cell(name: str, value: Any) -> str:
    """Format a value for people."""
    match value:
        case None:
            text = "-"
        case bool():
            text = "yes" if value else "no"
        case int() | float() if name.endswith("_ms"):
            text = duration(value)
        case datetime():
            text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        case str() if name != "data":
            text = value
        case tuple() if all(isinstance(part, str) for part in value):
            text = ", ".join(value) or "-"
        case _:
            text = json.dumps(plain(value), ensure_ascii=False)
    return visible(text)


def duration(ms: float) -> str:
    """Format a duration: 340ms, 2.5s, 10m, 1d."""
    for unit, size in _UNITS:
        if abs(ms) >= size:
            return f"{ms / size:.1f}".removesuffix(".0") + unit
    return f"{ms:g}ms"


def visible(text: str) -> str:
    """Escape control characters, since the text may come from others."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(value: Any) -> Any:
    """Convert a value to JSON values. Times are RFC 3339, bytes {"$base64": "…"}."""
    if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in fields(value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return data_of(value)


def line_of(thing: Any) -> str:
    """Format an item as one line of JSON in ASCII."""
    return json.dumps(plain(thing), separators=(", ", ": "))
