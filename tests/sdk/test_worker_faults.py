"""What handlers do to their worker, which goes on."""

from __future__ import annotations

import asyncio
import time

from holdfast import AsyncTopic, Dead, Queue, Retry
from holdfast._worker.outcomes import ACK, Judged
from holdfast._worker.settler import Settler
from holdfast._worker.taken import Taken
from tests.sdk.workers import outcome, working


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_nothing_that_a_handler_raises_ends_the_worker(queue: AsyncTopic, handlers: Queue) -> None:
    async def fail(what: str) -> None:
        match what:
            case "cancelled":
                task = asyncio.create_task(asyncio.sleep(30))
                task.cancel()
                await task
            case "no text":
                raise Unreadable
            case "for ever":
                raise Retry(float("inf"))
            case "no reason":
                raise Dead(Unreadable())  # type: ignore[arg-type]

    @handlers.handler(queue.name, concurrency=1, retry=())
    async def handler(what: str) -> None:
        await fail(what)

    def on_error(*_: object) -> None:
        raise ValueError("the tracker is away")

    names = ["cancelled", "no text", "for ever", "no reason", "good"]
    seqs = (await queue.enqueue_many(names)).seqs
    async with working(handlers, on_error=on_error):
        ends = {name: await outcome(queue, seq) for name, seq in zip(names, seqs, strict=True)}
    assert {name: (end.state, (end.error or "").partition(":")[0]) for name, end in ends.items()} == {
        "cancelled": ("failed", "CancelledError"),
        "no text": ("failed", "Unreadable, which could not be read"),
        "for ever": ("failed", "ValueError"),
        "no reason": ("failed", "Dead, which could not be read"),
        "good": ("completed", ""),
    }


async def test_a_handler_that_cancels_its_own_task_harms_nothing_but_its_job(
    queue: AsyncTopic, handlers: Queue
) -> None:
    """The task is the worker's, for one job after another."""
    kept: list[asyncio.Task[None]] = []

    @handlers.handler(queue.name, concurrency=1, retry=())
    async def handler(what: str) -> None:
        task = asyncio.current_task()
        assert task
        match what:
            case "at once":
                task.cancel()
                await asyncio.sleep(30)
            case "before it returns":
                task.cancel()
            case "twice":
                task.cancel()
                task.cancel()
                raise ValueError("and more")
            case "by itself":
                raise asyncio.CancelledError("of no task")
            case "later":
                kept.append(task)

    ends = []
    async with working(handlers):
        for what in ("at once", "before it returns", "twice", "by itself", "later"):
            ends.append(await outcome(queue, (await queue.enqueue(what)).seq))
            for task in kept:
                task.cancel()
            assert (await outcome(queue, (await queue.enqueue("good")).seq)).state == "completed", what
    assert [(end.state, (end.error or "").partition(":")[0]) for end in ends] == [
        ("failed", "CancelledError"),
        ("completed", ""),
        ("failed", "ValueError"),
        ("failed", "CancelledError"),
        ("completed", ""),
    ]


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
    async with asyncio.timeout(30):
        while len(settled) < 2:
            await asyncio.sleep(0.01)
    assert removed == ["its object"]
