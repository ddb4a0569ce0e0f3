"""`python -m tools.chaos.page var/chaos/<seed>/report.json`: puts a run's figures into docs/reliability.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from tools.chaos.report import silence_in_words
from tools.chaos.system import ROOT
from tools.history.checker import RULES

PAGE: Final = ROOT / "docs/reliability.md"
BEGIN: Final = "<!-- chaos: written by tools/chaos/page.py -->\n"
END: Final = "<!-- chaos: end -->\n"
NOUGHTS: Final = {
    "lost": "jobs lost",
    "undone": "jobs delivered after a confirmed ack",
    "early": "jobs delivered before their lease ended",
    "stale": "calls executed for a lease that had ended",
    "duplicated": "duplicate jobs of a key",
    "gapped": "log readers with a gap or a repeat",
    "overlapped": "jobs of a group that ran together",
    "disordered": "jobs of a group that ran out of order",
    "unavailable": "faults with no answers for longer than allowed",
    "deadlocked": "deadlocks",
    "surprised": "answers with a 5xx other than 503",
}
# A report's sums, and what the page calls them.
TRIED: Final = {
    "faults inflicted": "faults inflicted",
    "calls": "calls",
    "calls in doubt": "calls without an answer",
    "jobs, done": "jobs enqueued",
    "deliveries": "deliveries",
    "deliveries, not the first": "deliveries after the first",
    "records of logs, done": "records appended to logs",
    "verbs of zombies, of jobs": "jobs in late calls of workers",
    "jobs of workers that died": "jobs held by workers that died",
    "dead letters": "dead letters",
}


def markdown(told: dict[str, Any]) -> str:
    """The section of the page for a report (var/chaos/<seed>/report.json)."""
    machine, sums = told["machine"], told["sums"]
    found = [fault.split(": ")[1] if fault.startswith("round") else fault for fault in told["faults_found"]]
    lines = [
        f"{told['at'][:10]}, {told['seconds'] // 60} minutes in {told['rounds']} rounds with their drains, seed "
        f"{told['seed']}, on {machine['cores']} cores.",
        "",
        "| tried | |",
        "|---|--:|",
        *(f"| {label} | {sums.get(what, 0):,} |" for what, label in TRIED.items()),
        f"| replies lost in transit | {told['replies_swallowed']:,} |",
        "",
        "| found | |",
        "|---|--:|",
        *(f"| {what} | {sum(1 for rule in found if rule == name)} |" for name, what in NOUGHTS.items()),
        f"| violations of all {len(RULES)} rules | {len(found)} |",
        "",
        "*Recovered*: seconds from the end of a fault until calls of every kind were answered again.",
        "*Unanswered*: the longest time from its start without an answer to calls of some kind.",
        "Two simultaneous faults both have the time of both.",
        "",
        "| fault | times | recovered, p50 | max | unanswered, p50 | max |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for kind, seconds in told["recovery_seconds"].items():
        gap = told["unanswered_seconds"][kind]
        lines.append(
            f"| `{kind}` | {seconds['n']} | {seconds['p50']:.1f} | {seconds['max']:.1f} | {gap['p50']:.1f} | "
            f"{gap['max']:.1f} |"
        )
    if told.get("silence") is not None:  # older reports have none
        lines += ["", silence_in_words(told)]
    if told["rounds"] > 2:
        names = {
            "rss_mib": "MiB of memory", "fds": "open files", "backends": "sessions of the database",
            "tables_mib": "MiB of tables and indexes",
        }  # fmt: skip
        first, last = told["samples"][1], told["samples"][-1]  # the first round warms up
        spans = [f"{names[name]} {first[name]:g} → {last[name]:g}" for name in names]
        lines += ["", f"From the end of the first round to that of the last: {', '.join(spans)}."]
    return "\n".join(lines) + "\n"


def main(report: Path) -> None:
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}{markdown(json.loads(report.read_text()))}{END}{tail}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
