"""A service as a process: what it was sent and refused leaves no memory behind."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.api import bad_input
from tests.api.dialect import Topic
from tests.api.process import Process
from tests.processes import until

MIB = 1024 * 1024
ROUNDS = 3


@pytest.mark.alone
@pytest.mark.slow
async def test_bad_input_leaves_no_memory_behind(process: Process, topic: str) -> None:
    url = await asyncio.to_thread(process.url)
    server = process.server()
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        queue = Topic(http, topic)
        await queue.put()
        # The first use of a route, of a statement and of a size of answer is bought once: that is no leak.
        for _ in range(20):
            await queue.append(*({"data": "x" * 1000} for _ in range(1000)))
            while claimed := (await queue.claim(max=1000))["claimed"]:
                await queue.ack("n", [job["$seq"] for job in claimed])
        before = server.memory_info().rss

        for _ in range(ROUNDS):
            for bad in bad_input.ALL:
                assert (await bad.send(http, topic)).is_error, bad
        # And at once, with more of them than a proxy lets through.
        large = [bad for bad in bad_input.ALL if bad.chunks]
        answers = await asyncio.gather(*(bad.send(http, topic) for bad in large))
        assert [answer.status_code for answer in answers] == [bad.status for bad in large]

        def settled() -> bool:
            return bool(server.memory_info().rss <= before + 20 * MIB)

        await asyncio.to_thread(
            until, settled, 30, or_show=lambda: f"{before / MIB:.0f} MiB -> {server.memory_info().rss / MIB:.0f} MiB"
        )
        assert server.is_running()
        assert (await queue.state())["count"] == 0
