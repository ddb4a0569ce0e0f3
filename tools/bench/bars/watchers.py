"""How soon a write reaches all who watch a topic, on a system that does nothing else."""

from __future__ import annotations

import secrets
import statistics

from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, resolve
from tools.bench.bench import Bench, Effort
from tools.bench.figures import Bound, Figure
from tools.bench.load import data_of
from tools.bench.watchers import Tells

WATCHERS = 100
WARM = 20  # samples that don't count: connections and prepared statements are made with them
MOST_MS = 10.0


async def watchers(bench: Bench, effort: Effort) -> list[Figure]:
    """From sending an append to a durable log to the last of 100 watchers' having the record."""
    name = f"watchers-{secrets.token_hex(3)}"
    bench.made.append(name)
    await store.put(bench.pools.rest, name, resolve(name, AskedSettings(durable=True)))
    load = Tells(bench.service.port, name, WATCHERS, WARM + effort.of(500, 60), data_of(bench.payload))
    taken = (await bench.drive(load))[WARM:]
    last = [round(1000 * arrivals[-1], 3) for arrivals in taken]
    middle = statistics.median(1000 * arrivals[len(arrivals) // 2] for arrivals in taken)
    notes = {"half_of_them_ms": middle, "p99": statistics.quantiles(last, n=100, method="inclusive")[98]}
    return [
        Bound(f"append to the last of {WATCHERS} watchers, p50", "ms", statistics.median(last), MOST_MS, last, notes)
    ]
