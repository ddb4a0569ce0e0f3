"""Groups in both dialects. docs/groups.md."""

from __future__ import annotations

import httpx
import pytest

from tests.api.dialect import Topic, accepted, refused
from tests.api.messages.client import Messages


async def test_a_group_comes_out_one_by_one(queue: Topic) -> None:
    await queue.append({"data": 1, "group": "a"}, {"data": 2, "group": "a"}, {"data": 3, "group": "b"}, {"data": 4})
    claimed = (await queue.claim(max=10))["claimed"]
    assert [(job["data"], job.get("group")) for job in claimed] == [(1, "a"), (3, "b"), (4, None)]
    assert (await queue.ack("n", [1]))["acked"] == 1
    assert [job["data"] for job in (await queue.claim(max=10))["claimed"]] == [2]


async def test_a_message_shows_its_group(http: httpx.AsyncClient, topic: str) -> None:
    messages = Messages(http, topic)
    one, two = await messages.batch({"payload": "1", "group": "a"}, {"payload": "2", "group": "a"})
    assert [(taken["id"], taken["group"]) for taken in await messages.dequeue(10)] == [(one, "a")]
    shown = await messages.get(two)
    assert (shown["status"], shown["group"]) == ("pending", "a")
    await messages.ack(one)
    assert [taken["id"] for taken in await messages.dequeue(10)] == [two]


async def test_a_dead_letter_shows_its_group_and_goes_back_into_it(http: httpx.AsyncClient, topic: str) -> None:
    messages = Messages(http, topic)
    one, two = await messages.batch(*({"payload": str(n), "group": "a", "max_deliveries": 1} for n in range(2)))
    for each in (one, two):
        assert [taken["id"] for taken in await messages.dequeue(10)] == [each]
        await messages.nack(each)
    dead = await messages.of(f"{topic}.dlq").dequeue(10)
    assert [(taken["id"], taken["group"]) for taken in dead] == [(one, "a"), (two, "a")]
    for each in (one, two):
        await messages.of(f"{topic}.dlq").nack(each)
    assert (await http.post(f"/api/messages/{two}/requeue")).status_code in {200, 202, 204}
    assert (await http.post(f"/api/messages/{one}/requeue")).status_code in {200, 202, 204}
    assert (await messages.take())["id"] == two, "nothing of its group was out"
    await messages.ack(two)
    assert (await messages.take())["id"] == one


async def test_a_fifo_topic_asks_for_a_group(http: httpx.AsyncClient, topic: str) -> None:
    name = f"{topic}.fifo"
    messages = Messages(http, name)
    answer = await http.post("/api/messages", json={"topic": name, "payload": "1"})
    refused(answer, 400, "invalid_request")
    many = {"topic": name, "messages": [{"payload": "1", "group": "a"}, {"payload": "2"}]}
    answer = await http.post("/api/messages/batch", json=many)
    refused(answer, 400, "invalid_request")
    assert "record 1 has none" in answer.text
    config = {"type": "queue"}
    answer = await http.post(f"/v0/topics/{name}", json={"records": [{"data": 1}], "create": True, "config": config})
    refused(answer, 400, "invalid_request")
    assert (await http.get(f"/v0/topics/{name}")).status_code == 404, "nothing was made of a call that is refused"
    one = await messages.put("1", group="a")
    assert (await messages.take())["id"] == one
    queue = Topic(http, name)
    refused(
        await http.post(queue.path, json={"records": [{"data": 1, "group": "a"}, {"data": 2}]}), 400, "invalid_request"
    )
    assert await queue.counts() == (0, 1)


async def test_a_log_of_that_name_takes_records_as_they_are(http: httpx.AsyncClient, topic: str) -> None:
    log = Topic(http, f"{topic}.fifo")
    accepted(await http.put(log.path, json={"type": "log"}))
    assert (await log.append({"data": 1}))["seqs"] == [1]


@pytest.mark.parametrize("group", [5, "", "a\0", "x" * 129])
async def test_what_is_no_group_is_refused(queue: Topic, group: object) -> None:
    refused(await queue.http.post(queue.path, json={"records": [{"data": 1, "group": group}]}), 400, "invalid_request")
    message = {"topic": queue.name, "payload": "1", "group": group}
    refused(await queue.http.post("/api/messages", json=message), 400, "invalid_request")
    assert (await queue.append({"data": 1, "group": "\U0001f680" * 128}))["seqs"] == [1]
