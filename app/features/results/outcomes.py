"""What became of a job, and who waits to learn it. docs/results.md.

Waiting costs the database little: an ack of this process wakes at once who waits for its job; for all others, one
statement looks every POLL_SECONDS, for all jobs that are waited for together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final

from app.base.loops import REST, Loop
from app.features.explain import store
from app.kernel import jobs, ledger
from app.kernel.engine import Core, Engine
from app.kernel.ledger import Event
from app.kernel.model import Hideable, Topic
from app.kernel.settle import results
from app.kernel.settle.results import Progress
from app.kernel.topics.policy import Policy

POLL_SECONDS: Final = 0.5
AT_ONCE: Final = 1_000  # jobs of one statement

PENDING: Final = "pending"
COMPLETED: Final = "completed"
DEAD_LETTERED: Final = "dead_lettered"
# How the ledger calls the ends of jobs that are gone; deleted, where nothing was their end before.
ENDS: Final = {
    "acked": COMPLETED,
    "dead_lettered": DEAD_LETTERED,
    **{one: one for one in ("failed", "expired", "superseded", "deleted", "cancelled", "requeued")},
}

log = logging.getLogger(__name__)


class Outcome(Hideable, frozen=True):
    """What became of a job. Times are in ms since 1970.

    `state` is pending, or its end; `at_ms` is when that was. `result` is the text of JSON, None where a job was
    completed without one; `expires_ms` until when it is kept, None for ever. `letter`: the topic and seq of a dead
    letter that is still there. `progress`: of a pending job, as far as its holder has said. `hidden`: the result is,
    from whoever looks.
    """

    SECRET: ClassVar = {"result": None}

    state: str
    at_ms: int | None = None
    result: str | None = None
    expires_ms: int | None = None
    error: str | None = None
    letter: tuple[str, int] | None = None
    progress: Progress | None = None
    hidden: bool = False


class Outcomes(Core):
    """Tells what became of jobs, and parks who waits until something has."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._waited: dict[tuple[int, int], tuple[Topic, set[asyncio.Event]]] = {}
        self._poll = Loop("look for the ends of jobs", self._look_for_ends, POLL_SECONDS, first=POLL_SECONDS)
        self._stopping = False
        engine.settlements.settled.subscribe(self._ended)

    async def of(
        self,
        policy: Policy,
        seq: int,
        seconds: float = 0.0,
        *,
        covers: Callable[[str], bool],
        last: Sequence[Event] | None = None,
    ) -> Outcome | None:
        """What became of a job; while it is pending, wait so long. None if nothing is kept of it.

        Where it is as a dead letter, and what was handed in for it there, is told if `covers` that topic. `last`: its
        events, the newest first, for who has read them already and does not wait; two are enough.
        """
        if seconds <= 0:
            return await self._look(policy, seq, covers, last)
        give_up = time.monotonic() + seconds
        with self._parked(policy.topic, seq) as woken:  # before the look: no end between the two goes unheard
            outcome = await self._look(policy, seq, covers)
            while (
                outcome is not None
                and outcome.state == PENDING
                and (left := give_up - time.monotonic()) > 0
                and not self._stopping
            ):
                timer = asyncio.get_running_loop().call_later(left, woken.set)
                try:
                    await woken.wait()
                finally:
                    timer.cancel()
                woken.clear()
                outcome = await self._look(policy, seq, covers)
            return outcome

    def count(self) -> int:
        """How many wait."""
        return sum(len(events) for _, events in self._waited.values())

    def stop(self) -> None:
        """Send away all who wait; nobody waits any more."""
        self._stopping = True
        self._wake(list(self._waited))

    async def drain(self) -> None:
        """Stop looking."""
        await self._poll.stop()

    async def _look(
        self, policy: Policy, seq: int, covers: Callable[[str], bool], last: Sequence[Event] | None = None
    ) -> Outcome | None:
        db, topic = self._engine.pools.rest, policy.topic
        row = await store.job(db, topic, policy.budget, seq)
        if row is not None and row.state in {"failed", "expired", "cancelled"}:
            ends = {"failed": row.updated_ms, "expired": row.expires_ms, "cancelled": row.visible_ms}
            return Outcome(row.state, ends[row.state] or row.updated_ms, error=row.last_error)
        if row is not None:
            return Outcome(PENDING, progress=row.progress)
        found = await results.find(db, topic, seq)
        if found is not None and covers(found.topic):
            if not found.kept:
                return None
            return Outcome(COMPLETED, found.completed_ms, result=found.result, expires_ms=found.expires_ms)
        for place in (await jobs.letters(db, [(topic.id, seq)])).values():
            for one in await jobs.show(db, [place]):
                letter = (one.topic, one.seq) if covers(one.topic) else None
                return Outcome(DEAD_LETTERED, one.dlq_moved_ms, error=one.last_error, letter=letter)
        return _last(await ledger.last(db, topic, seq, 2) if last is None else last)

    @contextlib.contextmanager
    def _parked(self, topic: Topic, seq: int) -> Iterator[asyncio.Event]:
        woken, place = asyncio.Event(), (topic.id, seq)
        self._waited.setdefault(place, (topic, set()))[1].add(woken)
        try:
            self._poll.start()
            yield woken
        finally:
            events = self._waited[place][1]
            events.discard(woken)
            if not events:
                del self._waited[place]

    def _ended(self, topic_id: int, seqs: Sequence[int]) -> None:
        """This process has settled jobs: perhaps they have come to their end."""
        if self._waited:
            self._wake([(topic_id, seq) for seq in seqs if (topic_id, seq) in self._waited])

    def _wake(self, places: Sequence[tuple[int, int]]) -> None:
        for place in places:
            for woken in self._waited[place][1]:
                woken.set()

    async def _look_for_ends(self) -> float | None:
        places = list(self._waited)
        for start in range(0, len(places), AT_ONCE):
            await self._poll_some(places[start : start + AT_ONCE])
        return None if places else REST

    async def _poll_some(self, places: Sequence[tuple[int, int]]) -> None:
        known = [(place, self._waited[place][0]) for place in places if place in self._waited]
        live = await results.unended(self._engine.pools.rest, [(topic, place[1]) for place, topic in known])
        self._wake([place for i, (place, _) in enumerate(known) if i not in live and place in self._waited])


def _last(events: Sequence[Event]) -> Outcome | None:
    """What the ledger says of a job that is gone, the newest event first: its end, before it was deleted or swept."""
    if not events:
        return None
    end, *before = events
    if end.event == "deleted" and before and before[0].event in {"failed", "expired"}:
        end = before[0]
    if end.event == "requeued" and not (end.detail or "").startswith("to "):
        return Outcome(PENDING)  # it has just come back
    state = ENDS.get(end.event)
    if state is None or (state == COMPLETED and end.until_ms is not None):
        return None  # there was a result, and it is kept no longer
    return Outcome(state, end.at_ms, error=end.detail if state == "failed" else None)
