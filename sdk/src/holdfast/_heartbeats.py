"""Extends leases from a separate thread with its own connection, so that a blocked event loop loses no lease. The
thread also detects blocked event loops and logs where."""

from __future__ import annotations

import asyncio
import asyncio.base_events
import asyncio.runners
import heapq
import itertools
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import httpx

from holdfast import errors
from holdfast._attempts import Options
from holdfast._client import SyncTopic
from holdfast._resources.leases import Held
from holdfast._resources.topic import Topic
from holdfast._transport import LIMITS, Account, SyncSender

log: Final = logging.getLogger("holdfast")

MAX_BATCH: Final = 1_000  # seqs in an extend
PATIENCE_SECONDS: Final = 5.0  # for one heartbeat, if the leases last that long
BLOCKED_SECONDS: Final = 1.0
MAX_NAMED: Final = 5

_OURS: Final = str(Path(__file__).parent)
_LOOPS: Final = {module.__file__ for module in (asyncio.events, asyncio.base_events, asyncio.runners)}

# Returns the jobs of a blocked loop, given its current task, as the end of "has been blocked for 1.0 s".
Culprit: TypeAlias = Callable[[asyncio.Task[Any] | None], str]


@dataclass(eq=False, slots=True)
class Holding:
    """A lease that heartbeats extend. Times are of the monotonic clock.

    `lost` and `cancelled` are called in the heartbeats' thread, each at most once: `lost` with LeaseLost when the lease
    has ended, `cancelled` when the job was cancelled. `settling`: an ack or nack is in progress, which ends the
    lease."""

    topic: str
    lease: Held
    lease_ms: int
    interval: float
    deadline: float
    lost: Callable[[errors.LeaseLost], None]
    cancelled: Callable[[], None] | None = None
    settling: bool = False
    released: bool = field(default=False, init=False)
    cancel_reported: bool = field(default=False, init=False)


@dataclass(slots=True)
class _Feed:
    """A source of leases, and when to ask it next."""

    every: float
    find: Callable[[], Sequence[Holding]]
    at: float


class Heartbeats:
    """The leases that a process extends. The thread starts with the first lease. It is a daemon."""

    def __init__(self, account: Account, http: httpx.Client | None = None) -> None:
        self._owns_http = http is None
        self._http = http or httpx.Client(limits=LIMITS)
        self._account = account
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Holding]] = []
        self._order = itertools.count()
        self._loops: dict[asyncio.AbstractEventLoop, _Watched] = {}
        self._feeds: list[_Feed] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def hold(
        self,
        topic: str,
        lease: Held,
        *,
        lease_ms: int,
        interval: float,
        lost: Callable[[errors.LeaseLost], None],
        cancelled: Callable[[], None] | None = None,
        deadline: float | None = None,
    ) -> Holding:
        """Extend a lease by `lease_ms` every `interval` seconds. `deadline`: when it ends now, by time.monotonic();
        default: in `lease_ms`."""
        now = time.monotonic()
        until = now + lease_ms / 1000 if deadline is None else deadline
        holding = Holding(topic, lease, lease_ms, interval, until, lost, cancelled)
        with self._changed:
            if self._closed:
                raise RuntimeError("these heartbeats have been closed")
            self._schedule(holding, now + interval)
            self._start()
        return holding

    def feed(self, every: float, find: Callable[[], Sequence[Holding]]) -> None:
        """Call `find` in the thread every `every` seconds for further leases. For callers with many leases, most of
        which are short. `find` must not block."""
        with self._changed:
            if self._closed:
                raise RuntimeError("these heartbeats have been closed")
            self._feeds.append(_Feed(every, find, time.monotonic() + every))
            self._start()

    def release(self, holding: Holding) -> None:
        """Stop extending a lease. No more callbacks are called for it, except one that is running."""
        with self._changed:
            holding.released = True

    def watch(self, loop: asyncio.AbstractEventLoop, culprit: Culprit, blocked_after: float = BLOCKED_SECONDS) -> None:
        """Log a warning when the calling thread's event loop is blocked for `blocked_after` seconds. `culprit` is
        called in the heartbeats' thread."""
        with self._changed:
            self._loops.setdefault(loop, _Watched(loop, threading.get_ident(), culprit, blocked_after))
            self._start()

    def close(self) -> None:
        """Stop all heartbeats, and wait for the current one."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._owns_http:
            self._http.close()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-heartbeats", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _schedule(self, holding: Holding, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._order), holding))

    def _run(self) -> None:
        while (due := self._next()) is not None:
            for batch in _batches(due):
                try:
                    self._beat(batch)
                except Exception:
                    # An internal error must not end the other leases. These are retried.
                    log.exception("A heartbeat failed with an unexpected error")
                    self._again(batch)

    def _next(self) -> list[Holding] | None:
        """Wait for leases that are due. None once closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                pause = min((watched.look(now) for watched in self._loops.values()), default=3600.0)
                self._loops = {loop: watched for loop, watched in self._loops.items() if not loop.is_closed()}
                for feed in self._feeds:
                    if feed.at <= now:
                        feed.at = now + feed.every
                        for holding in feed.find():
                            self._schedule(holding, now)
                    pause = min(pause, feed.at - now)
                due = []
                # Include leases that are due soon, to extend them in the same request.
                while self._due and self._due[0][0] - self._due[0][2].interval / 10 <= now:
                    holding = heapq.heappop(self._due)[2]
                    if not holding.released:
                        due.append(holding)
                if due:
                    return due
                if self._due:
                    head = self._due[0]
                    pause = min(pause, head[0] - head[2].interval / 10 - now)
                self._changed.wait(max(0.001, pause))
            return None

    def _beat(self, batch: Sequence[Holding]) -> None:
        began = time.monotonic()
        first = batch[0]
        left = min(holding.deadline for holding in batch) - began
        patience = min(PATIENCE_SECONDS, max(left, min(holding.interval for holding in batch), 0.05))
        options = Options(timeout=patience, attempt_timeout=patience, connect_timeout=patience, retries=0)
        topic: SyncTopic = Topic(SyncSender(self._http, self._account, options), first.topic)
        try:
            extended = topic.extend(*(holding.lease for holding in batch), lease_ms=first.lease_ms)
        except (errors.NotFound, errors.NotAQueue) as error:
            for holding in batch:
                self._lose(holding, error)
        except errors.HoldfastError as error:
            self._after_failure(batch, error)
        else:
            skipped, cancelled = set(extended.skipped), set(extended.cancelled)
            for holding in batch:
                if holding.lease.seq in skipped:
                    self._lose(holding, None)
                    continue
                holding.deadline = began + holding.lease_ms / 1000
                if holding.lease.seq in cancelled:
                    self._report_cancelled(holding)
            self._again([holding for holding in batch if holding.lease.seq not in skipped])

    def _after_failure(self, batch: Sequence[Holding], error: errors.HoldfastError) -> None:
        """Retry a failed heartbeat until the leases have ended."""
        now = time.monotonic()
        alive = [holding for holding in batch if now < holding.deadline]
        for holding in batch:
            if now >= holding.deadline:
                self._lose(holding, error)
        if alive:
            log.warning(
                "A heartbeat for %d jobs of %s failed and will be retried: %s", len(alive), alive[0].topic, error
            )
        self._again(alive, sooner=True)

    def _again(self, batch: Sequence[Holding], *, sooner: bool = False) -> None:
        now = time.monotonic()
        with self._changed:
            for holding in batch:
                after = holding.interval
                if sooner:
                    after = min(1.0, after / 4, max(0.01, holding.deadline - now))
                self._schedule(holding, now + after)

    def _lose(self, holding: Holding, error: Exception | None) -> None:
        with self._changed:
            silent = holding.released or holding.settling
            holding.released = True
        if not silent:
            lost = errors.LeaseLost(str(holding.lease.seq), reason=error)
            _call(lambda: holding.lost(lost))

    def _report_cancelled(self, holding: Holding) -> None:
        with self._changed:
            silent = holding.released or holding.settling or holding.cancel_reported
            holding.cancel_reported = True
        if not silent and holding.cancelled is not None:
            _call(holding.cancelled)


