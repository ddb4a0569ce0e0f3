"""Queues through boto3: created, described, changed, listed, tagged, purged and deleted."""

from __future__ import annotations

import json

import pytest

from tests.sqs.conftest import Queue, Sqs


async def test_a_queue_is_created_once(sqs: Sqs, topic: str) -> None:
    queue = await sqs.make(topic, VisibilityTimeout="45", DelaySeconds="5")
    assert (await sqs.make(topic, VisibilityTimeout="45")).url == queue.url
    code, said = await sqs.refused("create_queue", QueueName=topic, Attributes={"DelaySeconds": "6"})
    assert (code, "DelaySeconds" in said) == ("QueueNameExists", True)
    assert (await sqs.get_queue_url(QueueName=topic))["QueueUrl"] == queue.url
    assert (await sqs.refused("get_queue_url", QueueName=f"{topic}-none"))[0] == "QueueDoesNotExist"


async def test_attributes_are_as_they_were_set(sqs: Sqs, topic: str) -> None:
    queue = await sqs.make(topic, MessageRetentionPeriod="3600")
    before = await queue.attributes()
    assert before["MessageRetentionPeriod"] == "3600"
    assert before["VisibilityTimeout"] == "30"
    assert before["QueueArn"] == f"arn:aws:sqs:eu-central-1:000000000000:{topic}"
    await queue.set_queue_attributes(
        Attributes={"VisibilityTimeout": "0", "ReceiveMessageWaitTimeSeconds": "1", "MaximumMessageSize": "1024"}
    )
    after = await queue.attributes()
    assert {**before, "VisibilityTimeout": "0", "ReceiveMessageWaitTimeSeconds": "1", "MaximumMessageSize": "1024"} == {
        **after,
        "LastModifiedTimestamp": before["LastModifiedTimestamp"],
    }
    assert (await queue.refuses("send_message", MessageBody="x" * 1025))[0] == "InvalidParameterValue"
    await queue.send("x")
    assert [len(await queue.receive()) for _ in range(2)] == [1, 1], "hidden for no time"


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({"Nonsense": "1"}, "InvalidAttributeName"),
        ({"QueueArn": "arn"}, "InvalidAttributeName"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "59"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": "{}"}, "InvalidParameterValue"),
        (
            {"RedrivePolicy": '{"deadLetterTargetArn": "arn:aws:sqs:r:0:none", "maxReceiveCount": 1}'},
            "InvalidParameterValue",
        ),
        ({"FifoQueue": "true"}, "InvalidParameterValue"),
    ],
)
async def test_an_attribute_that_makes_no_sense_is_refused(
    sqs: Sqs, topic: str, attributes: dict[str, str], name: str
) -> None:
    assert (await sqs.refused("create_queue", QueueName=topic, Attributes=attributes))[0] == name
    assert (await sqs.refused("get_queue_url", QueueName=topic))[0] == "QueueDoesNotExist"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 81, "-a"])
async def test_a_name_is_checked(sqs: Sqs, name: str) -> None:
    assert (await sqs.refused("create_queue", QueueName=name))[0] == "InvalidParameterValue"


async def test_who_may_send_dead_letters_is_asked(sqs: Sqs, topic: str) -> None:
    nobody = json.dumps({"redrivePermission": "denyAll"})
    dead = await sqs.make(f"{topic}-dead", RedriveAllowPolicy=nobody)
    arn = (await dead.attributes("QueueArn"))["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    assert (await sqs.refused("create_queue", QueueName=topic, Attributes={"RedrivePolicy": redrive}))[0] == (
        "InvalidParameterValue"
    )
    await dead.set_queue_attributes(Attributes={"RedriveAllowPolicy": ""})
    queue = await sqs.make(topic, RedrivePolicy=redrive)
    assert (await queue.attributes("RedrivePolicy"))["RedrivePolicy"] == redrive
    await queue.set_queue_attributes(Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in await queue.attributes()


async def test_queues_are_listed_by_prefix_a_page_at_a_time(sqs: Sqs, topic: str) -> None:
    made = [(await sqs.make(f"{topic}-{n}")).url for n in range(3)]
    first = await sqs.list_queues(QueueNamePrefix=f"{topic}-", MaxResults=2)
    rest = await sqs.list_queues(QueueNamePrefix=f"{topic}-", MaxResults=2, NextToken=first["NextToken"])
    assert first["QueueUrls"] + rest["QueueUrls"] == made
    assert "NextToken" not in rest
    assert (await sqs.refused("list_queues", NextToken="%"))[0] == "InvalidParameterValue"


async def test_tags_and_permissions_are_kept(queue: Queue) -> None:
    await queue.tag_queue(Tags={"team": "a", "cost": ""})
    await queue.untag_queue(TagKeys=["team"])
    assert (await queue.list_queue_tags())["Tags"] == {"cost": ""}
    await queue.add_permission(Label="send", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    [statement] = json.loads((await queue.attributes("Policy"))["Policy"])["Statement"]
    assert (statement["Sid"], statement["Action"]) == ("send", "SQS:SendMessage")
    await queue.remove_permission(Label="send")
    assert "Policy" not in await queue.attributes()


async def test_a_purge_empties_a_queue_once_a_minute(queue: Queue) -> None:
    for _ in range(3):
        await queue.send("x")
    [held] = await queue.receive(1)
    await queue.purge_queue()
    counts = await queue.attributes("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    assert set(counts.values()) == {"0"}
    await queue.delete(held)
    assert (await queue.refuses("purge_queue"))[0] == "PurgeQueueInProgress"


async def test_a_deleted_queue_is_gone_with_its_tags(queue: Queue) -> None:
    await queue.tag_queue(Tags={"team": "a"})
    await queue.delete_queue()
    assert (await queue.refuses("delete_queue"))[0] == "QueueDoesNotExist"
    again = await queue.sqs.make(queue.name)
    assert "Tags" not in await again.list_queue_tags()
