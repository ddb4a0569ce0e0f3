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

from holdfast import errors, models
from holdfast._attempts import Options
from holdfast._client import AsyncClient, AsyncTopic, Client, SyncTopic
from holdfast._jqueue.manager import HeartbeatManager
from holdfast._jqueue.queues import BrokerQueue, DirectQueue
from holdfast._jqueue.state import Job, JobStatus, QueueState
from holdfast._version import __version__
from holdfast.errors import CASConflictError, HoldfastError, JobNotFoundError, JQueueError, LeaseLost, StorageError
from holdfast.models import Record, TopicConfig

__all__ = [
    "AsyncClient",
    "AsyncTopic",
    "BrokerQueue",
    "CASConflictError",
    "Client",
    "DirectQueue",
    "HeartbeatManager",
    "HoldfastError",
    "JQueueError",
    "Job",
    "JobNotFoundError",
    "JobStatus",
    "LeaseLost",
    "Options",
    "QueueState",
    "Record",
    "StorageError",
    "SyncTopic",
    "TopicConfig",
    "__version__",
    "errors",
    "models",
]
