"""throughput_limit: tokens that all processes share, in PostgreSQL or in Redis, and what claims do with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from app.base.db.pool import Pools
from app.kernel.claim import limits
from app.kernel.claim.limits import LEAST_SECONDS, TokenGrant
from app.kernel.claim.redis_tokens import TIMEOUT_SECONDS, RedisBuckets
from app.kernel.claim.walk import Claimer
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, parked
from tests.queue.calls import until
from tests.topics.test_bus import Redis

MakeQueue = Callable[..., Awaitable[Policy]]
Start = Callable[..., Machine]
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


@pytest.fixture
async def buckets(server: Redis) -> AsyncIterator[Callable[[], RedisBuckets]]:
    """Makes the Redis ends of further processes."""
    made: list[RedisBuckets] = []

    def make() -> RedisBuckets:
        made.append(RedisBuckets(server.url))
        return made[-1]

    probe = make()

    async def answers() -> bool:
        found = await probe.take("probe", 1, 1_000_000)
        probe.up = True
        return found is not None

    await until(answers, "Redis answers")
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
async def bucket(
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


async def test_a_new_bucket_is_full(bucket: Callable[[int], tuple[Take, PutBack]]) -> None:
    take, _ = bucket(1000)
    assert await take(30) == TokenGrant(30, 0)
    assert (await take(1000)).tokens in range(970, 1000)
    assert (await take(1000)).wait_seconds <= 0.001


async def test_a_bucket_of_one_a_second_holds_one(bucket: Callable[[int], tuple[Take, PutBack]]) -> None:
    take, put_back = bucket(1)
    assert (await take(5)).tokens == 1
    none = await take(5)
    assert none.tokens == 0
    assert 0.8 < none.wait_seconds <= 1
    await put_back(1)
    assert (await take(1)).tokens == 1


@pytest.mark.parametrize("pause", [0.5, 1.02, 1.2])
async def test_a_bucket_fills_up_however_seldom_it_is_asked(
    bucket: Callable[[int], tuple[Take, PutBack]], pause: float
) -> None:
    """Callers that rest for longer than a second get a full second's worth each time, and never more."""
    take, put_back = bucket(20)
    assert (await take(50)).tokens == 20
    for _ in range(3):
        began = time.monotonic()
        await asyncio.sleep(pause)  # the time is what is measured
        granted = (await take(50)).tokens
        assert min(int(pause * 20), 20) <= granted <= min((time.monotonic() - began) * 20 + 1, 20)
        await put_back(granted)  # no job was there: nothing is spent
        assert (await take(50)).tokens >= granted


async def test_when_there_is_a_token_is_told_and_none_is_taken(
    place: Place, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, throughput_limit=2)
    throttle = place(machine).engine.throttle
    assert await throttle.refill(queue) == 0, "nobody has come yet"
    assert await throttle.take(queue, 2) == 2
    first = await throttle.refill(queue)
    assert 0.2 < first <= 0.5
    began = time.monotonic()
    while await throttle.refill(queue):
        await asyncio.sleep(0.005)  # the time is what is measured
    assert first - 0.1 < time.monotonic() - began < first + 0.3
    assert await throttle.take(queue, 1) == 1, "it was not taken"


async def test_what_is_put_back_fills_a_bucket_up_to_a_seconds_worth(
    bucket: Callable[[int], tuple[Take, PutBack]],
) -> None:
    take, put_back = bucket(10)
    assert (await take(1)).tokens == 1
    await put_back(1_000_000)
    assert (await take(1_000)).tokens <= 10


async def test_takers_at_once_never_take_the_same(bucket: Callable[[int], tuple[Take, PutBack]]) -> None:
    take, _ = bucket(10)
    grants = await asyncio.gather(*(take(1) for _ in range(30)))
    assert sum(grant.tokens for grant in grants) in range(10, 13)


async def test_a_claim_gets_fewer_jobs_and_no_error(
    place: Place, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, throughput_limit=2)
    place(machine)
    await machine.enqueue(queue, 50)
    assert len(await machine.claim(queue, 50)) == 2
    assert await machine.claim(queue, 50) == []
    assert machine.engine.metrics.topic(topic).throttled.value == 2
    assert machine.engine.metrics.topic(topic).claimed.value == 2


async def test_a_slow_poller_gets_the_whole_rate(
    place: Place, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, throughput_limit=20)
    place(machine)
    await machine.enqueue(queue, 60)
    got = []
    for pause in (1.02, 1.02, 0):
        got.append(len(await machine.claim(queue, 50)))
        await asyncio.sleep(pause)  # the time is what is measured
    assert got == [20, 20, 20]


async def test_who_finds_no_job_spends_no_token(place: Place, start: Start, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, throughput_limit=2)
    machines = [place(start()) for _ in range(3)]
    for _ in range(5):
        for machine in machines:
            assert await machine.claim(queue, 10) == []
    await machines[0].enqueue(queue, 5)
    assert len(await machines[1].claim(queue, 10)) == 2


