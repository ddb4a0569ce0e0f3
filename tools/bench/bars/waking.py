"""How soon a worker that waits has a job, on a system that does nothing else."""

from __future__ import annotations

import statistics

from tools.bench.bench import Bench, Effort
from tools.bench.figures import Bound, Figure
from tools.bench.load import data_of
from tools.bench.waiters import Wakes

WARM = 20  # samples that don't count: connections and prepared statements are made with them


async def waking(bench: Bench, effort: Effort) -> list[Figure]:
    """From sending an enqueue to having its job, for a worker that waits by long poll, and by work stream."""
    figures: list[Figure] = []
    for way in ("long poll", "work stream"):
        topic = (await bench.queue(f"waking-{way.replace(' ', '-')}")).topic.name
        samples = WARM + effort.of(500, 60)
        load = Wakes(bench.service.port, topic, way == "work stream", samples, data_of(bench.payload))
        taken = [round(1000 * seconds, 3) for seconds in (await bench.drive(load))[WARM:]]
        hundredths = statistics.quantiles(taken, n=100, method="inclusive")
        figures.append(Bound(f"enqueue to a waiting {way}, p50", "ms", hundredths[49], 5, taken))
        figures.append(Bound(f"enqueue to a waiting {way}, p99", "ms", hundredths[98], 20, ()))
    return figures
