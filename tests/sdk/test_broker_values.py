"""Jobs and states of jqueue's shape as values, and its errors."""

from __future__ import annotations

import base64
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Job, JobNotFoundError, JobStatus, QueueState, StorageError


def test_a_job_can_be_made() -> None:
    job = Job(entrypoint="mail", payload=b"\0\xff")
    again = Job.new("mail", b"\0\xff", priority=3)
    assert (job.status, job.priority, job.heartbeat_at) == (JobStatus.QUEUED, 0, None)
    assert (again.entrypoint, again.payload, again.priority) == ("mail", b"\0\xff", 3)
    assert job.id != again.id
    assert datetime.now(UTC) - job.created_at < timedelta(minutes=1)
    assert Job(entrypoint="mail", payload=base64.b64encode(b"text").decode()).payload == b"text"  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        job.entrypoint = "sms"  # type: ignore[misc]


@pytest.mark.parametrize(("payload", "error"), [(5, TypeError), (None, TypeError), ("no base64!", ValueError)])
def test_a_payload_is_bytes_or_base64(payload: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Job(entrypoint="mail", payload=payload)


def test_a_job_is_copied_with_another_state() -> None:
    job = Job.new("mail", b"")
    now = datetime.now(UTC)
    running = job.with_status(JobStatus.IN_PROGRESS).with_heartbeat(now)
    assert (running.id, running.status, running.heartbeat_at) == (job.id, JobStatus.IN_PROGRESS, now)
    assert (job.status, job.heartbeat_at) == (JobStatus.QUEUED, None)


def test_a_state_is_put_together() -> None:
    assert QueueState() == QueueState(jobs=(), version=0)
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
    stale = Job.new("mail", b"").with_status(JobStatus.IN_PROGRESS).with_heartbeat(now - timedelta(hours=1))
    dead = Job.new("mail", b"").with_status(JobStatus.DEAD)
    state = QueueState((fresh, dead))
    assert state.requeue_stale(now - timedelta(minutes=1)) is state
    requeued = QueueState((stale, silent, dead), version=7).requeue_stale(now - timedelta(minutes=1))
    assert [job.status for job in requeued.jobs] == [JobStatus.QUEUED, JobStatus.QUEUED, JobStatus.DEAD]
    assert requeued.version == 8


def test_a_storage_error_says_its_cause() -> None:
    error = StorageError("write failed", OSError("disk full"))
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == "write failed: disk full"
        assert isinstance(one.cause, OSError)
