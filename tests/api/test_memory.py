"""A service as a process: what it was sent and refused leaves no memory behind."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from tests.api import bad_input
from tests.api.dialect import Topic
from tests.processes import children, until

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
ROUNDS = 3


class Process:
    """`python -m app serve`, and the process below it that answers requests."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self._out = folder / "out"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        mine = {"HOLDFAST_DATABASE_URL": database_url, "HOLDFAST_PORT": "0"}
        with self._out.open("wb") as out:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "app", "serve"], cwd=ROOT, env=clean | mine, stdout=out, stderr=out
            )

    def url(self) -> str:
        """Where it listens, once it does."""
        found = until(lambda: re.search(r"is running on (\S+)", self._out.read_text()), 30, or_show=self._out.read_text)
        assert found is not None
        return found.group(1)

    def server(self) -> psutil.Process:
        [pid] = children(self._supervisor.pid, "app _server")
        return psutil.Process(pid)

    def stop(self) -> None:
        self._supervisor.terminate()
        self._supervisor.wait(30)


@pytest.fixture
async def process(database_url: str, tmp_path: Path) -> AsyncIterator[Process]:
    process = Process(database_url, tmp_path)
    yield process
    await asyncio.to_thread(process.stop)


@pytest.mark.alone
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
