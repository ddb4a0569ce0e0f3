"""The query protocol, of clients that speak no JSON: forms, and answers in XML."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from tests.sqs.conftest import Queue

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def texts(answer: httpx.Response, name: str) -> list[str]:
    """The texts of all elements of a name."""
    assert answer.headers["content-type"].startswith("text/xml")
    return [one.text or "" for one in ElementTree.fromstring(answer.text).iter(NAMESPACE + name)]


async def ask(http: httpx.AsyncClient, queue: Queue, action: str, **fields: Any) -> httpx.Response:
    form = {"Action": action, **{name.replace("__", "."): value for name, value in fields.items()}}
    return await http.post(f"/000000000000/{queue.name}", data=form)


async def test_a_message_goes_there_and_back(http: httpx.AsyncClient, queue: Queue) -> None:
    sent = await ask(
        http, queue, "SendMessage", MessageBody="<&>", MessageAttribute__1__Name="n",
        MessageAttribute__1__Value__DataType="Number", MessageAttribute__1__Value__StringValue="5",
    )  # fmt: skip
    [message_id] = texts(sent, "MessageId")
    got = await ask(
        http, queue, "ReceiveMessage", AttributeName__1="All", MessageAttributeName__1="All", MaxNumberOfMessages="10"
    )
    assert (texts(got, "Body"), texts(got, "MessageId")) == (["<&>"], [message_id])
    assert {"ApproximateReceiveCount", "n"} <= set(texts(got, "Name"))
    assert texts(got, "StringValue") == ["5"]
    [handle] = texts(got, "ReceiptHandle")
    gone = await ask(http, queue, "DeleteMessage", ReceiptHandle=handle)
    assert gone.text.startswith('<?xml version="1.0"?><DeleteMessageResponse')
    assert texts(gone, "RequestId")


async def test_batches_and_lists(http: httpx.AsyncClient, queue: Queue) -> None:
    sent = await ask(
        http, queue, "SendMessageBatch",
        SendMessageBatchRequestEntry__1__Id="a", SendMessageBatchRequestEntry__1__MessageBody="1",
        SendMessageBatchRequestEntry__2__Id="b", SendMessageBatchRequestEntry__2__MessageBody="2",
        SendMessageBatchRequestEntry__2__DelaySeconds="901",
    )  # fmt: skip
    root = ElementTree.fromstring(sent.text)
    assert [one.findtext(f"{NAMESPACE}Id") for one in root.iter(f"{NAMESPACE}SendMessageBatchResultEntry")] == ["a"]
    assert [one.findtext(f"{NAMESPACE}Id") for one in root.iter(f"{NAMESPACE}BatchResultErrorEntry")] == ["b"]
    listed = await http.post("/", data={"Action": "ListQueues", "QueueNamePrefix": queue.name})
    assert texts(listed, "QueueUrl") == [queue.url]
    found = await ask(http, queue, "GetQueueAttributes", AttributeName__1="QueueArn")
    assert (texts(found, "Name"), texts(found, "Value")[0][:8]) == (["QueueArn"], "arn:aws:")


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (
            {"Action": "SendMessage", "QueueUrl": "http://x/0/none", "MessageBody": "x"},
            "AWS.SimpleQueueService.NonExistentQueue",
        ),
        ({"Action": "SendMessage", "MessageBody": "x"}, "MissingParameter"),
        ({"Action": "Nonsense"}, "InvalidAction"),
        ({"Version": "2012-11-05"}, "MissingAction"),
        ({"Action": "ListQueues", "MaxResults": "many"}, "InvalidParameterValue"),
        ({"Action": "ListQueues", "Action.1": "x"}, "InvalidParameterValue"),
    ],
)
async def test_an_error_has_its_code(http: httpx.AsyncClient, form: dict[str, str], code: str) -> None:
    answer = await http.post("/", data=form)
    assert (answer.status_code, texts(answer, "Code"), texts(answer, "Type")) == (400, [code], ["Sender"])


async def test_json_that_is_none_is_refused_in_json(http: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "AmazonSQS.ListQueues"}
    answer = await http.post("/", content=b"[1]", headers=headers)
    assert (answer.status_code, answer.json()["__type"]) == (400, "com.amazonaws.sqs#SerializationException")
    answer = await http.post("/", content=b"{}", headers={**headers, "x-amz-target": "DynamoDB.ListTables"})
    assert answer.json()["__type"].endswith("#UnknownOperationException")
