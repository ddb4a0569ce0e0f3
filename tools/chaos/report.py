"""The report of a run: JSON for machines, a table for readers."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tools.chaos.measure import slope

if TYPE_CHECKING:
    from tools.chaos.run import Run

SOAKED = ("rss_mib", "fds", "backends", "tables_mib")


def write(run: Run) -> None:
    """To report.json in its folder."""
    (run.folder / "report.json").write_text(json.dumps(figures(run), indent=2) + "\n")


def figures(run: Run) -> dict[str, Any]:
    """All that is known of it."""
    sums = sum((told.sums for told in run.rounds), Counter[str]())
    recoveries, gaps = _merged([told.recoveries for told in run.rounds]), _merged([told.gaps for told in run.rounds])
    return {
        "seed": run.seed,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "times_as_slow": round(run.patience, 2)},
        "seconds": round(sum(told.seconds for told in run.rounds)),
        "rounds": len(run.rounds),
        "faults_found": run.faults,
        "replies_swallowed": sum(told.swallowed for told in run.rounds),
        "sums": dict(sorted(sums.items())),
        "recovery_seconds": {kind: spread(seconds) for kind, seconds in sorted(recoveries.items())},
        "unanswered_seconds": {kind: spread(seconds) for kind, seconds in sorted(gaps.items())},
        "silence": silence(run),
        "samples": [asdict(one) for one in run.samples],
        "slopes_an_hour": {
            name: round(slope([(one.at, float(getattr(one, name))) for one in run.samples]), 2) for name in SOAKED
        },
    }


def silence(run: Run) -> dict[str, Any] | None:
    """How long calls of some kind had no answer at the worst, beside the bound and what this machine was allowed."""
    found = [told.silence for told in run.rounds if told.silence is not None]
    if not found:
        return None
    worst = max(found, key=lambda one: one.ms / one.bound_ms)
    seconds, bound = worst.ms / 1000, worst.bound_ms / 1000
    return {
        "what": worst.what,
        "faults": worst.kinds,
        "seconds": round(seconds, 2),
        "bound_seconds": bound,
        "allowed_seconds": round(bound * run.patience, 2),
    }


def silence_in_words(told: Mapping[str, Any]) -> str:
    """The same as a sentence. `told`: the figures of a report that has one."""
    one, slow = told["silence"], told["machine"]["times_as_slow"]
    within = "within" if one["seconds"] <= one["bound_seconds"] else "beyond"
    return (
        f"Longest without an answer: {one['seconds']:.2f} s ({one['what']}, {one['faults']}), {within} the bound of "
        f"{one['bound_seconds']:.1f} s; a machine {slow:.2f} times as slow as the reference was allowed "
        f"{one['allowed_seconds']:.2f} s."
    )


def spread(values: Sequence[float]) -> dict[str, float]:
    """How many there are, and how they are distributed."""
    ordered = sorted(values)
    points = {"p50": 0.5, "p90": 0.9, "max": 1.0}
    return {"n": len(ordered)} | {
        name: round(ordered[round(at * (len(ordered) - 1))], 2) for name, at in points.items()
    }


def table(run: Run) -> str:
    """For a terminal."""
    told = figures(run)
    lines = ["", f"{'fault':<20} {'n':>5} {'recovery p50':>13} {'max':>6} {'unanswered p50':>15} {'max':>6}"]
    for kind, seconds in told["recovery_seconds"].items():
        gap = told["unanswered_seconds"].get(kind, {"p50": 0, "max": 0})
        lines.append(
            f"{kind:<20} {seconds['n']:>5} {seconds['p50']:>13.2f} {seconds['max']:>6.2f} "
            f"{gap['p50']:>15.2f} {gap['max']:>6.2f}"
        )
    if told["silence"] is not None:
        lines += ["", silence_in_words(told)]
    lines += ["", *(f"{number:>9,}  {what}" for what, number in told["sums"].items())]
    lines += [f"{told['replies_swallowed']:>9,}  replies swallowed", ""]
    if len(run.samples) > 2:
        lines += [f"{told['slopes_an_hour'][name]:>+9.1f}  {name} an hour" for name in SOAKED]
    verdict = f"{len(run.faults)} FAULTS FOUND" if run.faults else "no fault found"
    lines.append(f"{verdict} in {told['seconds']} s and {told['rounds']} rounds; seed {run.seed}; {run.folder}")
    return "\n".join([*lines, *run.faults[:20]])


def _merged(parts: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    merged: dict[str, list[float]] = {}
    for part in parts:
        for kind, seconds in part.items():
            merged.setdefault(kind, []).extend(seconds)
    return merged
