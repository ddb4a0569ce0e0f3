"""Clients that send or read a byte now and then: they are cut off, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from app.serve.protocol import LEAST_RATE
from tests.api.dialect import eventually
from tests.api.raw import Raw, chunked, connected, eventually_true, get, post, raw
from tests.launch import Service, services

KIB = 1024
HEADER_SECONDS, BODY_SECONDS, WRITE_SECONDS = 1.5, 0.8, 1.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Service]:
    """Impatient, and with keys that may have one request under way: what a slow client holds is seen by that."""
    with services(tmp_path_factory.mktemp("slow")) as start:
        yield start(
            DATABASE_URL=database_url,
            API_KEYS="k,slow,maker",
            MAX_REQUESTS_PER_KEY="1",
            HEADER_SECONDS=str(HEADER_SECONDS),
            BODY_SECONDS=str(BODY_SECONDS),
            WRITE_SECONDS=str(WRITE_SECONDS),
        )


@pytest.fixture(scope="module")
async def url(service: Service) -> str:
    return await asyncio.to_thread(service.up)


@pytest.fixture
def pid(service: Service, url: str) -> int:
    found = service.server()
    assert found is not None
    return found


@pytest.fixture
async def queue(url: str, topic: str) -> str:
    """The path of a queue of the test's own."""
    path = f"/v0/topics/{topic}"
    async with raw(url) as client:
        put = post(path, b'{"type":"queue"}', key="maker").replace(b"POST", b"PUT", 1)
        assert (await client.ask(put)).status == 201
    return path


@contextlib.asynccontextmanager
async def others_go_on(url: str, path: str = "/healthz", key: str = "") -> AsyncIterator[list[float]]:
    """Meanwhile somebody else asks again and again, and is answered; the seconds that each answer took."""
    took: list[float] = []
    over = asyncio.Event()

    async def ask() -> None:
        async with raw(url) as client:
            while not over.is_set():
                began = time.monotonic()
                assert (await client.ask(get(path, key=key))).status == 200
                took.append(time.monotonic() - began)
                await asyncio.sleep(0.01)

    asking = asyncio.create_task(ask())
    try:
        yield took
        over.set()
        await asking  # not cut off: its key's place must be free for the next test
        assert len(took) > 5
    finally:
        over.set()
        await asyncio.gather(asking, return_exceptions=True)


async def test_a_header_must_come_in_time(url: str, pid: int) -> None:
    began = time.monotonic()
    async with others_go_on(url), raw(url) as client:
        await client.drip(get("/healthz", f"x: {'v' * 10_000}"), 0.02)
        answer = await client.answer()
        assert answer.limit() == (408, "request_timeout", {"limit": "header_seconds"})
        assert answer.headers["connection"] == "close"
        assert await client.closed() == b""
        assert time.monotonic() - began >= HEADER_SECONDS
        await eventually_true(lambda: client.port not in connected(pid))


async def test_late_headers_and_bodies_are_told_so_in_their_dialect(url: str) -> None:
    async with raw(url) as second, raw(url) as header, raw(url) as body:
        assert (await second.ask(get())).status == 200
        await second.send(b"GET /hea")
        await header.send(b"POST /api/messages HTTP/1.1\r\nhost: localhost\r\n")
        await body.send(post("/api/messages", b"{", key="k", declared=100))
        for client in (header, body):
            answer = await client.answer()
            told = json.loads(answer.body)
            assert (answer.status, told["code"], sorted(told)) == (408, "request_timeout", ["code", "docs", "error"])
        assert (await second.answer()).status == 408


@pytest.mark.parametrize("noise", [b"", b"\r\n" * 500], ids=["silent", "empty lines"])
async def test_who_says_nothing_is_closed_without_a_word(url: str, noise: bytes) -> None:
    async with raw(url) as client:
        dripping = asyncio.create_task(client.drip(noise, 0.02))
        assert await client.closed() == b""
        dripping.cancel()


async def test_idle_between_requests_is_no_slowness(url: str) -> None:
    async with raw(url) as client:
        assert (await client.ask(get())).status == 200
        await asyncio.sleep(HEADER_SECONDS * 1.5)  # nothing to wait for: it is about nothing happening
        assert (await client.ask(get())).status == 200


