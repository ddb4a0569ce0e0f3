"""Reads that are shared: readers at one place of a topic, woken by one append, ask the database once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from app.kernel.logs.log import Ask
from app.kernel.logs.reads import Read
from app.kernel.topics.policy import Policy

if TYPE_CHECKING:
    from app.features.logs.diffs import Diffs
    from app.kernel.logs.readers import Parked, Readers
    from app.kernel.topics.cache import Policies

READS_AT_ONCE: Final = 3  # of the hot pool's connections: claims need the others
PROOF_SECONDS: Final = 0.1


class _Flight(msgspec.Struct):
    """A read under way; `mark` is the readers' when its statement was sent, None before."""

    task: asyncio.Task[Read] | None = None
    mark: int | None = None


class SharedReads:
    """One read in flight for each topic, cursor and set of options. Nothing is kept once it has been answered."""

    def __init__(self, diffs: Diffs, readers: Readers, policies: Policies) -> None:
        self._diffs = diffs
        self._readers = readers
        self._policies = policies
        self._flights: dict[tuple[int, Ask], _Flight] = {}
        self._gate = asyncio.Semaphore(READS_AT_ONCE)
        # Who is handed a read as soon as it has landed.
        self._parked: dict[tuple[int, Ask], set[Parked]] = {}
        self._handing: set[asyncio.Task[None]] = set()
        readers.wanted.subscribe(self._wanted)

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

    def _wanted(self, policy: Policy, wanted: Mapping[Ask, Sequence[Parked]]) -> None:
        """The topic has changed: read for those who are parked, and wake each of them once, with the read in hand.

        Those of a read that is under way already get that one: it says from when it is, and whoever missed something
        since finds that out when it parks again.
        """
        for ask, parked in wanted.items():
            key = (policy.topic.id, ask)
            if key in self._parked:
                self._parked[key].update(parked)
                continue
            self._parked[key] = set(parked)
            task = asyncio.create_task(self._hand(policy, ask))
            self._handing.add(task)
            task.add_done_callback(self._handing.discard)

    async def _hand(self, policy: Policy, ask: Ask) -> None:
        read = None
        try:
            now = await self._policies.get(policy.topic.name)
            if now.topic.id == policy.topic.id and now.version == policy.version:
                read = await self.read(policy, ask)
        except Exception:  # noqa: S110  who is woken without a read reads for itself, and meets the same
            pass
        finally:
            topic_id = policy.topic.id
            newest = read is not None and not self._readers.changed(topic_id, read.mark)
            for parked in self._parked.pop((topic_id, ask)):
                parked.hand(topic_id, read, newest=newest)

    async def _fly(self, flight: _Flight, policy: Policy, ask: Ask) -> Read:
        async with self._gate:
            flight.mark = self._readers.mark()
            return Read(await self._diffs.once(policy, ask, PROOF_SECONDS), policy, flight.mark)

    def _land(self, key: tuple[int, Ask], flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        assert flight.task is not None
        if not flight.task.cancelled():
            flight.task.exception()  # seen, also where all who asked have left
