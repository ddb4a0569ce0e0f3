"""What a topic is that somebody makes without saying how: a job that always fails does not run for ever."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from holdfast import AsyncClient, BrokerQueue, JobStatus, Queue, TopicConfig
from holdfast.models import Backoff
from tests.conftest import Running
from tests.sdk.cli import Cli
from tests.sdk.workers import fact, working

PAUSES = {"kind": "exponential", "base_ms": 1_000, "cap_ms": 600_000, "jitter": "full"}
SHORT = Backoff(kind="fixed", base_ms=1)
A_WHILE = 3.0  # seconds


@pytest.fixture
def cli(service: Running) -> Cli:
    return Cli(service.url)


async def settings(client: AsyncClient, topic: str) -> dict[str, Any]:
    """As the service has them."""
    async with httpx.AsyncClient(base_url=client.account.base_url) as http:
        config: dict[str, Any] = (await http.get(f"/v0/topics/{topic}")).json()["config"]
    names = ("max_deliveries", "on_exhausted", "dead_letter", "backoff")
    return {name: config[name] for name in names}


def defaults(topic: str) -> dict[str, Any]:
    dead = {"on_exhausted": "dead_letter", "dead_letter": f"{topic}.dlq"}
    return {"max_deliveries": 20, "backoff": PAUSES} | dead


@pytest.mark.parametrize("made_by", ["put", "write", "command"])
async def test_what_is_made_without_settings(client: AsyncClient, cli: Cli, topic: str, made_by: str) -> None:
    match made_by:
        case "put":
            await client.topic(topic).put()
        case "write":
            await client.topic(topic).enqueue_many([1], config=TopicConfig())
        case _:
            await cli("topics", "put", topic)
    assert await settings(client, topic) == defaults(topic)


@pytest.mark.parametrize(
    ("config", "other"),
    [
        (TopicConfig(max_deliveries=0), {"max_deliveries": 0}),
        (TopicConfig(max_deliveries=3), {"max_deliveries": 3}),
        (TopicConfig(dead_letter="mail.dead"), {"dead_letter": "mail.dead"}),
        (TopicConfig(dead_letter=None), {"dead_letter": None, "on_exhausted": "fail"}),
        (TopicConfig(on_exhausted="fail"), {"dead_letter": None, "on_exhausted": "fail"}),
        (TopicConfig(on_exhausted="redeliver"), {"on_exhausted": "redeliver"}),
        (TopicConfig(backoff=None), {"backoff": None}),
        (
            TopicConfig(max_deliveries=None, dead_letter=None, backoff=None),
            {"max_deliveries": 0, "dead_letter": None, "on_exhausted": "redeliver", "backoff": None},
        ),
        (
            TopicConfig(type="log"),
            {"max_deliveries": 0, "dead_letter": None, "on_exhausted": "redeliver", "backoff": None},
        ),
    ],
)
async def test_what_is_said_goes_before_it(
    client: AsyncClient, topic: str, config: TopicConfig, other: dict[str, Any]
) -> None:
    await client.topic(topic).put(config)
    assert await settings(client, topic) == defaults(topic) | other


async def test_a_dead_letter_topic_has_none_of_its_own(client: AsyncClient, topic: str) -> None:
    await client.topic(f"{topic}.dlq").put()
    assert (await settings(client, f"{topic}.dlq"))["dead_letter"] is None


async def test_settings_that_are_read_are_written_back_as_they_are(client: AsyncClient, cli: Cli, topic: str) -> None:
    """Of a topic that v0 has made, which leaves it to redeliver for ever."""
    async with httpx.AsyncClient(base_url=client.account.base_url) as http:
        made = (await http.put(f"/v0/topics/{topic}", json={"type": "queue"})).json()["config"]
        await client.topic(topic).put((await client.topic(topic).get()).config)
        assert (await http.get(f"/v0/topics/{topic}")).json()["config"] == made
        await cli("topics", "configure", topic, "lease_ms=5000")
        assert (await http.get(f"/v0/topics/{topic}")).json()["config"] == made | {"lease_ms": 5_000}


async def test_a_handler_that_always_raises_runs_a_few_times(client: AsyncClient, topic: str, handlers: Queue) -> None:
    queue = client.topic(topic)
    await queue.put()
    tries = 0

    @handlers.handler(queue.name)
    async def handler(_: Any) -> None:
        nonlocal tries
        tries += 1
        raise ValueError("no")

    await queue.enqueue(1)
    async with working(handlers):
        await fact(lambda: tries)
        began = time.monotonic()
        await fact(lambda: time.monotonic() > began + A_WHILE)
    # Its pauses are by chance: up to 1, 2, 4, 8 s and so on. Ten tries in three seconds are all but impossible.
    assert 1 <= tries < 10


async def test_a_job_that_always_fails_lets_the_next_of_its_group_run(
    client: AsyncClient, topic: str, handlers: Queue
) -> None:
    """With shorter pauses than by default, as twenty tries take more than an hour by those."""
    fifo = client.topic(f"{topic}.fifo")
    await fifo.put(TopicConfig(backoff=SHORT))
    tries: list[str] = []

    @handlers.handler(fifo.name)
    async def handler(name: str) -> None:
        tries.append(name)
        if name == "bad":
            raise ValueError("no")

    await fifo.enqueue("bad", group="g")
    await fifo.enqueue("next", group="g")
    async with working(handlers):
        await fact(lambda: "next" in tries)
    assert tries == ["bad"] * 20 + ["next"]
    [dead] = [job async for job in client.topic(f"{fifo.name}.dlq").jobs()]
    assert (dead.data, dead.last_error) == ("bad", "ValueError: no")


async def test_a_job_of_jqueues_that_always_fails_is_dead_in_its_queue(client: AsyncClient, topic: str) -> None:
    async with BrokerQueue(client, topic) as queue:
        job = await queue.enqueue("mail", b"")
        for _ in range(20):
            [taken] = await queue.dequeue()
            await queue.nack(taken.id)
        assert await queue.dequeue() == []
        [dead] = (await queue.read_state()).jobs
    assert (dead.id, dead.status) == (job.id, JobStatus.DEAD)
