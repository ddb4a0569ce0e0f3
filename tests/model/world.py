"""The real engine on a real database, in an event loop of a thread of its own: for rules, which can't wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from app.base.db.pool import Pools, open_pools
from app.kernel.engine import Engine
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import Policy
from tests.model.model import Row

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PATIENCE = 30.0

_ROWS = """
    SELECT j.*, j.state::text AS word
    FROM holdfast.jobs j JOIN holdfast.topics t ON t.name = j.topic AND t.id = j.topic_id
    WHERE j.topic = $1 ORDER BY j.seq
"""


class World:
    """A loop and pools for all examples, and a new engine for each."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.pools: Pools = self.run(open_pools(url, hot=4, rest=2, prepared_statements=True))
        self.failures: list[Exception] = []
        self.policies: Policies
        self.engine: Engine

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and wait for it here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def close(self) -> None:
        self.run(self.pools.close(5))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def start(self) -> None:
        """An engine like that of a process just started."""
        self.policies = Policies(self.pools.rest)
        self.engine = Engine(self.pools, self.policies, max_waiting=100)

    async def stop(self) -> None:
        self.engine.stop()
        await self.engine.drain()

    async def policy(self, topic: str) -> Policy:
        """What the edges ask for before each verb."""
        return await self.policies.queue(topic)

    async def put(self, policy: Policy, batch: Batch) -> Placement:
        """Enqueue records with keys, and see what became of each."""
        placed = await self.engine.enqueues.place(policy, batch, 100)
        assert isinstance(placed, Placement)
        return placed

    async def clock(self) -> int:
        """The database's, in µs since 1970."""
        return micros(await self.pools.rest.fetchval("SELECT clock_timestamp()"))

    async def rows(self, topic: str) -> dict[int, Row]:
        """The table's jobs of a topic, by seq."""
        return {row["seq"]: _row(row) for row in await self.pools.rest.fetch(_ROWS, topic)}


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def _row(row: Any) -> Row:
    origin = (row["original_topic"], row["original_seq"], row["original_deliveries"])
    return Row(
        row["seq"],
        row["word"],
        row["priority"],
        micros(row["visible_at"]),
        None if row["expires_at"] is None else micros(row["expires_at"]),
        row["deliveries"],
        row["lease_id"] and row["lease_id"].hex,
        row["node"],
        row["last_error"],
        row["payload"],
        row["key"],
        micros(row["updated_at"]),
        None if origin == (None, None, None) else origin,
    )
