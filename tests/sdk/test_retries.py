"""What a client tries again, and when it stops: against the service through a network that fails, and by the clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast import AsyncClient, AsyncTopic, Client, Options, Record, TopicConfig, errors
from holdfast._attempts import Attempts, Lost
from holdfast._wire import Repeat, Request
from tests.conftest import Running
from tests.sdk.proxy import Proxy


async def test_an_enqueue_whose_answer_is_lost_is_written_once(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.lose(f"POST /{queue.name}")
    async with AsyncClient(proxy.url) as client:
        enqueued = await client.topic(queue.name).enqueue("once")
    assert proxy.count(f"POST /{queue.name}") == 2
    assert [(job.seq, job.data) async for job in queue.jobs()] == [(enqueued.seq, "once")]


async def test_a_batch_whose_answer_is_lost_has_the_seqs_of_its_first_try(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.lose(f"POST /{queue.name}")
    async with AsyncClient(proxy.url) as client:
        appended = await client.topic(queue.name).enqueue_many([1, Record(data=2, tag="t"), b"3"])
    assert appended.deduped
    assert [(job.seq, job.data) async for job in queue.jobs(order="oldest")] == list(
        zip(appended.seqs, [1, 2, b"3"], strict=True)
    )


async def test_the_sync_client_retries_the_same_way(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.lose(f"POST /{queue.name}")

    def enqueue() -> int:
        with Client(proxy.url) as client:
            return client.topic(queue.name).enqueue("once").seq

    seq = await asyncio.to_thread(enqueue)
    assert [job.seq async for job in queue.jobs()] == [seq]


async def test_a_claim_whose_answer_is_lost_is_not_repeated(queue: AsyncTopic, proxy: Proxy) -> None:
    await queue.enqueue_many([1, 2])
    proxy.lose("POST /claim")
    async with AsyncClient(proxy.url) as client:
        with pytest.raises(errors.APIConnectionError):
            await client.topic(queue.name).claim()
    assert proxy.count("POST /claim") == 1


async def test_an_ack_whose_answer_is_lost_says_that_it_was_repeated(queue: AsyncTopic, proxy: Proxy) -> None:
    await queue.enqueue_many([1, 2])
    one, two = (await queue.claim(max=2)).jobs
    async with AsyncClient(proxy.url) as client:
        topic = client.topic(queue.name)
        proxy.lose("POST /ack")
        acked = await topic.ack(one)
        assert (acked.acked, acked.skipped, acked.repeated) == (0, (one.seq,), True)
        proxy.lose("POST /ack")
        acked = await topic.ack(two, results=["done"])
        assert (acked.acked, acked.skipped, acked.repeated) == (1, (), True), "with a result the service remembers"
        assert (await topic.ack(two)).repeated is False
    assert [job async for job in queue.jobs()] == []


async def test_a_service_that_is_slow_is_a_timeout(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.delay("POST /claim", 30)
    async with AsyncClient(proxy.url, attempt_timeout=0.2) as client:
        began = time.monotonic()
        with pytest.raises(errors.APITimeoutError) as caught:
            await client.topic(queue.name).claim()
    assert time.monotonic() - began < 5
    assert isinstance(caught.value, TimeoutError)


async def test_a_wait_counts_beyond_the_timeout(queue: AsyncTopic) -> None:
    async with AsyncClient(queue._sender.account.base_url, timeout=0.4, attempt_timeout=0.4) as client:
        claimed = await client.topic(queue.name).claim(wait_ms=1_000)
    assert claimed.jobs == ()


async def test_a_deletion_is_waited_for(service: Running, queue: AsyncTopic) -> None:
    """It goes through all that a topic holds, and here somebody holds a job of it."""
    seq = (await queue.enqueue({})).seq
    async with (
        AsyncClient(service.url, timeout=0.5, attempt_timeout=0.2, retries=0) as client,
        service.context.pools.rest.acquire() as db,
    ):
        holding = db.transaction()
        await holding.start()
        await db.fetch("SELECT 1 FROM holdfast.jobs WHERE topic = $1 AND seq = $2 FOR UPDATE", queue.name, seq)
        deleting = asyncio.create_task(client.topic(queue.name).delete())
        await asyncio.sleep(0.7)
        assert not deleting.done()
        await holding.rollback()
        assert (await deleting).deleted


async def test_a_repeat_follows_a_try_that_took_too_long(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.delay(f"GET /{queue.name}", 30)
    async with AsyncClient(proxy.url, attempt_timeout=0.3) as client:
        assert (await client.topic(queue.name).get()).topic == queue.name
    assert proxy.count(f"GET /{queue.name}") == 2


async def test_a_connection_is_used_again(queue: AsyncTopic, proxy: Proxy) -> None:
    async with AsyncClient(proxy.url) as client:
        for _ in range(5):
            await client.topic(queue.name).get()
    assert proxy.connections == 1


async def test_nobody_there_ends_at_the_deadline() -> None:
    async with AsyncClient("http://127.0.0.1:9", timeout=0.5) as client:
        began = time.monotonic()
        with pytest.raises(errors.APIConnectionError):
            await client.health()
        assert time.monotonic() - began < 2


async def test_a_client_outlives_a_restart_of_the_service(
    queue: AsyncTopic, database_url: str, service: Running
) -> None:
    """It waits where nobody listens, and goes on when somebody does."""
    from pydantic import SecretStr

    from app.settings import Settings

    first = Running(Settings.model_validate({"database_url": SecretStr(database_url)}))
    await first.start()
    port = int(first.url.rpartition(":")[2])
    async with AsyncClient(first.url) as client:
        await client.topic(queue.name).enqueue("before")
        await first.stop()
        enqueued = asyncio.create_task(client.topic(queue.name).enqueue("meanwhile"))
        await asyncio.sleep(0)
        second = Running(Settings.model_validate({"database_url": SecretStr(database_url)}), port=port)
        await second.start()
        try:
            await enqueued
            assert [job.data for job in (await client.topic(queue.name).claim(max=10)).jobs] == ["before", "meanwhile"]
        finally:
            await second.stop()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attempts(repeat: Repeat = Repeat.SAFE, clock: Clock | None = None, **options: float) -> Attempts:
    request: Request[None] = Request("GET", "/", lambda _: None, repeat=repeat)
    return Attempts(request, Options(**options), clock=clock or Clock(), draw=lambda low, high: high)  # type: ignore[arg-type]


def lost(sent: bool = True) -> Lost:
    return Lost(errors.APIConnectionError("gone"), sent)


def refusal(status: int, code: str, retry_after: float | None = None, **detail: object) -> errors.APIStatusError:
    return errors.status_error(status, code, "no", detail=detail, retry_after=retry_after)


def test_pauses_double_up_to_a_bound() -> None:
    tries = attempts(timeout=1_000)
    assert [tries.pause(lost()) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_pauses_are_drawn_from_all_of_it() -> None:
    """Full jitter, as a client has it: not half of it, nor always the same."""
    request: Request[None] = Request("GET", "/", lambda _: None)

    def nth(tries: int) -> list[float]:
        pauses = []
        for _ in range(400):
            attempts = Attempts(request, Options(timeout=1_000))
            pauses.append([attempts.pause(lost()) for _ in range(tries)][-1])
        return pauses

    for tries, bound in ((1, 0.2), (4, 1.6)):
        pauses = nth(tries)
        assert max(pauses) <= bound
        quarters = [sum(at <= 4 * pause / bound < at + 1 for pause in pauses) for at in range(4)]
        assert min(quarters) > 40, quarters


def test_retry_after_is_waited_for() -> None:
    assert attempts().pause(refusal(429, "throttled", 3.0, limit="requests_per_key")) == 3.2


def test_what_would_end_after_the_deadline_is_not_begun() -> None:
    clock = Clock()
    tries = attempts(clock=clock, timeout=5)
    clock.now += 4.9
    with pytest.raises(errors.APIConnectionError):
        tries.pause(lost())


def test_tries_are_counted() -> None:
    tries = attempts(retries=2)
    tries.pause(lost())
    tries.pause(lost())
    with pytest.raises(errors.APIConnectionError):
        tries.pause(lost())


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        (lost(sent=False), True),
        (lost(), False),
        (refusal(429, "throttled"), True),
        (refusal(503, "not_ready", limit="waiting"), True),
        (refusal(503, "not_ready"), False),
        (refusal(503, "shutting_down"), True),
        (refusal(500, "internal"), False),
        (refusal(408, "request_timeout"), True),
        (refusal(404, "topic_not_found"), False),
    ],
    ids=lambda value: getattr(value, "code", None) or str(value),
)
def test_what_is_not_safe_is_repeated_only_if_nothing_was_done(
    failed: Lost | errors.APIStatusError, again: bool
) -> None:
    tries = attempts(Repeat.IF_REFUSED)
    if again:
        tries.pause(failed)
        assert not tries.repeated
    else:
        with pytest.raises(errors.HoldfastError):
            tries.pause(failed)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_what_the_caller_must_mend_is_never_repeated(status: int) -> None:
    with pytest.raises(errors.APIStatusError):
        attempts().pause(refusal(status, ""))


async def test_a_full_queue_is_waited_for(queue: AsyncTopic) -> None:
    await queue.put(TopicConfig(max_depth=1))
    await queue.enqueue("first")
    waiting = asyncio.create_task(queue.enqueue("second"))
    await asyncio.sleep(0)
    [job] = (await queue.claim(wait_ms=5_000)).jobs
    await queue.ack(job)
    await waiting
    assert [job.data for job in (await queue.claim()).jobs] == ["second"]


@pytest.mark.parametrize("options", [{"timeout": 0}, {"attempt_timeout": -1}, {"retries": -1}])
def test_nonsense_is_refused_at_once(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        AsyncClient(**options)  # type: ignore[arg-type]
