"""max_depth and throughput_limit over HTTP, where four processes serve one topic."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.launch import Serve, call, services
from tests.processes import until
from tests.topics.test_bus import Redis
from tools.bench.client import Script, connect, play, post

PROCESSES = 4
WORKERS = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the tests of this file: the cluster is made once."""
    return tmp_path_factory.mktemp("limits")


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    with services(folder) as start:
        yield start


async def hand_out(url: str, topic: str, seconds: float) -> list[float]:
    """Let 100 workers claim for so long; when each job reached one, in seconds from the first."""
    arrived: list[float] = []
    stop = time.monotonic() + seconds

    def work(n: int) -> Script:
        while (left := stop - time.monotonic()) > 0:
            body = {"node": f"n{n}", "max": 3, "wait_ms": int(left * 1000)}
            answer = yield post(f"/v0/topics/{topic}/claim", json.dumps(body).encode())
            arrived.extend([time.monotonic()] * json.loads(answer)["count"])

    # They have a connection each, so every process has its share of them.
    port = urlsplit(url).port
    assert port is not None
    await play(await connect([port], [work(n) for n in range(WORKERS)]))
    return [at - arrived[0] for at in arrived]


def last(arrived: list[float], seconds: float) -> int:
    """How many came in the last so many seconds."""
    return sum(at > arrived[-1] - seconds for at in arrived)


def fill(url: str, topic: str, count: int, **settings: object) -> None:
    call(f"{url}/v0/topics/{topic}", "PUT", {"type": "queue", **settings})
    call(f"{url}/v0/topics/{topic}?return_seqs=false", "POST", {"records": [{"data": n} for n in range(count)]})


@pytest.mark.alone
@pytest.mark.slow
def test_a_hundred_workers_of_four_processes_keep_to_the_limit(serve: Serve) -> None:
    service = serve(WORKERS=str(PROCESSES))
    url = service.up()
    assert len(service.servers()) == PROCESSES
    fill(url, "limited", 1_000, throughput_limit=150)
    arrived = asyncio.run(hand_out(url, "limited", 4.0))
    assert 0.95 * 450 <= last(arrived, 3.0) <= 1.05 * 450
    assert len(arrived) <= 150 * (4.0 + 1) * 1.05  # a full bucket at the beginning too


@pytest.mark.alone
@pytest.mark.slow
def test_with_redis_too_and_when_it_dies_in_the_middle(serve: Serve) -> None:
    redis = Redis()
    redis.start()
    try:
        service = serve(WORKERS=str(PROCESSES), REDIS_URL=redis.url)
        url = service.up()
        fill(url, "in-redis", 1_000, throughput_limit=150)
        arrived = asyncio.run(hand_out(url, "in-redis", 3.0))
        assert 0.95 * 300 <= last(arrived, 2.0) <= 1.05 * 300
        assert "tokens" not in service.err.read_text()

        async def killed_in_the_middle() -> list[float]:
            handing_out = asyncio.create_task(hand_out(url, "in-redis", 3.0))
            await asyncio.sleep(1.5)
            redis.kill()
            return await handing_out

        arrived = asyncio.run(killed_in_the_middle())
        assert 0.75 * 300 <= last(arrived, 2.0) <= 1.05 * 300 + 150
        assert service.err.read_text().count("Redis is unreachable, tokens come from PostgreSQL") == PROCESSES
    finally:
        redis.kill()


@pytest.mark.alone
def test_producers_at_four_processes_fill_a_topic_to_its_depth_and_no_further(serve: Serve) -> None:
    service = serve(WORKERS=str(PROCESSES))
    url = service.up()
    call(f"{url}/v0/topics/deep", "PUT", {"type": "queue", "max_depth": 501})

    async def produce(http: httpx.AsyncClient, size: int) -> int:
        taken = 0
        while True:
            answer = await http.post("/v0/topics/deep", json={"records": [{"data": 1}] * size})
            if answer.status_code == 429:
                error = answer.json()["error"]
                assert error["code"] == "throttled"
                assert error["detail"] == {"topic": "deep", "limit": "max_depth", "max": 501}
                assert answer.headers["retry-after"] == "1"
                return taken
            assert answer.status_code == 200, answer.text
            taken += size

    async def produce_all() -> int:
        async with httpx.AsyncClient(base_url=url, timeout=20) as http:
            taken = sum(await asyncio.gather(*(produce(http, 7) for _ in range(20))))
            assert 501 - 7 < taken <= 501
            return taken + await produce(http, 1)

    assert asyncio.run(produce_all()) == 501
    until(lambda: call(f"{url}/v0/topics/deep")["queue"]["ready"] == 501)
