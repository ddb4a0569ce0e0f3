"""Runs one handler: claims jobs ahead, runs them with `concurrency` runners, and settles them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from holdfast import _trace, errors
from holdfast._attempts import BASE_SECONDS, CAP_SECONDS
from holdfast._client import AsyncClient
from holdfast._heartbeats import Heartbeats, Holding
from holdfast._removals import Removals
from holdfast._resources.leases import TopicLeases, found
from holdfast._wire import Request
from holdfast._worker.ahead import Ahead
from holdfast._worker.calls import Caller
from holdfast._worker.context import Why
from holdfast._worker.handlers import Handler
from holdfast._worker.outcomes import ACK, RELEASE, Dead, Judged, Retry, Verdict, judged, unless_committed
from holdfast._worker.payloads import Encoder
from holdfast._worker.runner import Runner
from holdfast._worker.settler import Settler
from holdfast._worker.taken import Taken

log: Final = logging.getLogger("holdfast")

WAIT_MS: Final = 20_000
MAX_CLAIM: Final = 500  # jobs
MAX_CLAIMS: Final = 4  # at once
TURN_SECONDS: Final = 0.002  # that a handler's runners may use before those of other handlers
LAST_CLAIM_SECONDS: Final = 0.1
DONE: Final = Judged(ACK)


class Lane:
    """Claims, runs and settles the jobs of one handler in this process."""

    def __init__(
        self,
        handler: Handler,
        client: AsyncClient,
        heartbeats: Heartbeats,
        lease_ms: int,
        encode: Encoder | None,
        *,
        on_error: Callable[[str, BaseException], object] | None,
    ) -> None:
        self.handler = handler
        self._on_error = on_error
        self._topic = client.topic(handler.topic)
        self._sender = client._sender
        self._heartbeats = heartbeats
        self._loop = asyncio.get_running_loop()
        self._lease_ms = lease_ms
        self._caller = Caller(handler, client, encode)
        self._tracer = _trace.tracer()
        self._removals = Removals(self._sender.objects, self._topic)
        self._settler = Settler(self._topic, self._let_go, self._removals.add)
        self._held: dict[str, Taken] = {}  # by lease
        self._queued: deque[Taken] = deque()
        self._runners = [Runner(self) for _ in range(handler.concurrency)]
        self._idle: deque[asyncio.Future[None]] = deque()
        self._running = 0
        self._ahead = Ahead(handler.concurrency, lease_ms)
        self._room_wanted: asyncio.Future[None] | None = None
        self._claims: dict[asyncio.Task[None], int] = {}  # running claims, and the most jobs of each
        self._backlog = False
        self._failures = 0
        self._waits = False  # for its topic to be created
        self._fault: BaseException | None = None
        self._draining = asyncio.Event()
        self._emptied: asyncio.Future[None] | None = None
        self.turn: Final = TURN_SECONDS / handler.concurrency
        self.ending = False  # a cancellation now comes from the worker, not from a handler

    def tasks(self) -> Iterator[asyncio.Task[None]]:
        """Start the lane's tasks. They run until cancelled; the claims end after `drain`."""
        name = f"holdfast-{self.handler.topic}"
        yield asyncio.create_task(self._claim_on(), name=f"{name}-claims")
        yield asyncio.create_task(self._watch_time(), name=f"{name}-timeouts")
        yield asyncio.create_task(self._watch_queue(), name=f"{name}-surplus")
        for runner in self._runners:
            runner.task = asyncio.create_task(runner.run(), name=name)
            yield runner.task

    # Claims.

    async def _claim_on(self) -> None:
        """Keep one claim waiting for jobs. While answers are full, make more claims at once."""
        while not self._draining.is_set():
            while (room := self._room()) and len(self._claims) < (MAX_CLAIMS if self._backlog else 1):
                task = asyncio.create_task(self._claim_once(room, 0 if self._claims else WAIT_MS))
                self._claims[task] = room
                task.add_done_callback(self._claim_ended)
            self._room_wanted = self._loop.create_future()
            await self._room_wanted
            if self._fault is not None:
                raise self._fault

    async def _claim_once(self, most: int, wait_ms: int) -> None:
        try:
            bodies, _ = await self._sender.send(self._claim(most, wait_ms))
        except errors.Unauthorized:
            raise  # later claims would fail as well: the worker ends
        except errors.HoldfastError as error:
            # Jobs in a lost answer become ready again when their leases end.
            self._backlog = False
            self._failures += 1
            pause = random.uniform(0, min(CAP_SECONDS, BASE_SECONDS * 2 ** min(self._failures, 16)))  # noqa: S311
            if not isinstance(error, errors.TopicNotFound):
                log.warning("A claim of %s failed, retry in %.1f s: %s", self.handler.topic, pause, error)
            elif not self._waits:
                self._waits = True
                log.warning("Waiting for topic %s: it does not exist yet", self.handler.topic)
            await asyncio.sleep(pause)
        else:
            self._backlog = len(bodies) == most
            self._failures = 0
            if self._waits:
                self._waits = False
                log.info("Topic %s exists now", self.handler.topic)
            self._take(bodies)

    def _claim_ended(self, task: asyncio.Task[None]) -> None:
        del self._claims[task]
        if not task.cancelled():
            self._fault = self._fault or task.exception()  # an internal error: it ends the worker
        self._wake_claims()

    def _claim(self, most: int, wait_ms: int) -> Request[tuple[list[dict[str, Any]], int | None]]:
        """A claim whose answer is not decoded."""
        request = TopicLeases.claim(self._topic, max=most, wait_ms=wait_ms, lease_ms=self._lease_ms, counts=False)
        return request.read_by(found)

    def _take(self, bodies: Sequence[dict[str, Any]]) -> None:
        node = self._sender.account.node
        until = time.monotonic() + self._lease_ms / 1000
        taken = [Taken(body, node, until) for body in bodies]
        for one in taken:
            self._held[one.lease_id] = one
        if self._draining.is_set():
            self._release(taken)
            return
        self._queued.extend(taken)
        self._ahead.add_claimed(len(taken))
        for _ in range(min(len(taken), len(self._idle))):
            self._wake(self._idle.popleft())

    def _room(self) -> int:
        """How many jobs to claim now. Jobs that are being settled need no slot, but their number is limited as well."""
        slots, most = self.handler.concurrency, self._ahead.most()
        working = self._running + len(self._queued) + sum(self._claims.values())
        room = min(most - working, 2 * most - len(self._held), MAX_CLAIM)
        return room if room > 0 and (working < slots or room >= min(MAX_CLAIM, most // 2)) else 0

    # Running.

    async def next(self) -> None:
        """Wait until there may be a job to run."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            with suppress(ValueError):  # already woken
                self._idle.remove(waiting)
            raise

    def take(self, now: float) -> Taken | None:
        """The next job to run; None if there is none."""
        while self._queued:
            taken = self._queued.popleft()
            if taken.over:
                continue
            if taken.signalled is None and taken.is_valid(now):
                self._running += 1
                return taken
            if taken.signalled is None:
                self.interrupt(taken, "lost")
            else:
                self._finish(taken, self._interrupted(taken, taken.signalled))
        return None

    def call(self, taken: Taken) -> Any:
        return self._caller.call(taken) if self._tracer is None else self._call_traced(taken)

    async def _call_traced(self, taken: Taken) -> Any:
        """Call the handler within a span, which ends when the job is judged."""
        taken.span = _trace.begin_process(self._tracer, self.handler.topic, taken.body)
        with _trace.current(taken.span):
            return await self._caller.call(taken)

    def ended(self, taken: Taken, value: Any, seconds: float) -> None:
        """Report that a handler has returned or raised."""
        self._running -= 1
        self._ahead.busy += seconds
        self._ahead.done += 1
        if not taken.over:
            if taken.signalled is not None and isinstance(value, BaseException):
                value = self._interrupted(taken, taken.signalled)
            self._finish(taken, value)
        elif taken.span is not None:
            _trace.end_process(taken.span, "lost", "its lease was lost", None)  # no effect if it was already judged
        if self._room_wanted is not None and self._room():
            self._wake_claims()

    def _finish(self, taken: Taken, value: Any) -> None:
        taken.over = True
        made, error = DONE, None
        if value is not None or taken.completes:
            if isinstance(value, BaseException) and not isinstance(value, (Retry, Dead)):
                error = value
                log.warning("Job %d of %s failed", taken.seq, self.handler.topic, exc_info=value)
                self._report(value)
            made = judged(value, self.handler.retry, taken.body["deliveries"])
            if taken.completes:
                made = unless_committed(made)
        if taken.span is not None:
            _trace.end_process(taken.span, made.verdict.verb, made.detail, error)
        self._settler.add(taken, made)

    def _report(self, error: BaseException) -> None:
        if self._on_error is not None:
            try:
                self._on_error(self.handler.topic, error)
            except Exception:
                log.exception("The worker's on_error raised an exception")

    def _interrupted(self, taken: Taken, why: Why) -> Any:
        """How to settle an interrupted job. If it has begun, its delivery counts."""
        match why:
            case "timeout":
                return Retry(reason=f"took longer than {self.handler.timeout:g} s")
            case "cancelled":
                return Judged(Verdict("nack"), "cancelled")  # ends a cancelled job, whatever attempts are left
            case "stopping" if taken.task is not None:
                return Judged(Verdict("nack", 0), "its worker stopped before the job was done")
            case "stopping" | "lost":
                return Judged(RELEASE)

    # Interrupting.

    def interrupt(self, taken: Taken, why: Why) -> None:
        """Interrupt a job. A thread can't be ended, only signalled; its result no longer counts."""
        if taken.over:
            return
        if why == "lost":
            taken.over = True
            self._let_go([taken])
            if taken.completes:
                return  # its own transaction may have ended the lease; otherwise that transaction fails
            log.warning("The lease of job %d of %s was lost", taken.seq, self.handler.topic)
        taken.signal(why)
        if taken.task is None:
            return
        if self._caller.interruptible(taken):
            taken.task.cancel()
        elif why in ("timeout", "stopping"):
            self._finish(taken, self._interrupted(taken, why))

    async def _watch_time(self) -> None:
        """Interrupt jobs that exceed the timeout. Sleeps until the next running job can exceed it."""
        timeout = self.handler.timeout
        while True:
            now = time.monotonic()
            after = now + timeout
            for runner in self._runners:
                taken = runner.taken
                if taken is not None and taken.signalled is None:
                    if runner.began + timeout <= now:
                        self.interrupt(taken, "timeout")
                    else:
                        after = min(after, runner.began + timeout)
            await asyncio.sleep(after - now)

    async def _watch_queue(self) -> None:
        """Return jobs that were claimed ahead if the handler has become slow."""
        while True:
            await asyncio.sleep(self._ahead.every)
            if surplus := self._ahead.surplus(len(self._queued)):
                log.info("Returning %d jobs of %s that would not begin here soon", surplus, self.handler.topic)
                self._give_back(surplus)

    # Leases.

    def running(self) -> list[tuple[str, asyncio.Task[None] | None]]:
        """Names and tasks of the jobs that run in the event loop."""
        if self.handler.runs != "async":
            return []
        now = [(runner.taken, runner.task) for runner in self._runners]
        return [(f"job {taken.seq} of {self.handler.topic}", task) for taken, task in now if taken is not None]

    def due(self, interval: float) -> list[Holding]:
        """Leases of jobs that have been here for a while, to extend from now on. Called in the heartbeats' thread."""
        old = time.monotonic() + self._lease_ms / 1000 - interval / 2
        due = []
        for taken in list(self._held.values()):
            if taken.holding is None and taken.until <= old:
                taken.holding = Holding(
                    self.handler.topic,
                    taken,
                    self._lease_ms,
                    interval,
                    taken.until,
                    partial(self._soon, taken, "lost"),
                    partial(self._soon, taken, "cancelled", None),
                    settling=taken.over,
                )
                due.append(taken.holding)
        return due

    def _soon(self, taken: Taken, why: Why, _: errors.LeaseLost | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.interrupt, taken, why)

    def _let_go(self, batch: Sequence[Taken]) -> None:
        for taken in batch:
            self._held.pop(taken.lease_id, None)
            if taken.holding is not None:
                self._heartbeats.release(taken.holding)
        if self._emptied is not None and not self._held:
            self._wake(self._emptied)
        if self._room_wanted is not None and self._room():
            self._wake_claims()

    # Ending.

    async def drain(self) -> None:
        """Stop claiming, return jobs that have not begun, and wait until the others are settled."""
        self._draining.set()
        self._caller.stopping.set()
        self._wake_claims()
        self._give_back(len(self._queued))
        # Wait briefly for running claims: jobs in a lost answer would stay leased.
        if claims := list(self._claims):
            await asyncio.wait(claims, timeout=LAST_CLAIM_SECONDS)
            for claim in claims:
                claim.cancel()
            await asyncio.wait(claims)
        if self._held:
            self._emptied = self._loop.create_future()
            await self._emptied
        await self._removals.finish()

    def release(self) -> None:
        """Interrupt and return all running jobs."""
        for taken in list(self._held.values()):
            self.interrupt(taken, "stopping")

    def close(self) -> None:
        """Cancel claims and shut down threads and processes."""
        for claim in self._claims:
            claim.cancel()
        self._caller.close()

    def _give_back(self, count: int) -> None:
        """Return the last `count` jobs that have not begun."""
        last = [self._queued.pop() for _ in range(count)]
        self._release([taken for taken in reversed(last) if not taken.over])

    def _release(self, batch: Sequence[Taken]) -> None:
        for taken in batch:
            self._finish(taken, Judged(RELEASE))

    def _wake_claims(self) -> None:
        if self._room_wanted is not None:
            self._wake(self._room_wanted)
            self._room_wanted = None

    @staticmethod
    def _wake(waiting: asyncio.Future[None]) -> None:
        if not waiting.done():
            waiting.set_result(None)
