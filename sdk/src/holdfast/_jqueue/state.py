"""Jobs and queues as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class JobStatus(StrEnum):
    """Where a job is. A delayed one is QUEUED; DEAD is one that failed for good and has stayed in its topic."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job. `priority`: lower comes first. `heartbeat_at`: when its lease was last extended, None while it is
    queued. `deliveries`: how often it has been handed out. `lease_id` is that of its holder."""

    id: str
    entrypoint: str
    payload: bytes = field(repr=False)
    status: JobStatus
    priority: int
    created_at: datetime
    heartbeat_at: datetime | None = None
    deliveries: int = 0
    lease_id: str | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a queue holds, up to its first 10,000 jobs. `version` grows with each job that is put in."""

    jobs: tuple[Job, ...]
    version: int

    def queued_jobs(self, entrypoint: str | None = None) -> tuple[Job, ...]:
        """Those that wait, in the order of priority, and then of age."""
        waiting = self._of(JobStatus.QUEUED, entrypoint)
        return tuple(sorted(waiting, key=lambda job: (job.priority, job.created_at, int(job.id))))

    def in_progress_jobs(self, entrypoint: str | None = None) -> tuple[Job, ...]:
        """Those that somebody works on."""
        return tuple(self._of(JobStatus.IN_PROGRESS, entrypoint))

    def find(self, job_id: str) -> Job | None:
        """One of them by its id."""
        return next((job for job in self.jobs if job.id == job_id), None)

    def _of(self, status: JobStatus, entrypoint: str | None) -> Iterator[Job]:
        return (job for job in self.jobs if job.status is status and entrypoint in (None, job.entrypoint))
