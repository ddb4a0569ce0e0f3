"""Latency under a load that does not wait: python -m tools.bench.latency.

For enqueue, claim, ack and the cycle of all three, one job a request: first the capacity (64 clients, each sends when
it has its answer), then percentiles with arrivals at 30, 60 and 90 per cent of it, counted from when each fell due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, get_args

from tools.bench.arrivals import Outcome, Plan, Spacing, percentile, schedule, send
from tools.bench.bench import Bench, running
from tools.bench.facts import facts
from tools.bench.singles import VERBS, prepare

SHARES: Final = (0.3, 0.6, 0.9)
CLIENTS: Final = 64  # of the closed loop that measures capacity
CONNECTIONS: Final = 256  # of the open loop
FASTEST: Final = 20_000  # requests a second, more than one generator sends; the closed loop is prepared for so many
CAPACITY_SECONDS: Final = 3.0
FAULTS: Final = ("failed", "unanswered", "unsent")
MOST_PAYLOAD: Final = 1_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Latency:
    """One verb at one share of its capacity. Rates are arrivals a second; times milliseconds, None if too few came."""

    verb: str
    spacing: str
    capacity: float
    share: float
    asked: float
    arrived: float
    answered: float
    scheduled: int
    failed: int
    unanswered: int
    unsent: int
    sustained: bool
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None
    late_p99_ms: float | None  # of the generator itself, and part of the others

    @classmethod
    def of(cls, verb: str, spacing: Spacing, capacity: float, share: float, outcome: Outcome) -> Latency:
        return cls(
            verb=verb,
            spacing=spacing,
            capacity=round(capacity, 1),
            share=share,
            asked=round(outcome.scheduled / outcome.seconds, 1),
            arrived=round(outcome.arrived, 1),
            answered=round(outcome.answered, 1),
            scheduled=outcome.scheduled,
            failed=outcome.failed,
            unanswered=outcome.unanswered,
            unsent=outcome.unsent,
            sustained=outcome.sustained,
            p50_ms=_ms(outcome.latencies, 0.5),
            p99_ms=_ms(outcome.latencies, 0.99, least=100),
            p999_ms=_ms(outcome.latencies, 0.999, least=1000),
            max_ms=_ms(outcome.latencies, 1.0),
            late_p99_ms=_ms(outcome.lateness, 0.99),
        )


def _ms(ascending: Sequence[float], share: float, least: int = 1) -> float | None:
    return round(1000 * percentile(ascending, share), 3) if len(ascending) >= least else None


async def run(
    bench: Bench, seconds: float, *, spacing: Spacing = "poisson", verbs: Sequence[str] = VERBS
) -> list[Latency]:
    """Measure on a running service, `seconds` for each share of each verb. Each measurement has a topic of its own."""
    measured = []
    for verb in verbs:
        closed = min(seconds, CAPACITY_SECONDS)
        # Everything is due at once: who gets an answer sends the next.
        at_once = array("d", bytes(8 * round(FASTEST * closed)))
        capacity = (
            await _send(bench, verb, "capacity", at_once, connections=CLIENTS, seconds=closed, grace=0)
        ).answered
        for number, share in enumerate(SHARES):
            due = schedule(capacity * share, seconds, spacing, seed=number)
            name = f"{share:.0%}".rstrip("%")
            outcome = await _send(bench, verb, name, due, connections=CONNECTIONS, seconds=seconds, grace=5)
            measured.append(Latency.of(verb, spacing, capacity, share, outcome))
    return measured


async def _send(
    bench: Bench, verb: str, name: str, due: array[float], *, connections: int, seconds: float, grace: float
) -> Outcome:
    port, topic = bench.service.port, (await bench.queue(f"latency-{verb}-{name}")).topic.name
    requests, steps = await asyncio.to_thread(prepare, verb, port, topic, bench.payload, len(due))
    plan = Plan(port, requests, steps, due, connections, seconds, grace)
    return await asyncio.to_thread(send, plan)


def table(measured: Sequence[Latency]) -> str:
    """Lines for a terminal; times in milliseconds."""
    lines = [
        f"{'verb':8} {'capacity/s':>10} {'load':>5} {'asked/s':>8} {'answered/s':>10}"
        f" {'p50':>8} {'p99':>8} {'p99.9':>8} {'max':>8}  ms   {'late p99':>8}"
    ]
    for one in measured:
        times = " ".join(_shown(time) for time in (one.p50_ms, one.p99_ms, one.p999_ms, one.max_ms))
        line = (
            f"{one.verb:8} {one.capacity:>10,.0f} {one.share:>5.0%} {one.asked:>8,.0f} {one.answered:>10,.0f}"
            f" {times}       {_shown(one.late_p99_ms)}"
        )
        lines.append(line if one.sustained else f"{line}  {faults(asdict(one))}")
    return "\n".join(lines)


def faults(one: Mapping[str, Any]) -> str:
    """Why a rate does not count as sustained, from a Latency's fields; empty if it does."""
    if one["sustained"]:
        return ""
    return ", ".join(["not sustained", *(f"{one[what]} {what}" for what in FAULTS if one[what])])


def _shown(time: float | None) -> str:
    return f"{'–':>8}" if time is None else f"{time:>8.2f}"


def main(argv: Sequence[str]) -> int:
    """The exit code: 1 if a request failed. A rate that was not sustained is said, and no failure."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.latency", description=__doc__)
    parser.add_argument("--verb", choices=VERBS, action="append", help="only this one; may be given again")
    parser.add_argument("--seconds", type=float, default=10, help="for each share of each verb, 0.1 to 3600 (10)")
    parser.add_argument("--spacing", choices=get_args(Spacing), default="poisson", help="of the arrivals (poisson)")
    parser.add_argument("--payload", type=int, default=256, metavar="BYTES", help="size of a job's data (256)")
    parser.add_argument("--quick", action="store_true", help="a second each, to see that it runs")
    parser.add_argument("--url", help="a PostgreSQL to use instead of an embedded one; its schema is upgraded")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the machine there")
    args = parser.parse_args(argv)
    if not 0.1 <= args.seconds <= 3600:
        parser.error("--seconds is 0.1 to 3600")
    if not 0 <= args.payload <= MOST_PAYLOAD:
        parser.error(f"--payload is 0 to {MOST_PAYLOAD}")
    seconds = 1.0 if args.quick else args.seconds
    machine, measured = asyncio.run(_measure(args.payload, args.url, seconds, args.spacing, args.verb or VERBS))
    print("  ".join(f"{name} {value}" for name, value in machine.items()))
    print(table(measured))
    if args.json:
        known = {**machine, "seconds": seconds, "connections": CONNECTIONS, "quick": args.quick}
        shown = {"facts": known, "latency": [asdict(one) for one in measured]}
        args.json.write_text(json.dumps(shown, indent=2) + "\n")
    return 1 if any(one.failed for one in measured) else 0


async def _measure(
    payload: int, url: str | None, seconds: float, spacing: Spacing, verbs: Sequence[str]
) -> tuple[dict[str, object], list[Latency]]:
    async with running(payload, url) as bench:
        load = {"load": round(os.getloadavg()[0], 2)}  # of the machine's last minute: before the run, others' work
        return {**await facts(bench), **load}, await run(bench, seconds, spacing=spacing, verbs=verbs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
