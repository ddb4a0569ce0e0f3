"""Reports as HTML pages: one file each, with light and dark colours.

Texts of jobs are untrusted: templates escape them, `clean` shortens them and replaces invisible characters, and the
page has no scripts and loads nothing.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark.errors import Mistake
from spark.texts import clean

PALETTE: Final = ("#4f7fd9", "#e0803a", "#3fa37a", "#b76bc4", "#c9a227", "#d25a6b", "#8a93a3")
INK: Final = "#010203"  # placeholders that _svg replaces with the page's colours of text and lines
LINE: Final = "#040506"
MOST_SHOWN: Final = 2_000


def page(template: str, **view: Any) -> str:

    environment = Environment(
        loader=PackageLoader("spark"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"clean": clean, "percent": percent, "count": count, "moment": moment, "ms": duration}
    return environment.get_template(template).render(**view)


def write(path: str, text: str) -> None:
    """Write to a file, or to stdout for `-`. Raises Mistake if the file can't be written."""
    if path == "-":
        print(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None


def check(*paths: str | None) -> None:
    """Check before a long run that the folders of these files exist. Raises Mistake."""
    for path in paths:
        if path not in (None, "-") and not Path(path).absolute().parent.is_dir():
            raise Mistake(f"{path}: there is no such folder")


def as_json(value: Any) -> str:
    """JSON of a report's dictionary; times become text."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)


def percent(part: float) -> str:
    """0.034 is 3.4 %."""
    return f"{part * 100:.1f} %" if 0 < part < 0.1 else f"{part * 100:.0f} %"


def count(number: float) -> str:
    """12345 is 12,345."""
    return f"{number:,.0f}"


def moment(at: datetime) -> str:
    """To the minute, in UTC."""
    return f"{at:%Y-%m-%d %H:%M}"


def duration(ms: float) -> str:
    """90000 is 1.5 min."""
    for limit, unit, name in ((1_000, 1, "ms"), (60_000, 1_000, "s"), (3_600_000, 60_000, "min")):
        if ms < limit:
            return f"{ms / unit:.3g} {name}"
    return f"{ms / 3_600_000:.1f} h"


def stacked(
    times: Sequence[datetime], layers: Mapping[str, Sequence[float]], *, width: float = 9.6, height: float = 2.6
) -> Markup:
    """A bar chart over time as SVG, one layer on the other. Names must be trusted: they are not escaped."""
    figure, axes = _axes(width, height)
    base = [0.0] * len(times)
    places = range(len(times))
    for (name, values), colour in zip(layers.items(), PALETTE, strict=False):
        axes.bar(places, values, bottom=base, color=colour, width=0.82, label=name)
        base = [under + value for under, value in zip(base, values, strict=True)]
    _time_ticks(axes, times)
    axes.set_ylim(0, max(base, default=0) * 1.08 or 1)
    return _svg(figure)


def lines(
    times: Sequence[datetime],
    filled: Mapping[str, Sequence[float]],
    stepped: Mapping[str, Sequence[float]],
    *,
    width: float = 9.6,
    height: float = 2.6,
) -> Markup:
    """Areas and step lines over time as SVG, on one scale."""
    figure, axes = _axes(width, height)
    places = list(range(len(times) + 1))
    colours = iter(PALETTE)
    for name, values in filled.items():
        axes.fill_between(places, [*values, values[-1]], step="post", color=next(colours), alpha=0.3, lw=0, label=name)
    for name, values in stepped.items():
        axes.step(places, [*values, values[-1]], where="post", color=next(colours), lw=1.8, label=name)
    _time_ticks(axes, times)
    axes.set_xlim(0, len(times))
    axes.set_ylim(bottom=0)
    return _svg(figure)


def _axes(width: float, height: float) -> tuple[Any, Any]:
    # Imported here: it takes a second, which pipelines without charts save.
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure = Figure(figsize=(width, height))
    axes: Any = figure.subplots()
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=LINE, lw=0.7)
    for side in axes.spines:
        axes.spines[side].set_visible(side == "bottom")
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure, axes


def _time_ticks(axes: Any, times: Sequence[datetime]) -> None:
    every = max(1, -(-len(times) // 10))
    places = list(range(0, len(times), every))
    is_daily = len(times) > 1 and (times[1] - times[0]).total_seconds() >= 86_400
    axes.set_xticks(places, [f"{times[n]:%d %b}" if is_daily else f"{times[n]:%d %b %H:%M}" for n in places])
    if not is_daily and len(places) > 6:
        axes.set_xticks(places[::2], [f"{times[n]:%d %b %H:%M}" for n in places[::2]])


def _svg(figure: Any) -> Markup:
    import matplotlib  # noqa: PLC0415

    text = io.StringIO()
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "holdfast"}
    ):  # text as text, and the same output each time
        figure.savefig(
            text, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.05, metadata={"Date": None}
        )
    drawn = re.sub(r"<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)
    drawn = drawn[drawn.index("<svg") :].replace(INK, "var(--quiet)").replace(LINE, "var(--line)")
    return Markup(drawn)  # noqa: S704  # nosec B704  # matplotlib escapes labels, and they are trusted
