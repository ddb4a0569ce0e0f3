"""Write the tables and pictures of docs/benchmarks.md from docs/benchmarks/*.json, and shorten those: make figures.

What stands between a pair of markers in the page is written anew; the rest is kept by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.bench import picture
from tools.bench.latency import faults

DOCS: Final = Path(__file__).parents[2] / "docs"
RUNS: Final = 3  # side by side
ROUNDS: Final = {
    "rates",
    "bases",
    "rounds",
    "notes",
}  # of a figure: what it was made from, which the page does not show
BY_SLICE: Final = "jobs_per_s_by_slice"  # the same as in `series`
NOTHING: Final = "Not measured yet."

Json = Mapping[str, Any]


def read(folder: Path) -> list[Json]:
    """The runs of a folder, newest first."""
    return sorted((json.loads(path.read_text()) for path in folder.glob("*.json")), key=_date, reverse=True)


def short(run: Json) -> str:
    """A run's JSON without its rounds, in a line for each figure."""
    parts = []
    for name, value in run.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            figures = [{key: one[key] for key in one if key not in ROUNDS} for one in value]
            text = "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in figures) + "\n]"
        if name != BY_SLICE:
            parts.append(f"{json.dumps(name)}: {text}")
    return "{" + ",\n".join(parts) + "}\n"


def written(page: str, taken: Sequence[Json]) -> str:
    """The page with its tables of these runs, newest first. Raises ValueError if a pair of markers is missing."""
    for name, text in {
        "bars": bars(taken),
        "latency": latency(taken),
        "spark": spark(taken),
        "peers": peers(taken),
        "scenarios": scenarios(taken),
    }.items():
        begin, end = f"<!-- {name}: written by make figures -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
        # A function: in a template, backslashes would have a meaning.
        page, found = pattern.subn(lambda _, text=text: f"\n{text}\n\n", page)  # type: ignore[misc]
        if found != 1:
            raise ValueError(f"the page has {found} pairs of the markers {begin} … {end}")
    return page


def pictures(taken: Sequence[Json]) -> dict[str, str]:
    """The SVG files by name, of what was measured."""
    drawn = {}
    held = (run for run in taken if any(one["held"] for one in run.get("series", ())))
    if run := next(held, None):
        drawn["snapshot.svg"] = picture.snapshot(run)
    if run := _rated(taken):
        drawn["rates.svg"] = picture.rates(run)
    if run := _newest(taken, "latency"):
        drawn["latency.svg"] = picture.latency(run)
    return drawn


def bars(taken: Sequence[Json]) -> str:
    """Each bar with its newest runs, newest first, and their rates in the newest."""
    runs: dict[str, list[Json]] = {}
    used: list[Json] = []
    for run in taken:
        for figure in sorted(run.get("figures", ()), key=lambda one: -one["run"]):
            shown = runs.setdefault(figure["name"], [])
            if len(shown) < RUNS:
                shown.append({**figure, "quick": run["facts"].get("quick", False)})
                used += [run["facts"]] if run["facts"] not in used else []
    if not runs:
        return NOTHING
    head = ["bar", "bound", "newest run", "before", "before that", "rates of the newest"]
    rows = [[name, _bound(ones[0]), *_row(ones), _rates(ones[0])] for name, ones in runs.items()]
    drawn = "\n\n![Jobs a second](benchmarks/rates.svg)" if _rated(taken) else ""
    return _table(head, rows) + drawn + _basis(used)


def _rated(taken: Sequence[Json]) -> Json | None:
    """The newest run that can be drawn as rates."""
    with_figures = (run for run in taken if any(one["name"].endswith(picture.ALONE) for one in run.get("figures", ())))
    return next(with_figures, None)


def _bound(figure: Json) -> str:
    return f"≥ {figure['least']:.2f}" if "least" in figure else f"≤ {figure['most']:g} {figure['unit']}"


def _row(figures: Sequence[Json]) -> list[str]:
    cells = [(f"{one['ratio']:.2f}" if "ratio" in one else f"{one['value']:.1f}") + _verdict(one) for one in figures]
    return [*cells, *[""] * (RUNS - len(cells))]


def _verdict(figure: Json) -> str:
    if figure["quick"]:  # too short for one
        return ""
    return " pass" if figure["passed"] else " **missed**"


def _rates(figure: Json) -> str:
    return f"{figure['rate']:,.0f} / {figure['base']:,.0f} {figure['unit']}/s" if "rate" in figure else ""


