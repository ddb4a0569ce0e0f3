"""How many jobs a worker holds that it can't begin yet, and what becomes of them when its handler turns slow."""

from __future__ import annotations

import asyncio

from holdfast import AsyncContext, AsyncTopic, Queue, Record
from holdfast._worker.ahead import MAX_AHEAD, Ahead
from tests.sdk.proxy import Proxy
from tests.sdk.workers import fact, working

LEASE_MS = 30_000


def ended(ahead: Ahead, jobs: int, seconds: float) -> int:
    """So many have ended, each after so long; how many are held from now on."""
    ahead.busy += jobs * seconds
    ahead.done += jobs
    return ahead.most()


def test_a_quarter_of_a_second_of_work_is_held_beside_what_runs() -> None:
    assert Ahead(10, LEASE_MS).most() == 10, "before it is known how long a job takes"
    assert ended(Ahead(10, LEASE_MS), 100, 0.01) == 10 + 250
    assert ended(Ahead(10, LEASE_MS), 100, 0.000_01) == 10 + MAX_AHEAD
    assert ended(Ahead(10, LEASE_MS), 100, 10) == 10
    assert ended(Ahead(10, 100), 100, 0.01) == 10 + 25, "or of a lease"


def test_what_waited_at_the_last_look_goes_back_but_for_what_is_begun_in_that_time() -> None:
    ahead = Ahead(10, LEASE_MS)
    ended(ahead, 1_000, 0.001)
    for waiting in (3_000, 500, 20, 0, 3_000):
        ahead.add_claimed(3_000)
        assert ahead.surplus(waiting) == 0, "it is always others"
    assert ahead.surplus(2_000) == 1_000, "1,000 have begun, and 1,000 will"
    assert ahead.most() == 10 + 125, "1,000 a look are 125 in a quarter of a second"
    ahead.add_claimed(100)
    assert ahead.surplus(900) == 700, "200 have begun"
    assert ahead.surplus(200) == 200, "it is stuck"
    assert ended(ahead, 1_000, 0.000_01) == 10, "what else there is may be quick"
    for came in (6_000, 60_000):
        ahead.add_claimed(came)
        assert ahead.surplus(0) == 0
        assert ahead.most() == 10 + min(came // 8, MAX_AHEAD), "it goes on"


async def test_jobs_held_ahead_of_a_handler_that_turns_slow_go_to_other_workers(
    queue: AsyncTopic, proxy: Proxy, handlers: Queue
) -> None:
    go, begun = asyncio.Event(), 0
    others: list[int] = []
    deliveries: set[int] = set()
    async with Queue(proxy.url) as slow:

        @slow.handler(queue.name, concurrency=2)
        async def turns_slow(number: int) -> None:
            nonlocal begun
            if number >= 100:  # what is quick lets the worker claim ahead
                begun += 1
                await go.wait()

        @handlers.handler(queue.name, concurrency=4)
        async def quick(number: int, context: AsyncContext) -> None:
            others.append(number)
            deliveries.add(context.received_count)

        grouped = [Record(data=number, group=str(number % 50)) for number in range(100, 200)]
        await queue.enqueue_many([*range(100), *grouped])
        async with working(slow):
            await fact(lambda: begun == 2)
            async with working(handlers):
                await fact(lambda: len(others) >= 96)
                assert proxy.count("POST /nack") >= 1
                go.set()
                await fact(lambda: begun + len(others) == 100)
    assert deliveries == {1}, "who never began a job has had no delivery"
    assert [number for number in others if number < 150 and number + 50 in others[: others.index(number)]] == []