def _batches(due: Sequence[Holding]) -> list[list[Holding]]:
    """Group leases into requests. A seq with two leases, an old one and a new one, goes into two requests."""
    batches: dict[tuple[str, str, int, int], list[Holding]] = {}
    seen: dict[tuple[str, int], int] = {}
    for holding in due:
        again = seen[holding.topic, holding.lease.seq] = seen.get((holding.topic, holding.lease.seq), -1) + 1
        batches.setdefault((holding.topic, holding.lease.node, holding.lease_ms, again), []).append(holding)
    return [batch[at : at + MAX_BATCH] for batch in batches.values() for at in range(0, len(batch), MAX_BATCH)]


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        log.exception("A callback of the heartbeats failed")


class _Watched:
    """An event loop that is checked for being blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int, culprit: Culprit, blocked_after: float) -> None:
        self._loop = loop
        self._thread = thread
        self._culprit = culprit
        self._after = blocked_after
        self._asked: float | None = None
        self._reported = False

    def look(self, now: float) -> float:
        """Check the loop. Returns the seconds until the next check."""
        if self._asked is None:
            self._asked = now
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                return 3600.0  # it is closed
        elif now - self._asked >= self._after and not self._reported:
            self._reported = True
            frame = sys._current_frames().get(self._thread)
            stack = stack_of(frame) if frame else "(its thread has ended)"
            by = self._culprit(asyncio.current_task(self._loop))
            log.warning("The event loop has been blocked for %.1f s%s:\n%s", now - self._asked, by, stack)
        return self._after / 2

    def _answer(self) -> None:
        self._asked = None
        self._reported = False


def stack_of(frame: FrameType) -> str:
    """Format a stack without the frames of the event loop and of this package that call the user's code."""
    frames = list(traceback.walk_stack(frame))[::-1]
    begin = max((at + 1 for at, (one, _) in enumerate(frames) if one.f_code.co_filename in _LOOPS), default=0)
    while begin < len(frames) and frames[begin][0].f_code.co_filename.startswith(_OURS):
        begin += 1
    return "".join(traceback.StackSummary.extract(iter(frames[begin:] or frames)).format())


def culprits(jobs: Sequence[tuple[str, asyncio.Task[Any] | None]], task: asyncio.Task[Any] | None) -> str:
    """Describe the job that `task` runs, or all jobs if it runs none. `jobs`: names and their tasks."""
    for name, its in jobs:
        if its is task:
            return f" by {name}"
    names = [name for name, _ in jobs]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f" while these ran: {', '.join(names[:MAX_NAMED])}{more}" if names else ""
