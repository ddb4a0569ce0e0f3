"""jqueue's quick start and its use cases, with nothing changed but the import and the constructor."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import BrokerQueue, HeartbeatManager, Job
from tests.conftest import Running
from tests.sdk.pages import examples, run

ROOT = Path(__file__).parents[2]

# jqueue's page, as it stands there but for the blanks at the beginning of lines.
QUICK_START = """\
import asyncio
from jqueue import BrokerQueue, HeartbeatManager, InMemoryStorage
async def main():
async with BrokerQueue(InMemoryStorage()) as q:
# Producer: add jobs to the queue
await q.enqueue("send_email", b'{"to": "alice@example.com"}')
await q.enqueue("send_email", b'{"to": "bob@example.com"}')
# Consumer: claim and process
jobs = await q.dequeue("send_email", batch_size=2)
for job in jobs:
async with HeartbeatManager(q, job.id):
print(f"Sending email: {job.payload}")
await q.ack(job.id)
asyncio.run(main())
"""


async def test_the_quick_start_is_theirs_but_for_the_import_and_the_constructor(service: Running) -> None:
    [ours] = [example for example in examples((ROOT / "docs/sdk.md").read_text()) if "send_email" in example.code]
    theirs = QUICK_START.replace("from jqueue import BrokerQueue, HeartbeatManager, InMemoryStorage", "IMPORT")
    changed = ours.code.replace("from holdfast import BrokerQueue, HeartbeatManager", "IMPORT")
    theirs = theirs.replace("BrokerQueue(InMemoryStorage())", "QUEUE")
    changed = changed.replace('BrokerQueue("http://127.0.0.1:8080", "jobs")', "QUEUE")
    assert [line.strip() for line in changed.splitlines() if line.strip()] == theirs.splitlines()
    assert await run(ours.code, service.url, {}) == ours.prints


@pytest.fixture
def queue(service: Running, topic: str) -> BrokerQueue:
    return BrokerQueue(service.url, topic)


async def test_background_tasks(queue: BrokerQueue) -> None:
    """A web handler enqueues, and a worker's loop takes what comes."""
    resized: list[bytes] = []
    done = asyncio.Event()

    async def resize(payload: bytes) -> None:
        resized.append(payload)
        if len(resized) == 7:
            done.set()

    async def worker(q: BrokerQueue) -> None:
        while True:
            jobs = await q.dequeue("resize_image", batch_size=5)
            if not jobs:
                await asyncio.sleep(0.05)
                continue
            for job in jobs:
                async with HeartbeatManager(q, job.id, interval=timedelta(seconds=30)):
                    await resize(job.payload)
                await q.ack(job.id)

    async with queue as q:
        working = asyncio.create_task(worker(q))
        for i in range(7):
            await q.enqueue("resize_image", payload=b"%d" % i, priority=0)
        await done.wait()
        while (await q.read_state()).jobs:
            await asyncio.sleep(0.01)
        working.cancel()
    assert sorted(resized) == [b"%d" % i for i in range(7)]


async def test_queues_beside_each_other(service: Running, topic: str) -> None:
    async with BrokerQueue(service.url, f"{topic}.email") as email, BrokerQueue(service.url, f"{topic}.sms") as sms:
        await email.enqueue("send", b"email")
        assert await sms.dequeue("send") == []
        assert [job.payload for job in await email.dequeue("send")] == [b"email"]


async def test_priorities(queue: BrokerQueue) -> None:
    async with queue as q:
        await q.enqueue("report", b"payload", priority=10)  # best-effort
        await q.enqueue("report", b"payload", priority=0)  # urgent
        assert [job.priority for job in await q.dequeue("report")] == [0]


async def test_long_running_tasks(queue: BrokerQueue) -> None:
    async def transcode(payload: bytes) -> bytes:
        raise RuntimeError("out of disk")

    async with queue as q:
        await q.enqueue("transcode_video", b"film")
        [job] = await q.dequeue("transcode_video")
        try:
            async with HeartbeatManager(q, job.id, interval=timedelta(seconds=30)):
                await transcode(job.payload)
            await q.ack(job.id)
        except RuntimeError:
            await q.nack(job.id)  # return to queue for retry
        assert len((await q.read_state()).queued_jobs("transcode_video")) == 1


async def test_testing(queue: BrokerQueue) -> None:
    async def process_email(job: Job) -> None:
        assert job.payload == b'{"to": "test@example.com"}'

    async with queue as q:
        await q.enqueue("send_email", b'{"to": "test@example.com"}')
        [job] = await q.dequeue("send_email")
        await process_email(job)
        await q.ack(job.id)
        state = await q.read_state()
        assert len(state.jobs) == 0


async def test_metrics(queue: BrokerQueue) -> None:
    async def collect_metrics(q: BrokerQueue) -> dict[str, Any]:
        state = await q.read_state()
        now = datetime.now(UTC)
        queued = state.queued_jobs()
        return {
            "queue_depth": len(queued),
            "in_progress": len(state.in_progress_jobs()),
            "version": state.version,
            "oldest_queued_age_s": (now - min(j.created_at for j in queued)).total_seconds() if queued else 0,
        }

    async with queue as q:
        await asyncio.gather(
            q.enqueue("task", b"1"),
            q.enqueue("task", b"2"),
            q.enqueue("task", b"3"),
        )
        await q.dequeue()
        metrics = await collect_metrics(q)
    assert (metrics["queue_depth"], metrics["in_progress"], metrics["version"]) == (2, 1, 3)
    assert -1 < metrics["oldest_queued_age_s"] < 60
