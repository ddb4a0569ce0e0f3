"""throughput_limit: tokens that all processes share, in PostgreSQL or in Redis, and what claims do with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import pytest

from app.base.db.pool import Pools
from app.kernel.claim import limits, redis_tokens
from app.kernel.claim.limits import LEAST_SECONDS, TokenGrant
from app.kernel.claim.redis_tokens import RedisBuckets
from app.kernel.claim.walk import Claimer
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start, parked
from tests.queue.calls import until
from tests.topics.test_bus import Redis

Take = Callable[[int], Awaitable[TokenGrant]]
PutBack = Callable[[int], Awaitable[None]]
Place = Callable[[Machine], Machine]

# Of the jobs that were handed out, those of the last $2 seconds before the last of all.
HANDED_OUT = """
WITH claimed AS (SELECT at FROM holdfast.lease_events WHERE topic = $1 AND event = 'claimed')
SELECT count(*) FROM claimed WHERE at > (SELECT max(at) FROM claimed) - $2::float8 * interval '1 s'
"""


async def holds(pools: Pools, policy: Policy, seconds: float, *, least: float = 0.95, spare: float = 0) -> None:
    """The limit held within five per cent over the last so many seconds; `spare` jobs more are allowed."""
    expected = policy.config.throughput_limit * seconds
    handed_out = await pools.rest.fetchval(HANDED_OUT, policy.topic.name, seconds)
    assert least * expected <= handed_out <= 1.05 * expected + spare, f"{handed_out} of {expected}"


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    redis = Redis()
    redis.start()
    yield redis
    redis.kill()


async def answers(end: RedisBuckets) -> bool:
    found = await end.take("probe", 1, 1_000_000)
    end.up = True
    return found is not None


@pytest.fixture
async def buckets(server: Redis, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], RedisBuckets]]:
    """Makes the Redis ends of further processes."""
    monkeypatch.setattr(redis_tokens, "TIMEOUT_SECONDS", 10.0)  # whether it is there is tested below
    made: list[RedisBuckets] = []

    def make() -> RedisBuckets:
        made.append(RedisBuckets(server.url))
        return made[-1]

    await until(partial(answers, make()), "Redis answers")
    yield make
    for bucket in made:
        await bucket.stop()


@pytest.fixture(params=["postgresql", "redis"])
def place(request: pytest.FixtureRequest, buckets: Callable[[], RedisBuckets]) -> Place:
    """Where the tokens of a machine are kept, one place after the other."""

    def keep(machine: Machine) -> Machine:
        if request.param == "redis":
            machine.engine.throttle.shared = buckets()
        return machine

    return keep


@pytest.fixture(params=["postgresql", "redis"])
def bucket(
    request: pytest.FixtureRequest, buckets: Callable[[], RedisBuckets], pools: Pools, queue: Policy
) -> Callable[[int], tuple[Take, PutBack]]:
    """A bucket that earns so many a second, in each place: how to take from it, and how to put back."""

    def of(per_second: int) -> tuple[Take, PutBack]:
        topic, db, redis, key = queue.topic, pools.hot_async, buckets(), f"test:{queue.topic.name}"

        async def take(wanted: int) -> TokenGrant:
            if request.param == "postgresql":
                return await limits.take_tokens(db, topic, wanted, per_second)
            grant = await redis.take(key, wanted, per_second)
            assert grant is not None
            return grant

        async def put_back(count: int) -> None:
            if request.param == "postgresql":
                await limits.return_tokens(db, topic, count, per_second)
            else:
                await redis.put_back(key, count, per_second)

        return take, put_back

    return of


async def test_a_new_bucket_is_full_and_holds_a_seconds_worth(bucket: Callable[[int], tuple[Take, PutBack]]) -> None:
    take, put_back = bucket(1)
    assert (await take(5)).tokens == 1
    none = await take(5)
    assert none.tokens == 0
    assert 0.1 < none.wait_seconds <= 1
    await put_back(1_000_000)
    assert (await take(1_000)).tokens == 1


@pytest.mark.parametrize("pause", [0.5, pytest.param(1.02, marks=pytest.mark.slow), 1.2])
async def test_a_bucket_fills_up_however_seldom_it_is_asked(
    bucket: Callable[[int], tuple[Take, PutBack]], pause: float
) -> None:
    """Callers that rest for longer than a second get a full second's worth each time, and never more."""
    take, put_back = bucket(20)
    assert (await take(50)).tokens == 20
    for _ in range(2):
        began = time.monotonic()
        await asyncio.sleep(pause)  # the time is what is measured
        granted = (await take(50)).tokens
        assert min(int(pause * 20), 20) <= granted <= min((time.monotonic() - began) * 20 + 1, 20)
        await put_back(granted)  # no job was there: nothing is spent
        assert (await take(50)).tokens >= granted


