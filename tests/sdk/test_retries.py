"""What a client tries again, and when it stops: against the service through a network that fails, and by the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pydantic import SecretStr

from app.settings import Settings
from holdfast import AsyncClient, AsyncTopic, Client, Options, Record, TopicConfig, errors, models
from holdfast._attempts import Attempts, Lost
from holdfast._wire import Repeat, Request
from tests.conftest import Running
from tests.sdk.proxy import Proxy


@pytest.mark.parametrize("sync", [False, True])
async def test_an_enqueue_whose_answer_is_lost_is_written_once(queue: AsyncTopic, proxy: Proxy, sync: bool) -> None:
    proxy.lose(f"POST /{queue.name}")

    def enqueue() -> models.Enqueued:
        with Client(proxy.url) as client:
            return client.topic(queue.name).enqueue("once")

    if sync:
        enqueued = await asyncio.to_thread(enqueue)
    else:
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


async def test_a_service_that_is_slow_is_a_timeout_and_a_read_is_repeated(queue: AsyncTopic, proxy: Proxy) -> None:
    proxy.hold("POST /claim")
    proxy.hold(f"GET /{queue.name}")
    async with AsyncClient(proxy.url, attempt_timeout=0.3) as client:
        with pytest.raises(errors.APITimeoutError) as caught:
            await client.topic(queue.name).claim()
        assert isinstance(caught.value, TimeoutError)
        assert (await client.topic(queue.name).get()).topic == queue.name
    assert proxy.count(f"GET /{queue.name}") >= 2


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


async def test_a_connection_is_used_again(queue: AsyncTopic, proxy: Proxy) -> None:
    async with AsyncClient(proxy.url) as client:
        for _ in range(5):
            await client.topic(queue.name).get()
    assert proxy.connections == 1


async def test_nobody_there_ends_at_the_deadline() -> None:
    async with AsyncClient("http://127.0.0.1:9", timeout=0.5, retries=1_000_000) as client:
        with pytest.raises(errors.APIConnectionError):
            await asyncio.wait_for(client.health(), 30)


async def test_a_client_outlives_a_restart_of_the_service(queue: AsyncTopic, database_url: str) -> None:
    """It waits where nobody listens, and goes on when somebody does."""
    settings = Settings.model_validate({"database_url": SecretStr(database_url)})
    first = Running(settings)
    await first.start()
    port = int(first.url.rpartition(":")[2])
    async with AsyncClient(first.url) as client:
        await client.topic(queue.name).enqueue("before")
        await first.stop()
        enqueued = asyncio.create_task(client.topic(queue.name).enqueue("meanwhile"))
        await asyncio.sleep(0)
        second = Running(settings, port=port)
        await second.start()
        try:
            await enqueued
            assert [job.data for job in (await client.topic(queue.name).claim(max=10)).jobs] == ["before", "meanwhile"]
        finally:
            await second.stop()


def attempts(repeat: Repeat = Repeat.SAFE, clock: Callable[[], float] = lambda: 100.0, **options: float) -> Attempts:
    request: Request[None] = Request("GET", "/", lambda _: None, repeat=repeat)
    return Attempts(request, Options(**options), clock=clock, draw=lambda low, high: high)  # type: ignore[arg-type]


def lost(sent: bool = True) -> Lost:
    return Lost(errors.APIConnectionError("gone"), sent)


def refusal(status: int, code: str, retry_after: float | None = None, **detail: object) -> errors.APIStatusError:
    return errors.status_error(status, code, "no", detail=detail, retry_after=retry_after)


def test_pauses_double_up_to_a_bound_and_are_drawn_from_all_of_it() -> None:
    tries = attempts(timeout=1_000)
    assert [tries.pause(lost()) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert attempts().pause(refusal(429, "throttled", 3.0, limit="requests_per_key")) == 3.2, (
        "Retry-After is waited for"
    )
    # Full jitter, as a client has it: not half of it, nor always the same.
    request: Request[None] = Request("GET", "/", lambda _: None)
    pauses = [Attempts(request, Options(timeout=1_000)).pause(lost()) for _ in range(400)]
    assert max(pauses) <= 0.2
    quarters = [sum(at <= 20 * pause < at + 1 for pause in pauses) for at in range(4)]
    assert min(quarters) > 40, quarters


def test_tries_are_counted_and_none_is_begun_that_would_end_after_the_deadline() -> None:
    tries = attempts(retries=2)
    tries.pause(lost())
    tries.pause(lost())
    with pytest.raises(errors.APIConnectionError):
        tries.pause(lost())
    times = iter([100.0, 104.9])
    late = attempts(clock=lambda: next(times), timeout=5)
    with pytest.raises(errors.APIConnectionError):
        late.pause(lost())


@pytest.mark.parametrize(
    ("repeat", "failed", "again"),
    [
        (Repeat.IF_REFUSED, lost(sent=False), True),
        (Repeat.IF_REFUSED, lost(), False),
        (Repeat.IF_REFUSED, refusal(429, "throttled"), True),
        (Repeat.IF_REFUSED, refusal(503, "not_ready", limit="waiting"), True),
        (Repeat.IF_REFUSED, refusal(503, "not_ready"), False),
        (Repeat.IF_REFUSED, refusal(503, "shutting_down"), True),
        (Repeat.IF_REFUSED, refusal(500, "internal"), False),
        (Repeat.IF_REFUSED, refusal(408, "request_timeout"), True),
        *((Repeat.SAFE, refusal(status, ""), False) for status in (400, 401, 403, 404, 409, 422)),
    ],
    ids=lambda value: getattr(value, "code", None) or str(value),
)
def test_calls_that_are_not_safe_are_repeated_only_if_nothing_was_done_and_mistakes_never(
    repeat: Repeat, failed: Lost | errors.APIStatusError, again: bool
) -> None:
    tries = attempts(repeat)
    if again:
        tries.pause(failed)
        assert not tries.repeated
    else:
        with pytest.raises(errors.HoldfastError):
            tries.pause(failed)


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
