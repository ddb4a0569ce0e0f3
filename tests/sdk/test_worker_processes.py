"""Handlers in processes: alone where a job is suspected of killing its workers, or of a pool."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncClient, AsyncTopic, Isolation, Queue, TopicConfig
from holdfast._client import account_of
from holdfast._worker import calls
from holdfast._worker.child import Order, perform_alone
from tests.sdk import worker_program
from tests.sdk.workers import outcome, suspected, working


async def test_a_suspected_pill_is_alone(client: AsyncClient, topic: str, handlers: Queue) -> None:
    expected = {
        "nothing": ("completed", None),
        "kill": ("failed", "suspected of killing workers: its isolated process ended with exit code -9"),
        "take memory": ("failed", "MemoryError: "),
        "take time": ("failed", "suspected of killing workers: isolated, it took longer than 3 s"),
        "leave": ("failed", "SystemExit: 3"),
        "cancel": ("failed", "CancelledError: "),
    }
    jobs = {}
    for number, what in enumerate(expected):
        place = client.topic(f"{topic}.{number}")
        await place.put(TopicConfig(max_deliveries=None, dead_letter=None, backoff=None))
        isolate = Isolation(100, 3 if what == "take time" else 60)
        handlers.handler(place.name, isolate=isolate, retry=())(worker_program.pill)
        jobs[what] = place, await suspected(place, what)  # in this process it would end that
    async with working(handlers):
        ends = {what: await outcome(place, seq) for what, (place, seq) in jobs.items()}
    assert {what: (end.state, end.error) for what, end in ends.items()} == expected


async def test_a_pool_of_processes(queue: AsyncTopic, handlers: Queue, database_url: str) -> None:
    """Its handlers know their jobs, and their transactions complete them."""
    handlers.handler(queue.name, pool="process", concurrency=1)(worker_program.in_a_process)
    seqs = (await queue.enqueue_many(["", "", database_url])).seqs
    async with working(handlers):
        *ends, completed = [await outcome(queue, seq) for seq in seqs]
    assert [end.result[:2] for end in ends] == [[str(seq), 1] for seq in seqs[:2]]
    assert len({end.result[2] for end in ends} | {os.getpid()}) == 2
    assert (completed.state, completed.result) == ("completed", "by psycopg")


@pytest.mark.parametrize("isolate", [None, Isolation()])
async def test_a_process_of_a_pool_that_dies(
    queue: AsyncTopic, handlers: Queue, tmp_path: Path, isolate: Isolation | None
) -> None:
    """It is a failure of its job, or makes that a suspect, which is run alone; its neighbour is not touched."""
    handlers.handler(queue.name, pool="process", concurrency=2, retry=(), isolate=isolate)(worker_program.neighbour)
    pair = [[str(tmp_path), "killer", "other"], [str(tmp_path), "other", "killer"]]
    killer, other = (await queue.enqueue_many(pair)).seqs
    async with working(handlers):
        end, innocent = await outcome(queue, killer), await outcome(queue, other)
    if isolate is None:
        assert (end.state, end.result) == ("completed", [2, "in the pool"])
    else:
        assert (end.state, end.error) == (
            "failed",
            "suspected of killing workers: its isolated process ended with exit code -9",
        )
    assert (innocent.state, innocent.result) == ("completed", [1, "in the pool"])


def order_of(data: Any) -> Order:
    body = {"$seq": 1, "lease_id": "", "deliveries": 1}
    account = account_of("http://127.0.0.1:1", None, None)
    return Order(worker_program.pill, "none", data, body, None, account, None, None)


def test_a_cancellation_ends_a_process_that_is_being_started() -> None:
    pickled = worker_program.Pickled("take time")

    async def cancelled() -> None:
        task = asyncio.create_task(calls._alone(order_of(pickled), Isolation()))
        await asyncio.to_thread(pickled.begun.wait, 30)
        task.cancel()
        await asyncio.sleep(0)  # it has reached the task
        pickled.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())  # which waits for its threads
    assert not [child for child in multiprocessing.active_children() if child.name == "holdfast-none"]


def test_a_process_that_lets_no_thread_run_ends_without_its_worker() -> None:
    answers, said = calls.SPAWN.Pipe(duplex=False)
    process = calls.SPAWN.Process(target=perform_alone, args=(order_of("keep the lock"), 2**29, 0.5, said))
    process.start()
    process.join(60)
    process.kill()
    answers.close()
    said.close()
    assert process.exitcode == -signal.SIGALRM
