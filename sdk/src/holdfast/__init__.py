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
from holdfast._version import __version__
from holdfast.errors import HoldfastError
from holdfast.models import Record, TopicConfig

__all__ = [
    "AsyncClient",
    "AsyncTopic",
    "Client",
    "HoldfastError",
    "Options",
    "Record",
    "SyncTopic",
    "TopicConfig",
    "__version__",
    "errors",
    "models",
]
