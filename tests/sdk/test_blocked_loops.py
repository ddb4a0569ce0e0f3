"""What is said of an event loop that a handler blocks."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from holdfast import AsyncTopic, Queue, Worker
from holdfast._heartbeats import culprits
from tests.conftest import Running


async def test_a_blocked_loop_names_the_job_and_the_users_line(
    service: Running, queue: AsyncTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """The service is in this process: the worker has a loop of its own."""
    caplog.set_level(logging.WARNING, "holdfast")
    seq = (await queue.enqueue("a")).seq

    async def work() -> None:
        async with Queue(service.url) as handlers:

            @handlers.handler(queue.name)
            async def handler(_: str) -> None:
                time.sleep(3)
                worker.stop()

            worker = Worker(handlers)
            await worker.run(signals=False)

    await asyncio.to_thread(asyncio.run, work())
    [report] = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    first, where, line, *_ = report.splitlines()
    assert first.endswith(f"s by job {seq} of {queue.name}:")
    assert __file__ in where
    assert line.strip() == "time.sleep(3)"


def test_a_blocked_loop_names_what_may_block_it() -> None:
    assert culprits([], None) == ""
    jobs: list[tuple[str, None]] = [(f"job {n} of mail", None) for n in range(7)]
    task: Any = object()
    assert culprits(jobs[:2], task) == " while these ran: job 0 of mail, job 1 of mail"
    assert culprits(jobs, task).endswith("job 4 of mail and 2 more")
    assert culprits([*jobs, ("job 9 of mail", task)], task) == " by job 9 of mail"
