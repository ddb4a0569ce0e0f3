"""What handlers do to their worker, which goes on."""

from __future__ import annotations

import asyncio
import time

from holdfast import AsyncTopic, Dead, Queue, Retry
from holdfast._worker.outcomes import ACK, Judged
from holdfast._worker.settler import Settler
from holdfast._worker.taken import Taken
from tests.sdk.workers import fact, outcome, working


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_nothing_that_a_handler_raises_or_cancels_ends_the_worker(queue: AsyncTopic, handlers: Queue) -> None:
    """The task that runs a handler is the worker's, for one job after another."""
    kept: list[asyncio.Task[None]] = []

    async def fail(what: str, task: asyncio.Task[None]) -> None:
        match what:
            case "another task cancelled":
                other = asyncio.create_task(asyncio.sleep(30))
                other.cancel()
                await other
            case "no text":
                raise Unreadable
            case "for ever":
                raise Retry(float("inf"))
            case "no reason":
                raise Dead(Unreadable())  # type: ignore[arg-type]
            case "cancelled at once":
                task.cancel()
                await asyncio.sleep(30)
            case "cancelled before it returns":
                task.cancel()
            case "cancelled twice":
                task.cancel()
                task.cancel()
                raise ValueError("and more")
            case "cancelled by itself":
                raise asyncio.CancelledError("of no task")
            case "cancelled later":
                kept.append(task)

    @handlers.handler(queue.name, concurrency=1, retry=())
    async def handler(what: str) -> None:
        task = asyncio.current_task()
        assert task
        await fail(what, task)

    def on_error(*_: object) -> None:
        raise ValueError("the tracker is away")

    expected = {
        "another task cancelled": ("failed", "CancelledError"),
        "no text": ("failed", "Unreadable, whose text can't be read"),
        "for ever": ("failed", "ValueError"),
        "no reason": ("failed", "Dead, whose text can't be read"),
        "cancelled at once": ("failed", "CancelledError"),
        "cancelled before it returns": ("completed", ""),
        "cancelled twice": ("failed", "ValueError"),
        "cancelled by itself": ("failed", "CancelledError"),
        "cancelled later": ("completed", ""),
    }
    async with working(handlers, on_error=on_error):
        for what, came in expected.items():
            end = await outcome(queue, (await queue.enqueue(what)).seq)
            assert (end.state, (end.error or "").partition(":")[0]) == came, what
            for task in kept:
                task.cancel()
            assert (await outcome(queue, (await queue.enqueue("good")).seq)).state == "completed", what


async def test_an_old_lease_and_a_new_one_on_a_job_are_settled_apart(queue: AsyncTopic) -> None:
    """A worker that stood still may have both. An answer tells of seqs: in one of both, the job would not be done."""
    await queue.enqueue("job")
    claims = [await queue.claim(lease_ms=100, wait_ms=20_000), await queue.claim(lease_ms=60_000, wait_ms=20_000)]
    settled: list[Taken] = []
    removed: list[str] = []
    settler = Settler(queue, settled.extend, removed.extend)
    for [job] in (claim.jobs for claim in claims):
        taken = Taken({"$seq": job.seq, "lease_id": job.lease_id}, job.node, time.monotonic())
        taken.key = "its object"
        settler.add(taken, Judged(ACK))
    await fact(lambda: len(settled) == 2)
    assert removed == ["its object"]
