"""Jobs and states of jqueue's shape as values, and jqueue's quick start."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Job, JobNotFoundError, JobStatus, QueueState
from tests.conftest import Running
from tests.sdk.pages import ROOT, examples, run

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


def test_a_job_can_be_made_and_copied() -> None:
    job = Job(entrypoint="mail", payload=b"\0\xff")
    again = Job.new("mail", b"\0\xff", priority=3)
    assert (job.status, job.priority, job.heartbeat_at) == (JobStatus.QUEUED, 0, None)
    assert (again.entrypoint, again.payload, again.priority) == ("mail", b"\0\xff", 3)
    assert job.id != again.id
    assert datetime.now(UTC) - job.created_at < timedelta(minutes=1)
    now = datetime.now(UTC)
    running = job.with_status(JobStatus.IN_PROGRESS).with_heartbeat(now)
    assert (running.id, running.status, running.heartbeat_at) == (job.id, JobStatus.IN_PROGRESS, now)
    assert (job.status, job.heartbeat_at) == (JobStatus.QUEUED, None)
    wrong: list[tuple[Any, type[Exception]]] = [(5, TypeError), (None, TypeError), ("no base64!", ValueError)]
    for payload, error in wrong:
        with pytest.raises(error):
            Job(entrypoint="mail", payload=payload)
    text: Any = base64.b64encode(b"text").decode()
    assert Job(entrypoint="mail", payload=text).payload == b"text"


def test_a_state_is_put_together() -> None:
    late, soon, other = Job.new("mail", b"", priority=10), Job.new("mail", b"", priority=-1), Job.new("sms", b"")
    state = QueueState()
    for job in (late, soon, other):
        state = state.with_job_added(job)
    assert state.version == 3
    assert state.queued_jobs("mail") == (soon, late)
    running = other.with_status(JobStatus.IN_PROGRESS)
    replaced = state.with_job_replaced(running)
    assert (replaced.in_progress_jobs(), replaced.version) == ((running,), 4)
    assert replaced.with_job_removed(soon.id).jobs == (late, running)
    assert state.jobs == (late, soon, other)
    for change in (QueueState().with_job_replaced, lambda job: QueueState().with_job_removed(job.id)):
        with pytest.raises(JobNotFoundError) as caught:
            change(late)
        assert caught.value.job_id == late.id


def test_a_state_requeues_stale_jobs() -> None:
    now = datetime.now(UTC)
    running = Job.new("mail", b"").with_status(JobStatus.IN_PROGRESS)
    fresh, silent = running.with_heartbeat(now), running.with_heartbeat(None)
    stale, dead = running.with_heartbeat(now - timedelta(hours=1)), running.with_status(JobStatus.DEAD)
    state = QueueState((fresh, dead))
    assert state.requeue_stale(now - timedelta(minutes=1)) is state
    requeued = QueueState((stale, silent, dead), version=7).requeue_stale(now - timedelta(minutes=1))
    assert [job.status for job in requeued.jobs] == [JobStatus.QUEUED, JobStatus.QUEUED, JobStatus.DEAD]
    assert requeued.version == 8
