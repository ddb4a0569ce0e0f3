"""A run of hours with few faults, and what may grow in it, how fast."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

from tools.chaos.faults import FAULTS
from tools.chaos.measure import Sample, slope
from tools.chaos.report import figures
from tools.chaos.run import Options, Run, run
from tools.chaos.system import ROOT

# A service that is killed takes with it what it has leaked.
FEW: Final = [name for name in FAULTS if name != "kill_api"]
CALM: Final = (20.0, 60.0)  # seconds between two faults
ROUND_SECONDS: Final = 600.0
SAMPLES: Final = 120  # at least, in a run
MOST_SECONDS: Final = 60.0  # between two of them
WARM_SECONDS: Final = 3600.0  # not judged; of a run of less than two hours, its first half


@dataclass(frozen=True, slots=True)
class Bound:
    """Of one measure: so much more an hour is too much, if it came to `floor` in the time that is judged."""

    name: str
    value: Callable[[Sample], float]
    an_hour: float
    floor: float


BOUNDS: Final = (
    Bound("MiB of memory", lambda one: one.rss_mib, 1.0, 6.0),
    Bound("open files", lambda one: float(one.fds), 0.5, 6.0),
    Bound("sessions of the database", lambda one: float(one.backends), 0.5, 5.0),
    Bound("MiB of jobs and their indexes", lambda one: one.hot_mib, 1.0, 16.0),
    Bound("dead rows of jobs", lambda one: float(one.dead_rows), 1000.0, 20_000.0),
)
# Of what grows with each job: no more for the last ones than for the first ones, but for this factor.
SHARE: Final = 1.25
EACH: Final[dict[str, Callable[[Sample], float]]] = {
    "KiB of the log a job": lambda one: one.wal_mib * 1024,
    "KiB of tables a job": lambda one: one.tables_mib * 1024,
}
LEAST_JOBS: Final = 1000  # in a part that is compared


@dataclass(frozen=True, slots=True)
class Judged:
    """One line of the report. `bound`: what `value` must not be above; None where too little was seen to judge."""

    name: str
    first: float
    last: float
    value: float
    unit: str
    bound: float | None
    passed: bool


def judge(samples: Sequence[Sample]) -> Iterator[Judged]:
    """The lines of a run, of its samples in order."""
    judged = warm(samples)
    hours = (judged[-1].at - judged[0].at) / 3600 if len(judged) > 1 else 0.0
    for bound in BOUNDS:
        values = [(one.at, bound.value(one)) for one in judged]
        grows = slope(values)
        passed = grows <= bound.an_hour or grows * hours <= bound.floor
        ends = (values[0][1], values[-1][1]) if values else (0.0, 0.0)
        yield Judged(bound.name, *ends, grows, "an hour", bound.an_hour, passed)
    for name, value in EACH.items():
        first, last = (each(part, value) for part in halves(judged))
        known = first is not None and last is not None and first > 0
        share = last / first if first and last is not None and known else 0.0
        yield Judged(name, first or 0.0, last or 0.0, share, "times", SHARE if known else None, share <= SHARE)


def warm(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those that are judged."""
    if not samples:
        return samples
    begins = samples[0].at + min(WARM_SECONDS, (samples[-1].at - samples[0].at) / 2)
    return [one for one in samples if one.at >= begins]


def halves(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """The first half of them and the last one; the one in the middle ends one and begins the other."""
    middle = len(samples) // 2
    return samples[: middle + 1], samples[middle:]


def each(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float | None:
    """How much of it a job took; None where there were few. Where the server crashed its count of jobs began anew."""
    jobs, took = 0, 0.0
    for before, after in pairwise(samples):
        if after.jobs > before.jobs:
            jobs += after.jobs - before.jobs
            took += value(after) - value(before)
    return took / jobs if jobs >= LEAST_JOBS else None


def table(lines: Sequence[Judged]) -> str:
    """In Markdown."""
    rows = ["| | first | last | | bound | |", "|---|--:|--:|--:|--:|---|"]
    for one in lines:
        bound = "" if one.bound is None else f"{one.bound:g}"
        verdict = "not judged" if one.bound is None else "passed" if one.passed else "FAILED"
        rows.append(
            f"| {one.name} | {one.first:.1f} | {one.last:.1f} | {one.value:+.2f} {one.unit} | {bound} | {verdict} |"
        )
    return "\n".join(rows)


def main(argv: Sequence[str]) -> int:
    """0 where nothing was found, 1 where something was, or something grew."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.chaos soak",
        description="The traffic of tools/chaos for hours, with a fault now and then; its history is checked, and what "
        "the service and the database take is measured. A report is written to var/soak/<seed>.",
    )
    parser.add_argument("--hours", type=float, default=6, help="for how long, drains not counted (%(default)s)")
    parser.add_argument("--seed", type=int, help="do as an earlier run did: the same traffic, the same faults in order")
    args = parser.parse_args(argv)
    seed, seconds = secrets.randbelow(2**32) if args.seed is None else args.seed, args.hours * 3600
    options = Options(
        seed,
        seconds,
        FEW,
        round_seconds=ROUND_SECONDS,
        folder=ROOT / "var/soak" / str(seed),
        calm=CALM,
        every=min(MOST_SECONDS, seconds / SAMPLES),
        until_each=False,
    )
    return 1 if report(asyncio.run(run(options))) else 0


def report(done: Run) -> list[str]:
    """Write it down and print it; what was found."""
    lines = list(judge(done.watched))
    found = [*done.faults, *(f"{one.name}: {one.value:+.2f} {one.unit}" for one in lines if not one.passed)]
    told = figures(done) | {"watched": [asdict(one) for one in done.watched], "judged": [asdict(one) for one in lines]}
    (done.folder / "report.json").write_text(json.dumps(told | {"found": found}, indent=1) + "\n")
    sums = told["sums"]
    words = [
        f"# Soak, seed {done.seed}: {'FAILED' if found else 'passed'}",
        f"{told['at']}, {told['seconds'] / 60:.0f} minutes in {told['rounds']} rounds, {len(done.watched)} samples, "
        f"{sums.get('deliveries', 0):,} deliveries, {sums.get('faults inflicted', 0)} faults inflicted, "
        f"on {told['machine']['cores']} cores.",
        table(lines),
        *found,
    ]
    text = "\n\n".join(words) + "\n"
    (done.folder / "report.md").write_text(text)
    print(f"\n{text}\n{done.folder / 'report.md'}")
    return found
