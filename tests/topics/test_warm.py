"""What a warm cache saves, and how soon a change is effective on several processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from app.base.db import sql
from app.base.db.pool import CountedPool
from app.kernel.claim import ordering
from app.kernel.topics.policy import Policy
from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.conftest import Running
from tests.engine.conftest import machine, queue, start
from tests.engine.machines import Machine
from tests.launch import services
from tests.processes import until
from tests.test_workers import Client
from tests.topics.test_bus import Redis, redis, subscribed
from tests.topics.test_bus import until as eventually

__all__ = ["machine", "queue", "redis", "start", "subscribed"]

CLAIMS = 20
OWN_TASKS = ("draws", "fold", "heads", "writers")  # statements of tasks that look after cursors and counts now and then


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
    before, began = Counter(name for name, _ in machine.log.sent), time.monotonic()
    for _ in range(CLAIMS):
        assert len(await machine.claim(await machine.policies.queue(name))) == 1
    asked = Counter(name for name, _ in machine.log.sent) - before
    for name in OWN_TASKS:
        del asked[name]
    assert asked.pop("lanes", 0) <= (time.monotonic() - began) / ordering.TTL_SECONDS
    assert asked == {"claim": CLAIMS}


@pytest.mark.parametrize("with_redis", [False, True])
async def test_over_http_it_asks_for_the_counts_of_its_answer_besides(
    with_redis: bool,
    redis: Redis,
    serve: Callable[..., Awaitable[Running]],
    new_database: Callable[[], Awaitable[str]],
    topic: str,
) -> None:
    """And for nothing that has to do with the topic's settings."""
    own = await Services.make(serve, new_database)  # on a database that nothing else uses
    service = await own.start(**({"redis_url": redis.url} if with_redis else {}))
    async with client(service) as http:

        async def claim() -> None:
            answer = await http.post(f"/v0/topics/{topic}/claim", json={"node": "n", "max": 1})
            assert answer.json()["count"] == 1

        await Topic(http, topic).put(type="queue")
        await http.post(f"/v0/topics/{topic}", json={"records": [{"data": n} for n in range(CLAIMS + 2)]})
        await claim()
        if with_redis:  # its subscription clears the cache once
            await eventually(lambda: subscribed(service))
            await claim()
        before, began = sent(service), time.monotonic()
        for _ in range(CLAIMS):
            await claim()
        asked = sent(service) - before
        took = time.monotonic() - began
        assert asked.pop("claim/claim") == CLAIMS
        assert asked.pop("counts/count") <= CLAIMS
        # The rest is of the service's own tasks, which seldom ask for a topic.
        assert asked.pop("topics/get", 0) <= took
        assert max(asked.values(), default=0) <= 2 + took * 10


@pytest.mark.slow
@pytest.mark.alone
def test_a_change_is_effective_on_four_processes_within_100_ms(
    tmp_path: Path, database_url: str, redis: Redis, topic: str
) -> None:
    with services(tmp_path) as launch, ExitStack() as stack:
        started = [launch(DATABASE_URL=database_url, REDIS_URL=redis.url) for _ in range(4)]
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
        for service in started:
            assert service.stop()[0] == 0
