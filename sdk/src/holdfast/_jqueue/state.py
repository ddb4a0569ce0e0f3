"""Jobs and queues as values."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.errors import JobNotFoundError


class JobStatus(StrEnum):
    """A job's state. Scheduled jobs are QUEUED. DEAD jobs failed for good and stayed in their topic."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job.

    - priority: lower comes first.
    - heartbeat_at: when its lease was last extended; None while it is queued.
    - deliveries: how often it was delivered.
    - lease_id: of the current lease.

    A job that you make has a random id until it is enqueued. Its payload may be bytes or base64 text."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    entrypoint: str
    payload: bytes = field(repr=False)
    status: JobStatus = JobStatus.QUEUED
    priority: int = 0
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    heartbeat_at: datetime | None = None
    deliveries: int = 0
    lease_id: str | None = None

    def __post_init__(self) -> None:
        payload: Any = self.payload
        if isinstance(payload, str):
            object.__setattr__(self, "payload", base64.b64decode(payload, validate=True))
        elif not isinstance(payload, bytes):
            raise TypeError(f"payload must be bytes or base64 text, not {type(payload).__name__}")

    @classmethod
    def new(cls, entrypoint: str, payload: bytes, priority: int = 0) -> Job:
        """Make a queued job with a random id."""
        return cls(entrypoint=entrypoint, payload=payload, priority=priority)

    def with_status(self, status: JobStatus) -> Job:
        """The same job in another state."""
        return replace(self, status=status)

    def with_heartbeat(self, ts: datetime | None) -> Job:
        """The same job with another time of its last heartbeat."""
        return replace(self, heartbeat_at=ts)


@dataclass(frozen=True, slots=True)
class QueueState:
    """A copy of a queue's first 10,000 jobs. `version` grows with each enqueued job. Changes of the copy don't affect
    the service."""

    jobs: tuple[Job, ...] = ()
    version: int = 0

    def queued_jobs(self, entrypoint: str | None = None) -> tuple[Job, ...]:
        """Queued jobs, by priority, then by age."""
        waiting = self._of(JobStatus.QUEUED, entrypoint)
        return tuple(sorted(waiting, key=lambda job: (job.priority, job.created_at)))

    def in_progress_jobs(self, entrypoint: str | None = None) -> tuple[Job, ...]:
        """Jobs that a worker holds."""
        return tuple(self._of(JobStatus.IN_PROGRESS, entrypoint))

    def find(self, job_id: str) -> Job | None:
        """The job with this id, or None."""
        return next((job for job in self.jobs if job.id == job_id), None)

    def with_job_added(self, job: Job) -> QueueState:
        """A copy with one more job."""
        return QueueState((*self.jobs, job), self.version + 1)

    def with_job_replaced(self, updated: Job) -> QueueState:
        """A copy with the job of the same id replaced. Raises JobNotFoundError."""
        if self.find(updated.id) is None:
            raise JobNotFoundError(updated.id)
        return QueueState(tuple(updated if job.id == updated.id else job for job in self.jobs), self.version + 1)

    def with_job_removed(self, job_id: str) -> QueueState:
        """A copy without this job. Raises JobNotFoundError."""
        if self.find(job_id) is None:
            raise JobNotFoundError(job_id)
        return QueueState(tuple(job for job in self.jobs if job.id != job_id), self.version + 1)

    def requeue_stale(self, cutoff: datetime) -> QueueState:
        """A copy in which jobs with a last heartbeat before `cutoff` are queued; this object if there are none."""
        jobs = tuple(
            job.with_status(JobStatus.QUEUED).with_heartbeat(None) if is_stale(job, cutoff) else job
            for job in self.jobs
        )
        return self if jobs == self.jobs else QueueState(jobs, self.version + 1)

    def _of(self, status: JobStatus, entrypoint: str | None) -> Iterator[Job]:
        return (job for job in self.jobs if job.status is status and entrypoint in (None, job.entrypoint))


def is_stale(job: Job, cutoff: datetime) -> bool:
    """Whether a worker holds the job and has sent no heartbeat since `cutoff`."""
    return job.status == JobStatus.IN_PROGRESS and (job.heartbeat_at is None or job.heartbeat_at < cutoff)


def check_interval(name: str, value: timedelta) -> None:
    """Raises TypeError for another type."""
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {value!r}")
