"""One handler at work: jobs are claimed ahead, run by as many runners as it has concurrency, and settled."""

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
MAX_CLAIMS: Final = 4  # under way at once
TURN_SECONDS: Final = 0.002  # that a handler's runners have together before other handlers' have theirs
LAST_CLAIM_SECONDS: Final = 0.1
DONE: Final = Judged(ACK)


class Lane:
    """The jobs of one handler's topic, in this process."""

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
        self._claims: dict[asyncio.Task[None], int] = {}  # under way, and how many jobs each may bring
        self._backlog = False
        self._failures = 0
        self._waits = False  # for its topic, which is not there
        self._fault: BaseException | None = None
        self._draining = asyncio.Event()
        self._emptied: asyncio.Future[None] | None = None
        self.turn: Final = TURN_SECONDS / handler.concurrency
        self.ending = False  # whoever runs its tasks cancels them: that is no handler's doing

    def tasks(self) -> Iterator[asyncio.Task[None]]:
        """What it does, begun. None of them ends by itself, but for the claims when it is drained."""
        name = f"holdfast-{self.handler.topic}"
        yield asyncio.create_task(self._claim_on(), name=f"{name}-claims")
        yield asyncio.create_task(self._watch_time(), name=f"{name}-timeouts")
        yield asyncio.create_task(self._watch_queue(), name=f"{name}-surplus")
        for runner in self._runners:
            runner.task = asyncio.create_task(runner.run(), name=name)
            yield runner.task

    # Claims.

    async def _claim_on(self) -> None:
        """One claim waits for jobs; others go out beside it while answers are full: there may be more."""
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
            raise  # no later claim would do better: the worker ends
        except errors.HoldfastError as error:
            # What a lost answer may have leased comes back when those leases end.
            self._backlog = False
            self._failures += 1
            pause = random.uniform(0, min(CAP_SECONDS, BASE_SECONDS * 2 ** min(self._failures, 16)))  # noqa: S311
            if not isinstance(error, errors.TopicNotFound):
                log.warning("A claim of %s failed, the next is in %.1f s: %s", self.handler.topic, pause, error)
            elif not self._waits:
                self._waits = True
                log.warning("Waiting for topic %s: no topic has this name yet", self.handler.topic)
            await asyncio.sleep(pause)
        else:
            self._backlog = len(bodies) == most
            self._failures = 0
            if self._waits:
                self._waits = False
                log.info("Topic %s is there now", self.handler.topic)
            self._take(bodies)

    def _claim_ended(self, task: asyncio.Task[None]) -> None:
        del self._claims[task]
        if not task.cancelled():
            self._fault = self._fault or task.exception()  # of ours: it ends the worker
        self._wake_claims()

    def _claim(self, most: int, wait_ms: int) -> Request[tuple[list[dict[str, Any]], int | None]]:
        """A claim whose jobs stay as the answer has them."""
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
        self._ahead.came(len(taken))
        for _ in range(min(len(taken), len(self._idle))):
            self._wake(self._idle.popleft())

    def _room(self) -> int:
        """How many jobs to claim now; 0 for none. What is being settled needs no slot, but has bounds as well."""
        slots, most = self.handler.concurrency, self._ahead.most()
        working = self._running + len(self._queued) + sum(self._claims.values())
        room = min(most - working, 2 * most - len(self._held), MAX_CLAIM)
        return room if room > 0 and (working < slots or room >= min(MAX_CLAIM, most // 2)) else 0

    # Running.

    async def next(self) -> None:
        """Wait until there may be a job."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            with suppress(ValueError):  # or it has been woken
                self._idle.remove(waiting)
            raise

    def take(self, now: float) -> Taken | None:
        """The next job to run, None if there is none."""
        while self._queued:
            taken = self._queued.popleft()
            if taken.over:
                continue
            if taken.signalled is None and taken.kept(now):
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
        """The span is current in the handler, and ends when the job is judged."""
        taken.span = _trace.begin_process(self._tracer, self.handler.topic, taken.body)
        with _trace.current(taken.span):
            return await self._caller.call(taken)

    def ended(self, taken: Taken, value: Any, seconds: float) -> None:
        """A handler has returned or raised."""
        self._running -= 1
        self._ahead.busy += seconds
        self._ahead.done += 1
        if not taken.over:
            if taken.signalled is not None and isinstance(value, BaseException):
                value = self._interrupted(taken, taken.signalled)
            self._finish(taken, value)
        elif taken.span is not None:
            _trace.end_process(taken.span, "lost", "its lease was lost", None)  # unless it was judged before this
        if self._room_wanted is not None and self._room():
            self._wake_claims()

    def _finish(self, taken: Taken, value: Any) -> None:
        taken.over = True
        made, error = DONE, None
        if value is not None or taken.completes:
            if isinstance(value, BaseException) and not isinstance(value, (Retry, Dead)):
                error = value
                log.warning("Job %d of %s failed", taken.seq, self.handler.topic, exc_info=value)
                self._tell(value)
            made = judged(value, self.handler.retry, taken.body["deliveries"])
            if taken.completes:
                made = unless_committed(made)
        if taken.span is not None:
            _trace.end_process(taken.span, made.verdict.verb, made.said, error)
        self._settler.add(taken, made)

    def _tell(self, error: BaseException) -> None:
        if self._on_error is not None:
            try:
                self._on_error(self.handler.topic, error)
            except Exception:
                log.exception("on_error of the worker raised")

    def _interrupted(self, taken: Taken, why: Why) -> Any:
        """What an interruption means for the job. One that has begun has had its delivery."""
        match why:
            case "timeout":
                return Retry(reason=f"took longer than {self.handler.timeout:g} s")
            case "cancelled":
                return Judged(Verdict("nack"), "cancelled")  # which ends it, whatever tries it has left
            case "stopping" if taken.task is not None:
                return Judged(Verdict("nack", 0), "its worker stopped before the job was done")
            case "stopping" | "lost":
                return Judged(RELEASE)

    # Interrupting.

    def interrupt(self, taken: Taken, why: Why) -> None:
        """A job is not to go on. What can't be ended, as a thread, is told; what it does then no longer counts."""
        if taken.over:
            return
        if why == "lost":
            taken.over = True
            self._let_go([taken])
            if taken.completes:
                return  # by its own transaction: which fails, if it was not that which ended the lease
            log.warning("The lease of job %d of %s was lost", taken.seq, self.handler.topic)
        taken.signal(why)
        if taken.task is None:
            return
        if self._caller.interruptible(taken):
            taken.task.cancel()
        elif why in ("timeout", "stopping"):
            self._finish(taken, self._interrupted(taken, why))

    async def _watch_time(self) -> None:
        """What begins from now on has its time at least, so this looks again when the next of those that run may have
        used it up."""
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
        """What was claimed ahead of a handler that has turned slow is for others to do."""
        while True:
            await asyncio.sleep(self._ahead.every)
            if surplus := self._ahead.surplus(len(self._queued)):
                log.info("%d jobs of %s go back, as they would not begin here soon", surplus, self.handler.topic)
                self._give_back(surplus)

    # Leases.

    def running(self) -> list[tuple[str, asyncio.Task[None] | None]]:
        """The jobs that run in the event loop, by name, and their tasks."""
        if self.handler.runs != "async":
            return []
        now = [(runner.taken, runner.task) for runner in self._runners]
        return [(f"job {taken.seq} of {self.handler.topic}", task) for taken, task in now if taken is not None]

    def due(self, interval: float) -> list[Holding]:
        """Leases to keep from now on: those of jobs that are here for a while. Called in the heartbeats' thread."""
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
        """Claim nothing more, give back what has not begun, and wait until the rest is settled."""
        self._draining.set()
        self._caller.stopping.set()
        self._wake_claims()
        self._give_back(len(self._queued))
        # What a claim finds is leased: its answer is better read than lost. One that waits for jobs finds none.
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
        """Interrupt what runs, and give it back."""
        for taken in list(self._held.values()):
            self.interrupt(taken, "stopping")

    def close(self) -> None:
        """Threads that run a handler end with that."""
        for claim in self._claims:
            claim.cancel()
        self._caller.close()

    def _give_back(self, count: int) -> None:
        """The last ones of those that have not begun."""
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
