"""An open-loop HTTP client: requests fall due by a schedule, whatever the answers do.

A latency counts from when its request fell due, not from when it could be sent, and a slow answer delays no later
arrival: a stall of the service shows in every request that fell due meanwhile (no "coordinated omission"; Gil Tene's
wrk2 has the reasoning). It runs in a process of its own.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import random
import select
import selectors
import socket
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Spacing = Literal["poisson", "constant"]

SETTLING: Final = 0.1  # seconds: what fell due so shortly before the end may be out still when the time is over
TOLERANCE: Final = 0.01  # share of the arrivals before that which may be, and the rate still counts as sustained


def schedule(rate: float, seconds: float, spacing: Spacing, seed: int = 0) -> array[float]:
    """When each of `rate * seconds` arrivals falls due, in seconds from the start, ascending.

    poisson: independent of each other, as from many users; a Poisson process given its count, which is uniform draws
    in order. constant: at equal distances.
    """
    count = round(rate * seconds)
    if spacing == "constant":
        return array("d", (i / rate for i in range(count)))
    chance = random.Random(seed)
    return array("d", sorted(chance.uniform(0, seconds) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of an arrival: what a good answer contains, and the request that follows from its body, if any."""

    expect: bytes
    follow: Callable[[bytes], bytes] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Send the i-th of `requests` (in turn) at the i-th of `due`, and go through `steps` with it.

    `connections` bounds what is out at once: an arrival that finds none free waits its turn, and its latency runs.
    For `seconds` arrivals are sent; then answers are waited for, `grace` seconds at most.
    """

    port: int
    requests: Sequence[bytes]
    steps: Sequence[Step]
    due: array[float]
    connections: int
    seconds: float
    grace: float = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of every arrival: answered + failed + unanswered + unsent = scheduled."""

    scheduled: int
    settled: int  # those that fell due 0.1 s or more before the end
    seconds: float
    sent: int  # within `seconds`
    in_time: int  # answered within `seconds`
    failed: int  # another status than 2xx, an answer that is not what the step expects, a connection that broke
    unanswered: int  # sent, no whole answer when the grace was over
    unsent: int  # no connection came free in time
    last: float  # seconds from the start to the last answer in time
    latencies: array[float]  # seconds from falling due, ascending; what has no answer counts up to the end of the grace
    lateness: array[
        float
    ]  # of the generator: seconds from falling due, with a connection free, to being sent; ascending

    @property
    def arrived(self) -> float:
        """Arrivals sent a second."""
        return self.sent / self.seconds

    @property
    def answered(self) -> float:
        """Arrivals answered a second, as long as there was anything to send."""
        return self.in_time / min(self.seconds, self.last or self.seconds)

    @property
    def sustained(self) -> bool:
        """Whether what was asked for arrived and was answered, but for what had just fallen due at the end."""
        least = (1 - TOLERANCE) * self.settled
        return self.sent >= least and self.in_time >= least and not (self.failed or self.unanswered or self.unsent)


def percentile(ascending: Sequence[float], share: float) -> float:
    """By nearest rank: the smallest value that at least `share` of them do not exceed."""
    return ascending[max(math.ceil(round(share * len(ascending), 6)), 1) - 1]


def send(plan: Plan) -> Outcome:
    """Carry out a plan in another process. Blocks for its `seconds`, and the grace if need be."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (plan,))


def _run(plan: Plan) -> Outcome:
    gc.disable()  # its pauses would count as the service's
    return _Generator(plan).run()


class _Connection:
    """A socket, and what is out on it: arrival `index` in its `step`."""

    __slots__ = ("buffer", "freed", "index", "socket", "step")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.freed = 0.0  # when the answer before was there, seconds from the start
        self.index = -1
        self.step = 0

    def read(self) -> bytes | None:
        """The body of an answer that is complete now, empty if its status is not 2xx. Raises OSError at the end."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionResetError("closed by the server")
        self.buffer = whole = self.buffer + data if self.buffer else data
        end = whole.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = whole[:end].lower()
        start = head.index(b"content-length: ") + 16
        stop = head.find(b"\r\n", start)
        if len(whole) < end + 4 + int(head[start : stop if stop > 0 else end]):
            return None
        self.buffer = b""
        return whole[end + 4 :] if head[9:10] == b"2" else b""


