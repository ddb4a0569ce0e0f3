"""What a warm cache saves, and how soon a change is effective on several processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app.base.db import sql
from app.base.db.pool import CountedPool
from app.base.metrics import catalogue
from app.kernel.topics.policy import Policy
from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.conftest import Running
from tests.engine.conftest import machine, queue, start
from tests.engine.machines import Machine
from tests.launch import Serve, services
from tests.processes import until
from tests.test_workers import Client
from tests.topics.test_bus import Redis, redis
from tests.topics.test_bus import until as eventually

__all__ = ["machine", "queue", "redis", "start"]

CLAIMS = 20
OWN_TASKS = ("heads", "fold", "writers")  # statements of tasks that look after cursors and counts now and then


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Serve]:
    """Starts services as processes of their own, and ends those that still run."""
    with services(tmp_path) as start:
        yield start


@pytest.fixture
async def services_of_its_own(
    serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]]
) -> Services:
    """On a database that nothing else uses."""
    return await Services.make(serve, new_database)


def sent(service: Running) -> Counter[str]:
    """How often each statement was sent, by its file's name."""
    counts: Counter[str] = Counter()
    for pool in (service.context.pools.hot, service.context.pools.hot_async, service.context.pools.rest):
        assert isinstance(pool, CountedPool)
        for text, seconds in pool.statements.items():
            counts[sql.name_of(text)] += sum(seconds.counts)
    return counts


async def test_a_claim_asks_for_nothing_but_the_claim(machine: Machine, queue: Policy) -> None:
    name = queue.topic.name
    await machine.enqueue(await machine.policies.queue(name), CLAIMS + 1)
    assert len(await machine.claim(await machine.policies.queue(name))) == 1  # the first one learns the lanes
    before = Counter(name for name, _ in machine.log.sent)
    for _ in range(CLAIMS):
        assert len(await machine.claim(await machine.policies.queue(name))) == 1
    asked = Counter(name for name, _ in machine.log.sent) - before
    for name in OWN_TASKS:
        del asked[name]
    assert asked == {"claim": CLAIMS}


@pytest.mark.parametrize("with_redis", [False, True])
async def test_over_http_it_asks_for_the_counts_of_its_answer_besides(
    with_redis: bool, redis: Redis, services_of_its_own: Services, topic: str
) -> None:
    """And for nothing that has to do with the topic's settings."""
    service = await services_of_its_own.start(**({"redis_url": redis.url} if with_redis else {}))
    async with client(service) as http:
        await Topic(http, topic).put(type="queue")
        await http.post(f"/v0/topics/{topic}", json={"records": [{"data": n} for n in range(CLAIMS + 1)]})
        path, claim = f"/v0/topics/{topic}/claim", {"node": "n", "max": 1}
        assert (await http.post(path, json=claim)).json()["count"] == 1
        if with_redis:  # its subscription clears the cache once
            await eventually(lambda: subscribed(service))
            assert (await http.post(path, json=claim)).json()["count"] == 1
        before = sent(service)
        for _ in range(CLAIMS - with_redis):
            assert (await http.post(path, json=claim)).json()["count"] == 1
        asked = sent(service) - before
        assert asked["topics/get"] == 0
        # What comes less often is of the service's own tasks.
        assert {name for name, times in asked.items() if times >= CLAIMS // 4} == {"claim/claim", "counts/count"}


def subscribed(service: Running) -> bool:
    """Whether hints come."""
    levels = service.context.engine.metrics.levels
    return any(family is catalogue.REDIS and value for level in levels for family, _, value in level())


@pytest.mark.alone
def test_a_change_is_effective_on_four_processes_within_100_ms(
    launch: Serve, database_url: str, redis: Redis, topic: str
) -> None:
    started = [launch(DATABASE_URL=database_url, REDIS_URL=redis.url) for _ in range(4)]
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Client(service, service.up()))) for service in started]
        path = f"/v0/topics/{topic}"
        took = []
        for lease_ms in range(1000, 1006):
            clients[0].call("PUT", path, {"type": "queue", "lease_ms": lease_ms})
            began = time.monotonic()
            for one in clients:
                until(lambda one=one, now=lease_ms: one.call("GET", path)["config"]["lease_ms"] == now)  # type: ignore[misc]
            took.append(time.monotonic() - began)
        assert min(took[1:]) < 0.1, took  # the first one found nothing known
        # What they work by, not only what they show: each claims by the lease of the last change.
        clients[0].call("POST", path, {"records": [{"data": n} for n in range(4)]})
        for one in clients:
            [job] = one.call("POST", f"{path}/claim", {"node": "n", "max": 1})["claimed"]
            assert job["data"] in range(4)
    for service in started:
        assert service.stop()[0] == 0