async def test_who_leaves_before_the_answer_spends_none(
    place: Place, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, throughput_limit=1)
    place(machine)
    await machine.enqueue(queue, 3)

    async def leave() -> None:
        leaving.cancel()

    machine.log.after["claim"] = leave
    leaving = asyncio.create_task(machine.claim(queue))
    with pytest.raises(asyncio.CancelledError):
        await leaving
    del machine.log.after["claim"]
    await machine.engine.claims.drain()
    await machine.engine.settlements.drain()  # what was given back
    assert len(await machine.claim(queue)) == 1
    assert await machine.claim(queue) == []


@pytest.mark.alone
async def test_who_waits_for_tokens_is_woken_when_they_come_and_asks_no_more_often_than_that(
    place: Place, start: Start, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    limit, seconds = 200, 2.0
    queue = await make_queue(topic, throughput_limit=limit)
    machines = [place(start()) for _ in range(4)]
    await machines[0].enqueue(queue, int(limit * (seconds + 3)))
    stop = time.monotonic() + 0.3 + seconds

    async def work(machine: Machine) -> None:
        while (left := stop - time.monotonic()) > 0:
            await machine.claim(queue, 3, wait=left)

    await asyncio.gather(*(work(machines[n % 4]) for n in range(100)))
    await holds(pools, queue, seconds)
    rounds = (seconds + 0.3) / LEAST_SECONDS
    for machine in machines:
        assert machine.log.count("claim") < 2 * rounds
        assert machine.log.count("take_tokens") < 3 * rounds


@pytest.mark.alone
async def test_streams_keep_to_it(place: Place, start: Start, pools: Pools, topic: str, make_queue: MakeQueue) -> None:
    limit, seconds = 100, 2.0
    queue = await make_queue(topic, throughput_limit=limit)
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


async def test_who_waits_for_work_on_a_topic_with_a_limit_gets_it_at_once(
    place: Place, start: Start, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, throughput_limit=5)
    machine = place(start())
    waiting = [asyncio.create_task(machine.claim(queue, 100, wait=20)) for _ in range(3)]
    await parked(machine, queue, 3)
    looks = machine.log.count("claim")
    await asyncio.sleep(0.3)  # nobody asks meanwhile
    assert machine.log.count("claim") == looks
    await machine.enqueue(queue)
    done, _ = await asyncio.wait(waiting, timeout=1, return_when=asyncio.FIRST_COMPLETED)
    assert [len(task.result()) for task in done] == [1]
    await machine.enqueue(queue, 2)
    await asyncio.gather(*waiting)


@pytest.mark.alone
async def test_when_redis_dies_postgresql_goes_on(
    start: Start, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    limit, seconds = 200, 3.0
    queue = await make_queue(topic, throughput_limit=limit)
    redis = Redis()
    redis.start()
    ends = [RedisBuckets(redis.url) for _ in range(4)]
    try:
        machines = [start() for _ in ends]
        for machine, end in zip(machines, ends, strict=True):
            await until(lambda end=end: _answers(end), "Redis answers")  # type: ignore[misc]
            machine.engine.throttle.shared = end
        await machines[0].enqueue(queue, int(limit * (seconds + 3)))
        stop = time.monotonic() + 0.3 + seconds

        async def work(machine: Machine) -> None:
            while (left := stop - time.monotonic()) > 0:
                await machine.claim(queue, 3, wait=left)

        working = [asyncio.create_task(work(machines[n % 4])) for n in range(40)]
        await asyncio.sleep(0.3 + seconds / 2)
        assert all(machine.log.count("take_tokens") == 0 for machine in machines)
        redis.kill()
        await asyncio.gather(*working)
        assert any(machine.log.count("take_tokens") for machine in machines)
        await holds(pools, queue, seconds, least=0.75, spare=limit)  # PostgreSQL's bucket is full
        redis.start()
        await until(lambda: _all_up(ends), "Redis is back")
    finally:
        redis.kill()
        for end in ends:
            await end.stop()


async def _answers(end: RedisBuckets) -> bool:
    end.up = True
    return await end.take("probe", 1, 1_000_000) is not None


async def _all_up(ends: list[RedisBuckets]) -> bool:
    return all(end.up for end in ends)


async def test_while_redis_hangs_a_claim_waits_for_it_once(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, throughput_limit=1000)
    await machine.enqueue(queue, 50)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    hanging = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    end = RedisBuckets(f"redis://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/0")
    machine.engine.throttle.shared = end
    try:
        took = []
        for _ in range(5):
            began = time.monotonic()
            assert len(await machine.claim(queue, 2)) == 2
            took.append(time.monotonic() - began)
        assert TIMEOUT_SECONDS <= took[0] < 3 * TIMEOUT_SECONDS
        assert sum(took[1:]) < TIMEOUT_SECONDS
    finally:
        await end.stop()
        hanging.close()


async def test_a_topic_without_a_limit_has_no_bucket(machine: Machine, pools: Pools, queue: Policy) -> None:
    await machine.enqueue(queue, 5)
    await machine.claim(queue, 5)
    assert machine.log.count("take_tokens") == machine.log.count("return_tokens") == 0