async def test_takers_at_once_never_take_the_same(bucket: Callable[[int], tuple[Take, PutBack]]) -> None:
    take, _ = bucket(10)
    began = time.monotonic()
    grants = await asyncio.gather(*(take(1) for _ in range(30)))
    assert 10 <= sum(grant.tokens for grant in grants) <= 11 + (time.monotonic() - began) * 10


async def test_when_there_is_a_token_is_told_and_none_is_taken(place: Place, machine: Machine, make: Make) -> None:
    queue = await make(throughput_limit=2)
    throttle = place(machine).engine.throttle
    assert await throttle.refill(queue) == 0, "nobody has come yet"
    assert await throttle.take(queue, 2) == 2
    began = time.monotonic()
    first = await throttle.refill(queue)
    assert 0 <= first <= 0.5
    while await throttle.refill(queue):
        await asyncio.sleep(0.005)
    assert time.monotonic() - began > first - 0.1
    assert await throttle.take(queue, 1) == 1, "it was not taken"


async def test_a_claim_gets_fewer_jobs_and_no_error(place: Place, machine: Machine, make: Make, topic: str) -> None:
    queue = await make(throughput_limit=2)
    place(machine)
    await machine.enqueue(queue, 50)
    assert [len(await machine.claim(queue, 50)) for _ in range(2)] == [2, 0]
    numbers = machine.engine.metrics.topic(topic)
    assert (numbers.throttled.value, numbers.claimed.value) == (2, 2)
    await asyncio.sleep(1.05)  # a slow poller gets the whole rate
    assert len(await machine.claim(queue, 50)) == 2


async def test_who_gets_no_job_spends_no_token(place: Place, start: Start, make: Make) -> None:
    """Since there is none, or since the caller leaves before the answer."""
    queue = await make(throughput_limit=2)
    machines = [place(start()) for _ in range(3)]
    for machine in machines * 3:
        assert await machine.claim(queue, 10) == []
    await machines[0].enqueue(queue, 5)
    await machines[1].leave(asyncio.create_task(machines[1].claim(queue, 10)))
    assert len(await machines[1].claim(queue, 10)) == 2


async def test_who_waits_for_work_on_a_topic_with_a_limit_gets_it_at_once(
    place: Place, start: Start, make: Make
) -> None:
    queue = await make(throughput_limit=5)
    machine = place(start())
    waiting = [asyncio.create_task(machine.claim(queue, 100, wait=30)) for _ in range(3)]
    await parked(machine, queue, 3)
    looks = machine.log.count("claim")
    await asyncio.sleep(0.3)  # nobody asks meanwhile
    assert machine.log.count("claim") == looks
    for _ in range(3):
        await machine.enqueue(queue)
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        [found] = [task for task in done if task in waiting]
        assert len(found.result()) == 1
        waiting.remove(found)


async def working(machines: list[Machine], queue: Policy, workers: int, seconds: float) -> None:
    """So many workers ask these processes for jobs, three at a time, for so long."""
    stop = time.monotonic() + seconds

    async def work(machine: Machine) -> None:
        while (left := stop - time.monotonic()) > 0:
            await machine.claim(queue, 3, wait=left)

    await asyncio.gather(*(work(machines[n % len(machines)]) for n in range(workers)))


