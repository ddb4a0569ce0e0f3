"""When was a topic last read? What counts, and what does not."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from tests.api.conftest import Serve
from tests.api.dialect import Topic, accepted
from tests.api.keyring import client
from tests.conftest import Running


async def last_read(queue: Topic) -> int | None:
    answer = accepted(await queue.http.get(queue.path, params={"touch": "false"}))
    at: int | None = answer["last_read_ts"]
    return at


async def test_nobody_has(queue: Topic) -> None:
    assert await last_read(queue) is None
    await queue.add(1)
    assert await last_read(queue) is None
    accepted(await queue.http.get("/v0/topics", params={"prefix": queue.name}))
    assert await last_read(queue) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda queue: queue.claim(),
        lambda queue: queue.post("diff"),
        lambda queue: queue.http.get(queue.path),
        lambda queue: queue.http.get("/v0/topics", params={"prefix": queue.name, "touch": "true"}),
        lambda queue: queue.http.post("/api/messages/dequeue", json={"topic": queue.name}),
    ],
    ids=["claim", "diff", "look", "list", "dequeue"],
)
async def test_it_was_read(queue: Topic, read: Callable[[Topic], Awaitable[object]]) -> None:
    before = int(time.time() * 1000) - 1
    await read(queue)
    at = await last_read(queue)
    assert at is not None
    assert before <= at <= time.time() * 1000


async def test_it_is_written_down_for_other_processes(service: Running, queue: Topic, serve: Serve) -> None:
    await queue.claim()
    here = await last_read(queue)
    assert await service.context.engine.reads.flush() >= 1
    other = await serve()
    async with client(other) as http:
        there = await last_read(queue.through(http))
    assert here is not None
    assert there is not None
    assert abs(here - there) < 1_000


async def test_a_topic_that_is_made_anew_was_never_read(queue: Topic) -> None:
    await queue.claim()
    await queue.drop()
    await queue.put()
    assert await last_read(queue) is None
