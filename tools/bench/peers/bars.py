"""The bars that rival queues set. A quick run leaves them out: they need packages that a test run doesn't install."""

from __future__ import annotations

from collections.abc import Sequence

from tools.bench.bench import Bench, Effort, say
from tools.bench.figures import Figure, Missing, Ratio
from tools.bench.peers.contest import Standing, contest
from tools.bench.peers.rivals import GRAPHILE_WORKER, HOLDFAST, HOLDFAST_WORKER, PEERS, Rival


async def cycle(bench: Bench, effort: Effort) -> list[Figure]:
    """The whole cycle of jobs over HTTP in batches of 500, against the best of the rival queues.

    Enqueue all, then claim and ack all. The base is the whole cycle of whichever rival was best.
    """
    if effort.quick:
        return []
    rivals = [HOLDFAST, *PEERS]
    standing = await contest(bench, rivals, effort.rounds, lambda rival: rival.jobs)
    say("\n" + standing.table(rivals))
    return [against_best(standing, rivals)]


def against_best(standing: Standing, rivals: Sequence[Rival]) -> Figure:
    """Holdfast's cycle against the best of the peers that could be measured; the others are named in it."""
    name = f"whole cycle over HTTP in batches of {HOLDFAST.batch} / the best peer's"
    measured = [rival.name for rival in rivals if rival.name in standing.outcomes and not rival.ours]
    if not measured:
        return Missing(name, "; ".join(f"{peer}: {reason}" for peer, reason in standing.missing.items()))
    best = max(measured, key=lambda peer: standing.median(peer, "cycle_per_s"))
    without = f", without {', '.join(standing.missing)}" if standing.missing else ""
    rates, bases = (standing.rates(queue, "cycle_per_s") for queue in (HOLDFAST.name, best))
    return Ratio(f"{name} ({best}{without})", "jobs", rates, bases, 2.0, standing.record(rivals))


async def worker(bench: Bench, effort: Effort) -> list[Figure]:
    """Jobs that one worker process completes with a handler that does nothing, against graphile-worker's."""
    if effort.quick:
        return []
    rivals = [HOLDFAST_WORKER, GRAPHILE_WORKER]
    standing = await contest(bench, rivals, effort.rounds, lambda rival: rival.jobs)
    say("\n" + standing.table(rivals))
    name = f"worker, no-op handler, one process / {GRAPHILE_WORKER.name}'s"
    if standing.missing:
        return [Missing(name, standing.missing[GRAPHILE_WORKER.name])]
    rates, bases = (standing.rates(rival.name, "run_per_s") for rival in rivals)
    return [Ratio(name, "jobs", rates, bases, 1.0, standing.record(rivals))]
