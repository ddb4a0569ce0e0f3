"""Outcomes of jobs, and callers that wait for them. docs/jobs.md.

Waiting costs the database little. An ack in this process wakes the callers that wait for its job at once. For other
ends, one statement every POLL_SECONDS looks at all jobs with waiting callers.
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
AT_ONCE: Final = 1_000  # jobs per statement

PENDING: Final = "pending"
COMPLETED: Final = "completed"
DEAD_LETTERED: Final = "dead_lettered"
# Events of the ledger that end a job. "deleted" is the end of a job that had not ended before.
ENDS: Final = {
    "acked": COMPLETED,
    "dead_lettered": DEAD_LETTERED,
    **{one: one for one in ("failed", "expired", "superseded", "deleted", "cancelled", "requeued")},
}

log = logging.getLogger(__name__)


class JobOutcome(Hideable, frozen=True):
    """The outcome of a job. Times are in ms since 1970.

    state: pending, or how it ended. at_ms: when it ended. result: JSON text, None if it was completed without one.
    expires_ms: until when the result is kept, None for ever. letter: the topic and seq of the dead letter, if it still
    exists. progress: of a pending job, if its holder reports it. hidden: the reader may not see the result.
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
    """Reads the outcomes of jobs, and parks callers until jobs end."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._waiting: dict[tuple[int, int], tuple[Topic, set[asyncio.Event]]] = {}
        self._poll = Loop("look for the ends of jobs", self._look_for_ends, POLL_SECONDS, first=POLL_SECONDS)
        self._stopping = False
        engine.settlements.settled.subscribe(self._note_settled)

    async def of(
        self,
        policy: Policy,
        seq: int,
        seconds: float = 0.0,
        *,
        covers: Callable[[str], bool],
        last: Sequence[Event] | None = None,
    ) -> JobOutcome | None:
        """Return a job's outcome, after waiting up to `seconds` while it is pending. None if nothing is known of it.

        The place of its dead letter, and the result of that, are included if the caller's key `covers` that topic.
        last: the job's events, newest first, from callers that have read them and don't wait. Two are enough.
        """
        if seconds <= 0:
            return await self._look(policy, seq, covers, last)
        give_up = time.monotonic() + seconds
        with self._park(policy.topic, seq) as woken:  # before the look, so that it misses no end
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
        return sum(len(events) for _, events in self._waiting.values())

    def stop(self) -> None:
        """Answer all waiting callers. Later calls don't wait."""
        self._stopping = True
        self._wake(list(self._waiting))

    async def drain(self) -> None:
        await self._poll.stop()

    async def _look(
        self, policy: Policy, seq: int, covers: Callable[[str], bool], last: Sequence[Event] | None = None
    ) -> JobOutcome | None:
        db, topic = self._engine.pools.rest, policy.topic
        row = await store.job(db, topic, policy.budget, seq)
        if row is not None and row.state in {"failed", "expired", "cancelled"}:
            ends = {"failed": row.updated_ms, "expired": row.expires_ms, "cancelled": row.visible_ms}
            return JobOutcome(row.state, ends[row.state] or row.updated_ms, error=row.last_error)
        if row is not None:
            return JobOutcome(PENDING, progress=row.progress)
        found = await results.find(db, topic, seq)
        if found is not None and covers(found.topic):
            if not found.kept:
                return None
            return JobOutcome(COMPLETED, found.completed_ms, result=found.result, expires_ms=found.expires_ms)
        for place in (await jobs.find_letters(db, [(topic.id, seq)])).values():
            for one in await jobs.show(db, [place]):
                letter = (one.topic, one.seq) if covers(one.topic) else None
                return JobOutcome(DEAD_LETTERED, one.dlq_moved_ms, error=one.last_error, letter=letter)
        return _last(await ledger.last(db, topic, seq, 2) if last is None else last)

    @contextlib.contextmanager
    def _park(self, topic: Topic, seq: int) -> Iterator[asyncio.Event]:
        woken, place = asyncio.Event(), (topic.id, seq)
        self._waiting.setdefault(place, (topic, set()))[1].add(woken)
        try:
            self._poll.start()
            yield woken
        finally:
            events = self._waiting[place][1]
            events.discard(woken)
            if not events:
                del self._waiting[place]

    def _note_settled(self, topic_id: int, seqs: Sequence[int]) -> None:
        if self._waiting:
            self._wake([(topic_id, seq) for seq in seqs if (topic_id, seq) in self._waiting])

    def _wake(self, places: Sequence[tuple[int, int]]) -> None:
        for place in places:
            for woken in self._waiting[place][1]:
                woken.set()

    async def _look_for_ends(self) -> float | None:
        places = list(self._waiting)
        for start in range(0, len(places), AT_ONCE):
            await self._poll_some(places[start : start + AT_ONCE])
        return None if places else REST

    async def _poll_some(self, places: Sequence[tuple[int, int]]) -> None:
        known = [(place, self._waiting[place][0]) for place in places if place in self._waiting]
        live = await results.find_unended(self._engine.pools.rest, [(topic, place[1]) for place, topic in known])
        self._wake([place for i, (place, _) in enumerate(known) if i not in live and place in self._waiting])


def _last(events: Sequence[Event]) -> JobOutcome | None:
    """The outcome of a deleted job, by its events, newest first."""
    if not events:
        return None
    end, *before = events
    if end.event == "deleted" and before and before[0].event in {"failed", "expired"}:
        end = before[0]
    if end.event == "requeued" and not (end.detail or "").startswith("to "):
        return JobOutcome(PENDING)  # it was just requeued
    state = ENDS.get(end.event)
    if state is None or (state == COMPLETED and end.until_ms is not None):
        return None  # its result was deleted
    return JobOutcome(state, end.at_ms, error=end.detail if state == "failed" else None)
