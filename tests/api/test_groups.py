"""Groups in both dialects. docs/order.md."""

from __future__ import annotations

import httpx

from tests.api.dialect import Topic, accepted, refused
from tests.api.messages.client import Messages


async def test_a_group_comes_out_one_by_one_and_is_shown(queue: Topic) -> None:
    messages = Messages(queue.http, queue.name)
    await queue.append({"data": 1, "group": "a"}, {"data": 3, "group": "b"}, {"data": 4})
    two = await messages.put("2", group="a")
    claimed = (await queue.claim(max=10))["claimed"]
    assert [(job["data"], job.get("group")) for job in claimed] == [(1, "a"), (3, "b"), (4, None)]
    shown = await messages.get(two)
    assert (shown["status"], shown["group"]) == ("pending", "a")
    await queue.ack("n", [1])
    assert [(taken["id"], taken["group"]) for taken in await messages.dequeue(10)] == [(two, "a")]


async def test_a_dead_letter_shows_its_group_and_goes_back_into_it(http: httpx.AsyncClient, topic: str) -> None:
    messages, dead = Messages(http, topic), Messages(http, f"{topic}.dlq")
    one, two = await messages.batch(*({"payload": str(n), "group": "a", "max_deliveries": 1} for n in range(2)))
    for each in (one, two):
        assert (await messages.take())["id"] == each
        await messages.nack(each)
    assert [(taken["id"], taken["group"]) for taken in await dead.dequeue(10)] == [(one, "a"), (two, "a")]
    for each in (two, one):
        await dead.nack(each)
        assert (await messages.verb(each, "requeue")).is_success
    assert (await messages.take())["id"] == two, "nothing of its group was out"
    await messages.ack(two)
    assert (await messages.take())["id"] == one


async def test_a_fifo_topic_asks_for_a_group(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, f"{topic}.fifo")
    one = {"topic": queue.name, "payload": "1"}
    refused(await http.post("/api/messages", json=one), 400, "invalid_request")
    many = {"topic": queue.name, "messages": [{"payload": "1", "group": "a"}, {"payload": "2"}]}
    error = refused(await http.post("/api/messages/batch", json=many), 400, "invalid_request")
    assert "Record 1 has none" in error["message"]
    body = {"records": [{"data": 1}], "create": True, "config": {"type": "queue"}}
    refused(await http.post(queue.path, json=body), 400, "invalid_request")
    assert (await http.get(queue.path)).status_code == 404, "nothing was made of a call that is refused"
    assert await Messages(http, queue.name).put("1", group="a") == (await Messages(http, queue.name).take())["id"]
    body = {"records": [{"data": 1, "group": "a"}, {"data": 2}]}
    refused(await http.post(queue.path, json=body), 400, "invalid_request")
    assert await queue.counts() == (0, 1)
    log = Topic(http, f"{topic}.log.fifo")
    accepted(await http.put(log.path, json={"type": "log"}))
    assert (await log.append({"data": 1}))["seqs"] == [1]
