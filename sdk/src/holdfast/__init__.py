"""The client of the Holdfast job queue service.

from holdfast import AsyncClient

async with AsyncClient("http://127.0.0.1:8080") as client:
    mail = client.topic("mail")
    await mail.put()
    await mail.enqueue({"to": "ada@example.com"})
    claimed = await mail.claim(max=10, wait_ms=20_000)
    for job in claimed.jobs:
        send(job.data)
        await mail.ack(job)
"""

from holdfast import errors, models, sql
from holdfast._attempts import Options
from holdfast._client import AsyncClient, AsyncTopic, Client, SyncTopic
from holdfast._jqueue.manager import HeartbeatManager
from holdfast._jqueue.queues import BrokerQueue, DirectQueue
from holdfast._jqueue.state import Job, JobStatus, QueueState
from holdfast._objects import Objects
from holdfast._version import __version__
from holdfast._worker.context import AsyncContext, SyncContext
from holdfast._worker.handlers import Isolation, Queue, Schedule
from holdfast._worker.outcomes import Dead, Result, Retry
from holdfast._worker.running import async_context, sync_context
from holdfast._worker.worker import Worker
from holdfast.errors import (
    CASConflictError,
    HoldfastError,
    JobNotFoundError,
    JQueueError,
    LeaseLost,
    ObjectError,
    StorageError,
)
from holdfast.models import Record, TopicConfig

__all__ = [
    "AsyncClient",
    "AsyncContext",
    "AsyncTopic",
    "BrokerQueue",
    "CASConflictError",
    "Client",
    "Dead",
    "DirectQueue",
    "HeartbeatManager",
    "HoldfastError",
    "Isolation",
    "JQueueError",
    "Job",
    "JobNotFoundError",
    "JobStatus",
    "LeaseLost",
    "ObjectError",
    "Objects",
    "Options",
    "Queue",
    "QueueState",
    "Record",
    "Result",
    "Retry",
    "Schedule",
    "StorageError",
    "SyncContext",
    "SyncTopic",
    "TopicConfig",
    "Worker",
    "__version__",
    "async_context",
    "errors",
    "models",
    "sql",
    "sync_context",
]