class _Generator:
    """One loop over sockets and the clock. An event loop's timers are too coarse for it: a millisecond."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._selector = selectors.DefaultSelector()
        # In turn, so that none is idle for so long that the server closes it.
        self._free = deque(self._connect() for _ in range(plan.connections))
        self._count = sum(moment < plan.seconds for moment in plan.due)
        self._next = 0  # the first arrival that was not sent yet, due or not: they are sent in order
        self._out: set[_Connection] = set()
        self._latencies: list[float] = []
        self._lateness: list[float] = []
        self._in_time = self._failed = 0
        self._last = 0.0
        self._began = time.perf_counter()

    def run(self) -> Outcome:
        plan, due, end = self._plan, self._plan.due, self._plan.seconds
        self._began = time.perf_counter()
        while (now := self._now()) < end and (self._next < self._count or self._out):
            self._send_due()
            # Without a free connection, only an answer helps.
            until = due[self._next] if self._free and self._next < self._count else end
            self._take_answers(until - now)
        sent = self._next
        while (now := self._now()) < end + plan.grace and (self._next < self._count or self._out):
            self._send_due()
            self._take_answers(end + plan.grace - now)
        left = [*range(self._next, self._count), *(connection.index for connection in self._out)]
        self._latencies += [now - due[index] for index in left]
        return Outcome(
            scheduled=self._count,
            settled=sum(moment < end - SETTLING for moment in due),
            seconds=end,
            sent=sent,
            in_time=self._in_time,
            failed=self._failed,
            unanswered=len(self._out),
            unsent=self._count - self._next,
            last=self._last,
            latencies=array("d", sorted(self._latencies)),
            lateness=array("d", sorted(self._lateness)),
        )

    def _now(self) -> float:
        return time.perf_counter() - self._began

    def _take_answers(self, seconds: float) -> None:
        """Wait so long for answers, and take those that are there. select() counts in microseconds, epoll does not."""
        if not select.select([self._selector], [], [], max(seconds, 0))[0]:
            return
        for key, _ in self._selector.select(0):
            connection: _Connection = key.data
            try:
                body = connection.read()
            except OSError:
                if connection.socket.fileno() >= 0:  # else it broke in a send of this very round
                    self._broken(connection)
                continue
            if body is not None:
                self._answered(connection, body)

    def _answered(self, connection: _Connection, body: bytes) -> None:
        step = self._plan.steps[connection.step]
        if step.expect not in body:
            self._failed += 1
        elif step.follow is not None:
            connection.step += 1
            self._send(connection, step.follow(body))
            return
        else:
            now = self._now()
            self._latencies.append(now - self._plan.due[connection.index])
            if now <= self._plan.seconds:
                self._in_time += 1
                self._last = now
        self._release(connection)

    def _send_due(self) -> None:
        plan = self._plan
        while self._free and self._next < self._count and plan.due[self._next] <= (now := self._now()):
            connection, index = self._free.popleft(), self._next
            self._lateness.append(now - max(plan.due[index], connection.freed))
            connection.index, connection.step = index, 0
            self._next += 1
            self._out.add(connection)
            self._send(connection, plan.requests[index % len(plan.requests)])

    def _send(self, connection: _Connection, request: bytes) -> None:
        try:
            connection.socket.sendall(request)
        except OSError:
            self._broken(connection)

    def _release(self, connection: _Connection) -> None:
        self._out.discard(connection)
        connection.freed = self._now()
        self._free.append(connection)

    def _connect(self) -> _Connection:
        connection = _Connection(self._plan.port)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        return connection

    def _broken(self, connection: _Connection) -> None:
        """Put a new connection in its place. Raises OSError if the service takes none any more."""
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection in self._out:
            self._out.remove(connection)
            self._failed += 1
        else:
            self._free.remove(connection)
        self._release(self._connect())