def latency(taken: Sequence[Json]) -> str:
    """The newest run: a row for each verb and share, milliseconds."""
    if not (run := _newest(taken, "latency")):
        return NOTHING
    head = ["verb", "capacity/s", "load", "arrived/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "sustained"]
    rows = [
        [
            one["verb"],
            f"{one['capacity']:,.0f}",
            f"{one['share']:.0%}",
            f"{one['arrived']:,.0f}",
            *("–" if one[time] is None else f"{one[time]:.1f}" for time in ("p50_ms", "p99_ms", "p999_ms", "max_ms")),
            "yes" if one["sustained"] else f"**{faults(one)}**",
        ]
        for one in run["latency"]
    ]
    late = max(one["late_p99_ms"] or 0 for one in run["latency"])
    own = (
        f"\n\nArrivals: {run['latency'][0]['spacing']}, {run['facts']['seconds']:g} s for each row, over"
        f" {run['facts']['connections']} connections. The generator's own lateness is in the figures: p99 of it at most"
        f" {late:.1f} ms. Load average of the machine before the run: {run['facts']['load']}."
    )
    return "![Latency percentiles](benchmarks/latency.svg)\n\n" + _table(head, rows) + own + _basis([run["facts"]])


def spark(taken: Sequence[Json]) -> str:
    """The newest run: each figure's seconds, and events a second."""
    if not (run := _newest(taken, "spark")):
        return NOTHING
    head = [f"over {run['events']:,} events", "s", "events/s"]
    rows = [[name, f"{seconds:.1f}", f"{run['events'] / seconds:,.0f}"] for name, seconds in run["spark"].items()]
    own = f"\n\nThe best of {run['rounds']}. Load average of the machine before the run: {run['facts']['load']:.1f}."
    return _table(head, rows) + own + _basis([run["facts"]])


def scenarios(taken: Sequence[Json]) -> str:
    """The newest run: each scenario's rates, and what was left of the base rate."""
    if not (run := _newest(taken, "scenarios")):
        return NOTHING
    head = ["scenario", "base jobs/s", "during", "after", "after / base", "back after", "jobs left"]
    rows = [
        [
            one["name"],
            f"{one['base']:,.0f}",
            f"{one['during'] / one['base']:.2f}"
            + ("" if one["least_during"] is None else f" (≥ {one['least_during']})"),
            f"{one['after']:,.0f}",
            f"{one['after'] / one['base']:.2f}" + _verdict({**one, "quick": run["facts"]["quick"]}),
            "never" if one["recovered_s"] is None else f"{one['recovered_s']:.1f} s",
            f"{one['left']}",
        ]
        for one in run["scenarios"]
    ]
    own = f"\n\nLoad average of the machine before the run: {run['facts']['load']}."
    return _table(head, rows) + own + _basis([run["facts"]])


def peers(taken: Sequence[Json]) -> str:
    """Each system's newest run with and without an old snapshot; rates of the first slice, the last, and all."""
    rows: dict[tuple[str, bool], list[str]] = {}
    used: list[Json] = []
    for run in taken:
        for one in run.get("series", ()):
            if (one["system"], one["held"]) in rows or not one["slices"]:
                continue
            first, last = one["slices"][0][1], one["slices"][-1][1]
            rows[one["system"], one["held"]] = [
                " ".join(filter(None, (picture.display(one["system"]), one.get("version")))),
                "held" if one["held"] else "none",
                f"{one['slices'][-1][0]:,.0f}",
                f"{_over_all(one['slices']):,.0f}",
                f"{first:,.0f}",
                f"{last:,.0f}",
                f"{last / first:.2f}",
            ]
            used += [run["facts"]] if run["facts"] not in used else []
    if not rows:
        return NOTHING
    head = ["system", "old snapshot", "jobs done", "jobs/s over all", "first slice", "last slice", "last / first"]
    shown = "![Jobs a second under a held snapshot](benchmarks/snapshot.svg)\n\n"
    ordered = [row for _, row in sorted(rows.items(), key=lambda item: not item[0][1])]
    return (shown if "snapshot.svg" in pictures(taken) else "") + _table(head, ordered) + _basis(used)


def _over_all(slices: Sequence[Sequence[float]]) -> float:
    """Jobs a second over all slices: their times add up, their rates do not."""
    before = [0.0, *(done for done, _ in slices)]
    return slices[-1][0] / sum((done - since) / rate for (done, rate), since in zip(slices, before, strict=False))


def _newest(taken: Sequence[Json], kind: str) -> Json | None:
    return next((run for run in taken if run.get(kind)), None)


def _date(run: Json) -> str:
    return str(run["facts"]["date"])


def _basis(machines: Sequence[Json]) -> str:
    """The facts below a table, one line for each run that is in it."""
    lines = []
    for facts in machines:
        short = "**A short run: it shows that it runs, and is no figure to go by.** " if facts.get("quick") else ""
        changed = " with changes" if facts.get("dirty") else ""
        cpu = f" ({facts['cpu']})" if facts.get("cpu") else ""
        lines.append(
            f"{short}Taken on {facts['date'][:10]} at commit {facts['commit']}{changed}: {facts['cores']} cores{cpu},"
            f" {facts['memory_gib']:g} GiB, kernel {facts['kernel'].partition('-')[0]}, Python {facts['python']},"
            f" PostgreSQL {facts['postgres']}, fsync {facts['fsync']}, {facts['payload']} bytes a job."
        )
    return "".join(f"\n\n{line}" for line in lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def main() -> int:
    """Shortens the runs, and writes the page and its pictures."""
    for path in (DOCS / "benchmarks").glob("*.json"):
        path.write_text(short(json.loads(path.read_text())))
    taken = read(DOCS / "benchmarks")
    page = DOCS / "benchmarks.md"
    page.write_text(written(page.read_text(), taken))
    for name, drawn in pictures(taken).items():
        (DOCS / "benchmarks" / name).write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
