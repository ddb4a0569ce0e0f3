"""The pictures of docs/benchmarks.md, each from the JSON of a run. `python -m tools.bench.report` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.bench.svg import Line, Panel, decades, document

EARLY: Final = " Lines that end early ran out of time."
RINGS: Final = " Rings: not sustained."
ALONE: Final = " over HTTP / its statement alone"  # how the names of such bars end


def snapshot(taken: Mapping[str, Any]) -> str:
    """Jobs a second over jobs done while an old snapshot is held: both the level and the decline of each system."""
    lines = [
        Line(display(one["system"]), [(done, rate) for done, rate in one["slices"] if rate > 0])
        for one in sorted(taken["series"], key=lambda one: one["system"].lower() != "holdfast")
        if one["held"]
    ]
    lines = [line for line in lines if line.points]
    most = max(x for line in lines for x, _ in line.points)
    panel = Panel(76, 92, 530, 300, (0, most), decades([y for line in lines for _, y in line.points]))
    drawn = [
        '<text class="title" x="20" y="32">Jobs a second while an old snapshot is held</text>',
        '<text class="soft" x="20" y="53">Logarithmic: lines that fall alike lose the same share.'
        f"{EARLY if any(line.points[-1][0] < 0.95 * most for line in lines) else ''}</text>",
        *panel.scale("jobs/s"),
        *(panel.below(done, f"{done:,}") for done in range(0, round(most) + 1, _step(most))),
        panel.below(most / 2, "jobs done since the snapshot was taken", 1),
        *panel.lines(lines),
    ]
    return document(760, 492, drawn, caption(taken["facts"]), "Jobs a second over jobs done, a line for each system")


def latency(taken: Mapping[str, Any]) -> str:
    """Percentiles over the load, a panel for each verb, all on one scale."""
    measured = [one for one in taken["latency"] if one["p50_ms"]]
    kinds = {"p99.9": "p999_ms", "p99": "p99_ms", "p50": "p50_ms"}
    verbs = list(dict.fromkeys(one["verb"] for one in measured))
    span = decades([one[field] for one in measured for field in kinds.values() if one[field]])
    drawn = [
        '<text class="title" x="20" y="32">Latency of single jobs over HTTP</text>',
        '<text class="soft" x="20" y="53">By the share of the capacity that arrives; counted from when each request'
        f" fell due. Logarithmic.{RINGS if any(not one['sustained'] for one in measured) else ''}</text>",
    ]
    for column, verb in enumerate(verbs):
        panel = Panel(66 + 160 * column, 108, 132, 270, (0.2, 1.0), span)
        ones = [one for one in measured if one["verb"] == verb]
        hollow = frozenset(one["share"] for one in ones if not one["sustained"])
        lines = [
            Line(name, [(one["share"], one[field]) for one in ones if one[field]], hollow)
            for name, field in kinds.items()
        ]
        drawn += [
            f'<text x="{panel.left + panel.width / 2:g}" y="{panel.top - 12:g}" text-anchor="middle">{verb}</text>',
            *panel.scale("ms", numbers=column == 0),
            *(panel.below(one["share"], f"{one['share']:.0%}") for one in ones),
            panel.below(0.6, f"of {ones[0]['capacity']:,.0f}/s", 1),
            *panel.lines(lines, dots=True, names=column == len(verbs) - 1),
        ]
    return document(760, 478, drawn, caption(taken["facts"]), "Latency percentiles over load, a panel for each verb")


def rates(taken: Mapping[str, Any]) -> str:
    """Jobs a second of the bars that set a verb over HTTP beside its statement alone, a pair of bars for each verb. Of
    several runs the newest, as in the table."""
    fitting = [one for one in taken["figures"] if one["name"].endswith(ALONE)]
    ones = [one for one in fitting if one["run"] == max(other["run"] for other in fitting)]
    most = max(max(one["rate"], one["base"]) for one in ones)
    drawn = [
        '<text class="title" x="20" y="32">Jobs, or records of a log, a second: one client, 1,000 a request</text>',
        '<text class="soft" x="20" y="53">Durable: each answer comes after its flush. Below each, in grey, its SQL'
        " without HTTP.</text>",
    ]
    for row, one in enumerate(ones):
        top, verb = 78 + 54 * row, one["name"].removesuffix(ALONE).rpartition(" ")[2]
        drawn.append(f'<text x="20" y="{top + 18}">{verb}</text>')
        for rate, place, colour in ((one["rate"], top, "var(--c0)"), (one["base"], top + 22, "var(--rule)")):
            width = round(520 * rate / most, 1)
            drawn.append(f'<rect x="100" y="{place}" width="{width}" height="18" rx="3" style="fill:{colour}"/>')
            drawn.append(f'<text class="soft" x="{108 + width:g}" y="{place + 14}">{rate:,.0f}</text>')
    return document(760, 150 + 54 * len(ones), drawn, caption(taken["facts"]), "Jobs a second for each verb")


def display(system: str) -> str:
    """A system's name as it is written: ours has a capital."""
    return system.capitalize() if system == "holdfast" else system


def caption(facts: Mapping[str, Any]) -> Sequence[str]:
    """What the figures can't be read without, in lines of a picture's width."""
    return [
        f"PostgreSQL {facts['postgres']}, fsync {facts['fsync']}; {facts['cores']} cores for the database, the servers"
        f" and the load; {facts['payload']} bytes a job.",
        f"{'A short run, not to go by: it shows that it runs. ' if facts.get('quick') else ''}"
        f"Taken on {facts['date'][:10]}, commit {facts['commit']}.",
    ]


def _step(most: float) -> int:
    """1, 2 or 5 times a power of ten, such that at most five of them fit."""
    steps = (step * 10 ** int(decade) for decade in range(12) for step in (1, 2, 5))
    return next(int(step) for step in steps if most <= 5 * step)
