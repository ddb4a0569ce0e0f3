"""Messages through boto3: sent, received, deleted, hidden, in batches, in order; and as other dialects see them."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.sqs.conftest import Queue, Sqs


async def test_a_message_comes_back_as_it_was_sent(queue: Queue) -> None:
    """boto3 checks the digests of body and attributes itself."""
    given = {
        "colour": {"DataType": "String", "StringValue": "grün"},
        "weight": {"DataType": "Number.kg", "StringValue": "5.10"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988"}}
    sent = await queue.send("hello, wörld", MessageAttributes=given, MessageSystemAttributes=trace)
    [message] = await queue.receive()
    assert message["Body"] == "hello, wörld"
    assert message["MessageAttributes"] == given
    assert (message["MessageId"], message["MD5OfBody"]) == (sent["MessageId"], sent["MD5OfMessageBody"])
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    system = message["Attributes"]
    assert (system["AWSTraceHeader"], system["ApproximateReceiveCount"]) == ("Root=1-5759e988", "1")
    assert abs(int(system["SentTimestamp"]) - time.time() * 1000) < 60_000
    await queue.delete(message)
    await queue.delete(message)  # again changes nothing
    assert await queue.attributes("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible") == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
    }


async def test_attributes_are_given_as_they_are_asked_for(queue: Queue) -> None:
    names = ("a.one", "a.two", "b")
    await queue.send("x", MessageAttributes={n: {"DataType": "String", "StringValue": n} for n in names})
    for asked, found in ((["a.*"], {"a.one", "a.two"}), (["b", "none"], {"b"}), ([], set()), ([".*"], set(names))):
        answer = await queue.receive_message(MessageAttributeNames=asked, VisibilityTimeout=0)
        [message] = answer["Messages"]
        assert set(message.get("MessageAttributes", {})) == found
        assert "Attributes" not in message


@pytest.mark.parametrize(
    ("fields", "name", "said"),
    [
        ({"MessageBody": "a\x01"}, "InvalidMessageContents", "U+0001"),
        ({"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue", "DelaySeconds must be >= 0 and <= 900"),
        ({"MessageBody": "x", "MessageDeduplicationId": "d"}, "InvalidParameterValue", "not valid for this queue type"),
        ({"MessageBody": "x", "MessageGroupId": "ü"}, "InvalidParameterValue", "punctuation characters"),
        ({"MessageBody": "x" * 1_048_577}, "InvalidParameterValue", "shorter than 1048576 bytes"),
        (
            {"MessageBody": "x", "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "five"}}},
            "InvalidParameterValue",
            "number",
        ),
        (
            {"MessageBody": "x", "MessageAttributes": {"aws.x": {"DataType": "String", "StringValue": "v"}}},
            "InvalidParameterValue",
            "attribute name 'aws.x' is invalid",
        ),
    ],
)
async def test_what_sqs_refuses_is_refused(queue: Queue, fields: dict[str, object], name: str, said: str) -> None:
    code, message = await queue.refuses("send_message", **fields)
    assert code == name
    assert said in message
    assert await queue.receive() == []


async def test_a_message_is_hidden_for_as_long_as_its_holder_says(queue: Queue) -> None:
    await queue.send("x")
    [message] = await queue.receive()
    assert await queue.receive() == []
    await queue.hide(message, 0)
    [again] = await queue.receive(WaitTimeSeconds=5)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    first = int(again["Attributes"]["ApproximateFirstReceiveTimestamp"])
    assert abs(first - int(message["Attributes"]["ApproximateFirstReceiveTimestamp"])) < 1_000
    await queue.hide(again, 3_600)
    code, _ = await queue.refuses(
        "change_message_visibility", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=60
    )
    assert code == "MessageNotInflight", "the first delivery holds nothing any more"
    code, _ = await queue.refuses("change_message_visibility", ReceiptHandle="none", VisibilityTimeout=60)
    assert code == "ReceiptHandleIsInvalid"


async def test_a_standard_queue_takes_a_late_delete_until_somebody_else_has_received(queue: Queue) -> None:
    for _ in range(2):
        await queue.send("x")
    late, overtaken = await queue.receive(VisibilityTimeout=1)
    await asyncio.sleep(1.1)
    await queue.delete(late)
    [again] = await queue.receive(WaitTimeSeconds=5)
    await queue.delete(overtaken)
    assert await queue.attributes("ApproximateNumberOfMessagesNotVisible") == {
        "ApproximateNumberOfMessagesNotVisible": "1"
    }, "who received it since still holds it"
    await queue.delete(again)


async def test_a_fifo_queue_refuses_a_late_delete(fifo: Queue) -> None:
    await fifo.send("x", MessageGroupId="g")
    [message] = await fifo.receive(VisibilityTimeout=1)
    await asyncio.sleep(1.1)
    code, said = await fifo.refuses("delete_message", ReceiptHandle=message["ReceiptHandle"])
    assert (code, "has expired" in said) == ("InvalidParameterValue", True)
    [again] = await fifo.receive(WaitTimeSeconds=5)
    await fifo.delete(again)
    await fifo.delete(again)


async def test_an_entry_of_a_batch_fails_alone(queue: Queue) -> None:
    sent = await queue.send_message_batch(
        Entries=[{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "2", "DelaySeconds": 901}]
    )
    assert [one["Id"] for one in sent["Successful"]] == ["a"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in sent["Failed"]] == [
        ("b", "InvalidParameterValue", True)
    ]
    [message] = await queue.receive()
    done = await queue.delete_message_batch(
        Entries=[{"Id": "a", "ReceiptHandle": message["ReceiptHandle"]}, {"Id": "b", "ReceiptHandle": "none"}]
    )
    assert ([one["Id"] for one in done["Successful"]], done["Failed"][0]["Code"]) == (["a"], "ReceiptHandleIsInvalid")


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(n), "MessageBody": "x"} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a", "MessageBody": "x"}] * 2, "BatchEntryIdsNotDistinct"),
        ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId"),
        ([{"Id": str(n), "MessageBody": "x" * 700_000} for n in range(2)], "BatchRequestTooLong"),
    ],
)
async def test_a_batch_that_makes_no_sense_is_refused_whole(
    queue: Queue, entries: list[dict[str, str]], name: str
) -> None:
    assert (await queue.refuses("send_message_batch", Entries=entries))[0] == name


async def test_a_fifo_queue_keeps_order_within_groups_and_drops_duplicates(fifo: Queue) -> None:
    for body, group in (("1", "a"), ("2", "a"), ("3", "b")):
        await fifo.send(body, MessageGroupId=group)
    twice = [await fifo.send("4", MessageGroupId="b", MessageDeduplicationId="d") for _ in range(2)]
    assert twice[0]["SequenceNumber"] == twice[1]["SequenceNumber"]
    other = await fifo.send("4", MessageGroupId="a", MessageDeduplicationId="d")
    assert other["MessageId"] == twice[0]["MessageId"], "an id counts in the whole queue"
    one, three = await fifo.receive()
    assert [(one["Body"], one["Attributes"]["MessageGroupId"]), three["Body"]] == [("1", "a"), "3"]
    assert len(one["Attributes"]["SequenceNumber"]) == 20
    assert await fifo.receive() == [], "one message of a group is out at a time"
    await fifo.delete(one)
    [two] = await fifo.receive(WaitTimeSeconds=5)
    assert two["Body"] == "2"
    code, _ = await fifo.refuses("send_message", MessageBody="x")
    assert code == "MissingParameter"


async def test_ids_count_by_group_where_the_queue_says_so(sqs: Sqs, topic: str) -> None:
    queue = await sqs.make(f"{topic}.fifo", FifoQueue="true", DeduplicationScope="messageGroup")
    sent = [await queue.send("x", MessageGroupId=group, MessageDeduplicationId="d") for group in "aab"]
    assert len({one["MessageId"] for one in sent}) == 2


async def test_a_waiting_receiver_has_the_message_at_once(queue: Queue) -> None:
    waiting = asyncio.create_task(queue.receive(WaitTimeSeconds=20))
    await asyncio.sleep(0.3)
    await queue.send("x")
    began = time.monotonic()
    assert len(await waiting) == 1
    assert time.monotonic() - began < 10


async def test_a_message_received_too_often_is_a_dead_letter_and_can_be_moved_back(sqs: Sqs, topic: str) -> None:
    dead = await sqs.make(f"{topic}-dead")
    arn = (await dead.attributes("QueueArn"))["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "2"}}'
    queue = await sqs.make(topic, RedrivePolicy=policy)
    sent = await queue.send("x")
    for _ in range(2):
        [message] = await queue.receive(WaitTimeSeconds=5)
        await queue.hide(message, 0)
    [letter] = await dead.receive(WaitTimeSeconds=5)
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(f":{topic}")
    await dead.hide(letter, 0)
    assert (await dead.list_dead_letter_source_queues())["queueUrls"] == [queue.url]
    task = (await sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=100))["TaskHandle"]
    [back] = await queue.receive(WaitTimeSeconds=10)
    assert back["Body"] == "x"
    [shown] = (await sqs.list_message_move_tasks(SourceArn=arn))["Results"]
    assert shown["ApproximateNumberOfMessagesMoved"] == 1
    assert (await sqs.refused("cancel_message_move_task", TaskHandle=task))[0] == "InvalidParameterValue"
    other = (await queue.attributes("QueueArn"))["QueueArn"]
    assert (await sqs.refused("start_message_move_task", SourceArn=other))[0] == "InvalidParameterValue"


async def test_every_dialect_has_the_same_jobs(queue: Queue, http: httpx.AsyncClient) -> None:
    await queue.send('{"order": 1}', MessageAttributes={"colour": {"DataType": "String", "StringValue": "red"}})
    path = f"/v0/topics/{queue.name}"
    assert (await http.get(f"{path}/jobs/1/explain")).status_code == 200
    [job] = (await http.post(f"{path}/claim", json={"node": "w"})).json()["claimed"]
    assert (job["data"], job["meta"]["colour"]) == ({"order": 1}, "red")
    acked = (await http.post(f"{path}/ack", json={"node": "w", "seqs": [1]})).json()
    assert acked["acked"] == 1
    await http.post(path, json={"records": [{"data": {"order": 2}, "meta": {"size": "L", "n": 5}}]})
    [message] = await queue.receive()
    assert message["Body"] == '{"order":2}'
    assert message["MessageAttributes"] == {"size": {"DataType": "String", "StringValue": "L"}}


async def test_an_ack_of_v0_counts_late_where_it_says_so(queue: Queue, http: httpx.AsyncClient) -> None:
    await queue.send("x")
    path = f"/v0/topics/{queue.name}"
    [job] = (await http.post(f"{path}/claim", json={"node": "w", "lease_ms": 100})).json()["claimed"]
    await asyncio.sleep(0.2)
    body = {"node": "w", "seqs": [1], "lease_ids": [job["lease_id"]]}
    assert (await http.post(f"{path}/ack", json=body)).json()["skipped"] == [1]
    assert (await http.post(f"{path}/ack", json={**body, "late": True})).json()["acked"] == 1