async def test_who_waits_for_tokens_is_woken_when_they_come_and_asks_no_more_often_than_that(
    place: Place, start: Start, pools: Pools, make: Make
) -> None:
    """However many wait. That the rate is exact is for the slow tests."""
    limit, seconds = 200, 1.0
    queue = await make(throughput_limit=limit)
    machines = [place(start()) for _ in range(4)]
    await machines[0].enqueue(queue, limit * 3)
    began = time.monotonic()
    await working(machines, queue, 100, seconds)
    took = time.monotonic() - began
    handed_out = await pools.rest.fetchval(HANDED_OUT, queue.topic.name, 3600)
    assert limit < handed_out <= limit * (1 + took) * 1.05
    for machine in machines:
        assert machine.log.count("claim") < 2 * took / LEAST_SECONDS
        assert machine.log.count("take_tokens") < 3 * took / LEAST_SECONDS


@pytest.mark.slow
@pytest.mark.alone
async def test_the_limit_holds_within_five_per_cent(place: Place, start: Start, pools: Pools, make: Make) -> None:
    limit, seconds = 200, 2.0
    queue = await make(throughput_limit=limit)
    machines = [place(start()) for _ in range(4)]
    await machines[0].enqueue(queue, int(limit * (seconds + 3)))
    await working(machines, queue, 100, seconds + 0.3)
    await holds(pools, queue, seconds)


@pytest.mark.slow
@pytest.mark.alone
async def test_streams_keep_to_it(place: Place, start: Start, pools: Pools, make: Make) -> None:
    limit, seconds = 100, 2.0
    queue = await make(throughput_limit=limit)
    machines = [place(start()) for _ in range(2)]
    await machines[0].enqueue(queue, int(limit * (seconds + 3)))

    async def follow(machine: Machine) -> None:
        streams = machine.engine.streams
        stream = streams.open(Claimer(queue, "follower", 1_000, 60_000))
        try:
            while True:
                await streams.next(stream)
        finally:
            await streams.close(stream)

    following = [asyncio.create_task(follow(machine)) for machine in machines]
    await asyncio.wait(following, timeout=seconds + 0.5)
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    await holds(pools, queue, seconds)


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    redis = Redis()
    redis.start()
    yield redis
    redis.kill()


@pytest.mark.parametrize("seconds", [0.6, pytest.param(3.0, marks=[pytest.mark.slow, pytest.mark.alone])])
async def test_when_redis_dies_postgresql_goes_on(
    seconds: float, start: Start, make: Make, pools: Pools, own_redis: Redis
) -> None:
    limit = 200 if seconds > 1 else 50
    queue = await make(throughput_limit=limit)
    ends = [RedisBuckets(own_redis.url) for _ in range(4)]
    machines = [start() for _ in ends]

    async def all_up() -> bool:
        return all(end.up for end in ends)

    for machine, end in zip(machines, ends, strict=True):
        await until(partial(answers, end), "Redis answers")
        machine.engine.throttle.shared = end
    await machines[0].enqueue(queue, int(limit * (seconds + 4)))
    began = time.monotonic()
    await working(machines, queue, 40, seconds / 2)
    assert all(machine.log.count("take_tokens") == 0 for machine in machines)
    own_redis.kill()
    await working(machines, queue, 40, seconds)
    assert any(machine.log.count("take_tokens") for machine in machines)
    if seconds > 1:
        took = time.monotonic() - began  # more than it should, where the machine does other things
        await holds(pools, queue, took, least=0.75, spare=2 * limit)  # both buckets were full
    own_redis.start()
    await until(all_up, "Redis is back")
    for end in ends:
        await end.stop()


async def test_while_redis_hangs_a_claim_waits_for_it_once(
    machine: Machine, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_tokens, "RETRY_SECONDS", 600.0)
    queue = await make(throughput_limit=1000)
    await machine.enqueue(queue, 50)
    asked = 0

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    hanging = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    end = RedisBuckets(f"redis://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/0")
    machine.engine.throttle.shared = end
    for n in range(5):
        assert len(await machine.claim(queue, 2)) == 2
        assert not end.up
        assert machine.log.count("take_tokens") == n + 1
    await end.stop()
    hanging.close()
    assert asked == 1


async def test_a_topic_without_a_limit_has_no_bucket(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 5)
    await machine.claim(queue, 5)
    assert machine.log.count("take_tokens") == machine.log.count("return_tokens") == 0
