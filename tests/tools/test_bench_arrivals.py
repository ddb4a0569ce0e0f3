"""The open-loop client, against servers whose faults are known, and against the service."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import pytest

from app.kernel.topics.policy import Policy
from tests.conftest import Running
from tools.bench.arrivals import Outcome, Plan, Step, percentile, schedule, send
from tools.bench.singles import VERBS, prepare, request

PING = request("/ping", b"{}")
Answering = Callable[[int], bytes | None]  # from a request's number, from 1; None closes the connection


def _whole(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def _quick(_: int) -> bytes:
    return _whole(b"good")


@asynccontextmanager
async def _server(answer: Answering) -> AsyncIterator[int]:
    """Answers requests, one after the other over all connections; what `answer` sleeps stalls them all. Its port."""
    numbers = itertools.count(1)

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def data_received(self, data: bytes) -> None:
            body = answer(next(numbers))
            if body is None:
                self.transport.close()
            else:
                self.transport.write(body)

    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _sent(answer: Answering, due: array[float], seconds: float, connections: int, grace: float = 5) -> Outcome:
    async with _server(answer) as port:
        plan = Plan(port, [PING], [Step(b"good")], due, connections, seconds, grace)
        return await asyncio.to_thread(send, plan)


def _adds_up(outcome: Outcome) -> bool:
    answered = len(outcome.latencies) - outcome.unanswered - outcome.unsent
    return answered + outcome.failed + outcome.unanswered + outcome.unsent == outcome.scheduled


@pytest.mark.parametrize("connections", [2, 128])
async def test_a_stall_shows_in_every_request_that_fell_due_meanwhile(connections: int) -> None:
    """Coordinated omission: a client that waits for its answers would see the stall `connections` times at most."""

    def stalls_once(number: int) -> bytes:
        if number == 400:
            time.sleep(0.2)
        return _whole(b"good")

    outcome = await _sent(stalls_once, schedule(500, 2, "constant"), 2, connections)
    assert (outcome.scheduled, outcome.failed, outcome.unanswered, outcome.unsent) == (1000, 0, 0, 0)
    assert percentile(outcome.latencies, 1) >= 0.19
    assert percentile(outcome.latencies, 0.99) >= 0.15
    # 500 a second over 200 ms: a hundred, of which three quarters still had more than 50 ms to wait.
    assert sum(latency > 0.05 for latency in outcome.latencies) >= 70


async def test_a_rate_that_is_met_counts_as_sustained() -> None:
    outcome = await _sent(_quick, schedule(200, 2, "poisson"), 2, 32)
    assert outcome.sustained
    # What falls due in the last milliseconds may leave after the end, on a busy machine.
    assert 190 <= outcome.arrived <= 200
    assert _adds_up(outcome)


async def test_a_rate_that_is_not_met_is_said_and_nothing_is_dropped() -> None:
    def slow(_: int) -> bytes:
        time.sleep(0.02)
        return _whole(b"good")

    outcome = await _sent(slow, schedule(400, 1, "constant"), 1, 4, grace=0.2)
    assert not outcome.sustained
    assert outcome.scheduled == 400
    assert outcome.arrived < 100
    assert outcome.unsent > 200
    assert _adds_up(outcome)
    # What was never sent counts with the time that it has waited.
    assert percentile(outcome.latencies, 1) >= 1
    assert len(outcome.latencies) == 400


async def test_answers_that_are_not_good_and_broken_connections_count_as_failed() -> None:
    def faulty(number: int) -> bytes | None:
        match number % 10:
            case 3:
                return _whole(b"good", 503)
            case 6:
                return _whole(b"bad")
            case 9:
                return None
            case _:
                return _whole(b"good")

    outcome = await _sent(faulty, schedule(200, 1, "constant"), 1, 8)
    assert (outcome.scheduled, outcome.failed, outcome.unsent) == (200, 60, 0)
    assert not outcome.sustained
    assert _adds_up(outcome)


async def test_due_at_once_is_a_closed_loop() -> None:
    """Each connection sends the next when it has its answer, until the time is over."""
    outcome = await _sent(_quick, array("d", [0.0] * 100_000), 0.3, 4, grace=0)
    assert 0 < outcome.sent < 100_000
    assert outcome.in_time <= outcome.sent <= outcome.in_time + 4


@pytest.mark.parametrize("verb", VERBS)
async def test_the_requests_of_each_verb_are_what_the_service_takes(
    verb: str, service: Running, topic: str, make_queue: Callable[..., Awaitable[Policy]]
) -> None:
    await make_queue(topic)
    port = urlsplit(service.url).port or 0
    due = schedule(50, 0.5, "poisson")
    requests, steps = await asyncio.to_thread(prepare, verb, port, topic, 256, len(due))
    outcome = await asyncio.to_thread(send, Plan(port, requests, steps, due, 8, 0.5))
    assert (outcome.failed, outcome.unanswered, outcome.unsent) == (0, 0, 0)
    assert len(outcome.latencies) == 25


def test_schedules() -> None:
    constant = schedule(100, 2, "constant")
    assert len(constant) == 200
    assert constant[-1] == pytest.approx(1.99)
    poisson = schedule(1000, 10, "poisson", seed=1)
    assert len(poisson) == 10_000
    assert 0 <= poisson[0] <= poisson[-1] <= 10
    gaps = [later - earlier for earlier, later in itertools.pairwise(poisson)]
    assert min(gaps) >= 0
    # The gaps of a Poisson process deviate as much as they last; equal ones would not deviate at all.
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1, abs=0.05)
    assert schedule(1000, 10, "poisson", seed=2) != poisson


def test_percentiles_by_nearest_rank() -> None:
    values = [float(i) for i in range(1, 1001)]
    assert [percentile(values, share) for share in (0.5, 0.99, 0.999, 1)] == [500, 990, 999, 1000]
    assert percentile([7.0], 0.5) == 7