@pytest.mark.parametrize("form", ["length", "chunks"])
async def test_a_body_must_come_in_time(url: str, pid: int, queue: str, form: str) -> None:
    body = b'{"records":[{"data":"' + b"x" * 1000
    async with others_go_on(url, queue, "k"), raw(url) as client, raw(url) as asking:
        if form == "length":
            await client.send(post(queue, b"", key="slow", declared=2000))
        else:
            await client.send(chunked(queue, key="slow"), b"7d0\r\n")
        dripping = asyncio.create_task(client.drip(body, 0.02))

        async def key_is(status: int) -> bool:
            return (await asking.ask(get(queue, key="slow"))).status == status

        await eventually(lambda: key_is(429))  # its place is taken
        answer = await client.answer()
        assert answer.limit() == (408, "request_timeout", {"limit": "body_seconds"})
        dripping.cancel()
        await eventually(lambda: key_is(200))  # and given back
        await eventually_true(lambda: client.port not in connected(pid))


async def test_a_body_that_comes_steadily_may_take_longer(url: str, queue: str) -> None:
    body = b'{"records":[{"data":"%b"}]}' % (b"x" * (4 * LEAST_RATE))
    began = time.monotonic()
    async with raw(url) as client:
        await client.send(post(queue, b"", key="slow", declared=len(body)))
        for place in range(0, len(body), LEAST_RATE // 2):
            await client.send(body[place : place + LEAST_RATE // 2])
            await asyncio.sleep(0.2)
        assert (await client.answer()).status == 200
    assert time.monotonic() - began > 2 * BODY_SECONDS


async def test_a_reader_must_take_its_answer_in_time(url: str, pid: int, queue: str) -> None:
    record = b'{"records":[{"data":"%b"}]}' % (b"x" * 1_000_000)
    jobs = 24  # more than the kernel keeps for a connection
    async with raw(url) as client:
        for _ in range(jobs):
            assert (await client.ask(post(queue, record, key="k"))).status == 200
    async with others_go_on(url, queue, "k"), raw(url, receive_bytes=4 * KIB) as client:
        await client.send(post(f"{queue}/claim", json.dumps({"node": "n", "max": jobs}).encode(), key="slow"))
        await client.reader.readuntil(b"\r\n\r\n")
        began = time.monotonic()
        reading = asyncio.create_task(_sip(client))
        await eventually_true(lambda: client.port not in connected(pid))
        assert time.monotonic() - began > WRITE_SECONDS / 2
        reading.cancel()
        # What was in the kernel's hands is all that comes.
        assert len(await client.closed()) < jobs * 1_000_000 / 2


async def test_a_reader_that_is_steady_may_take_longer(url: str, queue: str) -> None:
    async with raw(url) as client:
        for _ in range(12):
            record = b'{"records":[{"data":"%b"}]}' % (b"x" * 1_000_000)
            assert (await client.ask(post(queue, record, key="k"))).status == 200
    async with raw(url, receive_bytes=64 * KIB) as client:
        began = time.monotonic()
        await client.send(post(f"{queue}/claim", b'{"node":"n","max":12}', key="slow"))
        head = await client.reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length: ")[2].split()[0])
        while left:
            left -= len(await client.reader.read(min(left, 128 * KIB)))
            await asyncio.sleep(0.04)
        assert time.monotonic() - began > 2 * WRITE_SECONDS


async def _sip(client: Raw) -> None:
    while True:
        await client.reader.read(1)
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_two_hundred_slow_clients_slow_nobody_down(url: str, pid: int) -> None:
    async def typical() -> float:
        async with others_go_on(url) as took:
            await asyncio.sleep(0.5)
        return statistics.median(took)

    before = await typical()
    async with contextlib.AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(raw(url)) for _ in range(200)]
        dripping = [asyncio.create_task(one.drip(get("/healthz", f"x: {'v' * 1000}"), 0.1)) for one in slow]
        assert await typical() < 5 * before + 0.01
        ports = {one.port for one in slow}
        await asyncio.gather(*dripping)
        assert {(await one.answer()).status for one in slow} == {408}
        await eventually_true(lambda: not ports & connected(pid))
