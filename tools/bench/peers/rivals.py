"""The queues that are measured, each with the settings that measured best for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.bench.peers import install

DRIVERS: Final = Path(__file__).parent / "drivers"


@dataclass(frozen=True, slots=True)
class Rival:
    """A queue by its package's name. `jobs` is what it does in some seconds; `settings` says in words how it is set."""

    name: str
    driver: str
    jobs: int
    settings: str

    @property
    def ours(self) -> bool:
        """Whether it is reached by a topic's URL, not by a database's."""
        return False

    def command(self) -> tuple[Sequence[str], Path]:
        """How its driver is started, and in which folder. Raises Failed if what it runs on is not there."""
        if self.driver.endswith(".mjs"):
            return [str(install.node()), str(DRIVERS / self.driver)], install.FOLDER
        return [str(install.PYTHON), "-m", _module(self.driver)], install.ROOT


@dataclass(frozen=True, slots=True)
class Ours(Rival):
    """Holdfast by its HTTP API, with so many jobs in a request, over so many connections of one process."""

    batch: int
    connections: int

    @property
    def ours(self) -> bool:
        return True

    def command(self) -> tuple[Sequence[str], Path]:
        return [sys.executable, "-m", _module(self.driver), str(self.batch), str(self.connections)], install.ROOT


def _module(driver: str) -> str:
    return f"{__package__}.drivers.{driver.removesuffix('.py')}"


def _holdfast(batch: int, connections: int) -> Ours:
    settings = f"over HTTP, batches of {batch}, {connections} connections of one client process"
    return Ours("Holdfast", "holdfast.py", 100_000, settings, batch, connections)


HOLDFAST: Final = _holdfast(500, 4)
HOLDFAST_WORKER: Final = Ours(
    "Holdfast", "holdfast_worker.py", 60_000, "the SDK's worker, 24 at a time; enqueues of 1000 × 4", 1000, 4
)
GRAPHILE_WORKER: Final = Rival(
    "graphile-worker",
    "graphile_worker.mjs",
    60_000,
    "add_jobs of 1000 × 4; 24 at a time, local queue 500, batched ends",
)
PEERS: Final = (
    GRAPHILE_WORKER,
    Rival("pg-boss", "pg_boss.mjs", 30_000, "insert, fetch and complete of 1000 × 4"),
    Rival("pgqueuer", "pgqueuer.py", 30_000, "enqueue of 1000 × 4; batches of 100"),
    Rival("awa-pg", "awa.py", 20_000, "queue storage; copies of 1000 × 4; 200 slots"),
    Rival("procrastinate", "procrastinate.py", 1_500, "defer of 1000 × 4; concurrency 20"),
)
