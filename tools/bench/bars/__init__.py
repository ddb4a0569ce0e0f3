"""The bars by name, in the order in which they run. A new one is a line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tools.bench.bars import (
    batch,
    depth,
    expiry,
    fairness,
    fleet,
    logs,
    sharing,
    single,
    snapshot,
    starvation,
    streams,
    waking,
    watchers,
)
from tools.bench.bench import Bench, Effort
from tools.bench.figures import Figure
from tools.bench.peers import bars as peers

Bar = Callable[[Bench, Effort], Awaitable[Sequence[Figure]]]

BARS: Final[Mapping[str, Bar]] = {
    "single": single.single,
    "batch": batch.batch,
    "append": logs.append,
    "waking": waking.waking,
    "watchers": watchers.watchers,
    "fleet": fleet.fleet,
    "streams": streams.streams,
    "sharing": sharing.sharing,
    "snapshot": snapshot.snapshot,
    "expiry": expiry.expiry,
    "blocked": depth.blocked,
    "groups": depth.groups,
    "scheduled": depth.scheduled,
    "deep": depth.deep,
    "starvation": starvation.starvation,
    "fairness": fairness.fairness,
    "cycle": peers.cycle,
    "worker": peers.worker,
}
