"""What a topic is that somebody makes without saying how: a job that always fails does not run for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from holdfast import AsyncClient, BrokerQueue, JobStatus, Queue, TopicConfig
from holdfast.models import Backoff
from tests.sdk.cli import Cli
from tests.sdk.workers import fact, working


async def settings(client: AsyncClient, topic: str) -> dict[str, Any]:
    """As the service has them."""
    async with httpx.AsyncClient(base_url=client.account.base_url) as http:
        config: dict[str, Any] = (await http.get(f"/v0/topics/{topic}")).json()["config"]
    return {name: config[name] for name in ("max_deliveries", "on_exhausted", "dead_letter", "backoff")}


def defaults(topic: str) -> dict[str, Any]:
    pauses = {"kind": "exponential", "base_ms": 1_000, "cap_ms": 600_000, "jitter": "full"}
    dead = {"on_exhausted": "dead_letter", "dead_letter": f"{topic}.dlq"}
    return {"max_deliveries": 20, "backoff": pauses} | dead


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
    await client.topic(f"{topic}.dlq").put()
    assert (await settings(client, f"{topic}.dlq"))["dead_letter"] is None, "a dead-letter topic has none of its own"


FOR_EVER = {"max_deliveries": 0, "dead_letter": None, "on_exhausted": "redeliver", "backoff": None}


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
        (TopicConfig(max_deliveries=None, dead_letter=None, backoff=None), FOR_EVER),
        (TopicConfig(type="log"), FOR_EVER),
    ],
)
async def test_what_is_said_goes_before_it(
    client: AsyncClient, topic: str, config: TopicConfig, other: dict[str, Any]
) -> None:
    await client.topic(topic).put(config)
    assert await settings(client, topic) == defaults(topic) | other


async def test_settings_that_are_read_are_written_back_as_they_are(client: AsyncClient, cli: Cli, topic: str) -> None:
    """Of a topic that v0 has made, which leaves it to redeliver for ever."""
    async with httpx.AsyncClient(base_url=client.account.base_url) as http:
        made = (await http.put(f"/v0/topics/{topic}", json={"type": "queue"})).json()["config"]
        await client.topic(topic).put((await client.topic(topic).get()).config)
        assert (await http.get(f"/v0/topics/{topic}")).json()["config"] == made
        await cli("topics", "configure", topic, "lease_ms=5000")
        assert (await http.get(f"/v0/topics/{topic}")).json()["config"] == made | {"lease_ms": 5_000}


async def test_a_handler_that_raises_waits_as_its_topic_says(client: AsyncClient, topic: str, handlers: Queue) -> None:
    queue = client.topic(topic)
    await queue.put(TopicConfig(backoff=Backoff(kind="fixed", base_ms=3_600_000)))
    seq = (await queue.enqueue(0)).seq
    handlers.handler(topic)(lambda number: 1 / number)
    async with working(handlers), asyncio.timeout(30):
        while (job := await queue.job(seq)).state != "scheduled":
            await asyncio.sleep(0.01)
    assert (job.deliveries, job.last_error) == (1, "ZeroDivisionError: division by zero")


async def test_a_job_that_always_fails_lets_the_next_of_its_group_run(
    client: AsyncClient, topic: str, handlers: Queue
) -> None:
    """With shorter pauses than by default, as twenty tries take more than an hour by those."""
    fifo = client.topic(f"{topic}.fifo")
    await fifo.put(TopicConfig(backoff=Backoff(kind="fixed", base_ms=1)))
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
