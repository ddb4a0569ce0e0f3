"""Reads that are shared: readers at one place of a topic, woken by one append, ask the database once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.queue.log import Ask
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.diffs import Diff, Diffs
    from app.engine.readers import Readers

READS_AT_ONCE: Final = 3  # of the hot pool's connections: claims need the others
PROOF_SECONDS: Final = 0.1


class Read:
    """What was read, for all who asked. `shown` is what an edge makes of it: whoever is first fills it in."""

    __slots__ = ("diff", "shown")

    def __init__(self, diff: Diff) -> None:
        self.diff = diff
        self.shown: bytes | None = None


@dataclass(slots=True)
class _Flight:
    """A read under way; `mark` is the readers' when its statement was sent, None before."""

    task: asyncio.Task[Read] | None = None
    mark: int | None = None


class SharedReads:
    """One read in flight for each topic, cursor and set of options. Nothing is kept once it has been answered."""

    def __init__(self, diffs: Diffs, readers: Readers) -> None:
        self._diffs = diffs
        self._readers = readers
        self._flights: dict[tuple[int, Ask], _Flight] = {}
        self._gate = asyncio.Semaphore(READS_AT_ONCE)

    async def read(self, policy: Policy, ask: Ask) -> Read:
        """What comes after the cursor, as of this call or later; of `ask`, `without` must be a tuple.

        Raises TopicNotFound, and what asyncpg raises.
        """
        topic_id = policy.topic.id
        key = (topic_id, ask)
        flight = self._flights.get(key)
        # One that began before the topic changed may have missed what its caller was woken for.
        if flight is None or (flight.mark is not None and self._readers.changed(topic_id, flight.mark)):
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.create_task(self._fly(flight, policy, ask))
            flight.task.add_done_callback(lambda _: self._land(key, flight))
        assert flight.task is not None
        return await asyncio.shield(flight.task)

    async def _fly(self, flight: _Flight, policy: Policy, ask: Ask) -> Read:
        async with self._gate:
            flight.mark = self._readers.mark()
            return Read(await self._diffs.once(policy, ask, PROOF_SECONDS))

    def _land(self, key: tuple[int, Ask], flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        assert flight.task is not None
        if not flight.task.cancelled():
            flight.task.exception()  # seen, also where all who asked have left
