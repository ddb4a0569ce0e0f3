"""boto3 against the service of the tests: each call in a thread, as the service runs in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.conftest import Running

REGION = "eu-central-1"


class Sqs:
    """A client, whose methods are awaited."""

    def __init__(self, url: str, access_key: str = "any", secret: str = "any") -> None:
        self.client = boto3.client(
            "sqs",
            endpoint_url=url,
            region_name=REGION,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret,
            config=Config(retries={"total_max_attempts": 1}, read_timeout=35),
        )

    def __getattr__(self, name: str) -> Callable[..., Awaitable[dict[str, Any]]]:
        return partial(asyncio.to_thread, getattr(self.client, name))

    async def refused(self, name: str, **fields: object) -> tuple[str, str]:
        """The code and the message with which a call is refused."""
        with pytest.raises(self.client.exceptions.ClientError) as raised:
            await getattr(self, name)(**fields)
        error = raised.value.response["Error"]
        return error.get("QueryErrorCode", error["Code"]), error["Message"]

    async def make(self, name: str, **attributes: str) -> Queue:
        """A queue."""
        return Queue(self, (await self.create_queue(QueueName=name, Attributes=attributes))["QueueUrl"])


class Queue:
    """A queue of such a client."""

    def __init__(self, sqs: Sqs, url: str) -> None:
        self.sqs = sqs
        self.url = url
        self.name = url.rpartition("/")[2]

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return partial(getattr(self.sqs, name), QueueUrl=self.url)

    async def send(self, body: str, **fields: object) -> dict[str, Any]:
        return dict(await self.send_message(MessageBody=body, **fields))

    async def receive(self, most: int = 10, **fields: object) -> list[dict[str, Any]]:
        """With all that a message has."""
        names = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = await self.receive_message(MaxNumberOfMessages=most, **names, **fields)
        return list(answer.get("Messages", []))

    async def delete(self, message: dict[str, Any]) -> None:
        await self.delete_message(ReceiptHandle=message["ReceiptHandle"])

    async def hide(self, message: dict[str, Any], seconds: int) -> None:
        await self.change_message_visibility(ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds)

    async def attributes(self, *names: str) -> dict[str, str]:
        return dict((await self.get_queue_attributes(AttributeNames=[*names] or ["All"])).get("Attributes", {}))

    async def refuses(self, name: str, **fields: object) -> tuple[str, str]:
        return await self.sqs.refused(name, QueueUrl=self.url, **fields)


@pytest.fixture
async def sqs(service: Running) -> Sqs:
    return await asyncio.to_thread(Sqs, service.url)


@pytest.fixture
async def queue(sqs: Sqs, topic: str) -> Queue:
    """A standard queue."""
    return await sqs.make(topic)


@pytest.fixture
async def fifo(sqs: Sqs, topic: str) -> Queue:
    """A FIFO queue that takes the digest of a body where no deduplication id is given."""
    return await sqs.make(f"{topic}.fifo", FifoQueue="true", ContentBasedDeduplication="true")
