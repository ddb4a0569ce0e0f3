"""Jobs whose deliveries are spent: out to the dead letters, failed, or delivered for ever."""

from __future__ import annotations

import pytest

from tests.api.dialect import Body, Topic, refused


@pytest.fixture
def dead(queue: Topic) -> Topic:
    """The name of a topic for dead letters; nobody has made it."""
    return Topic(queue.http, f"{queue.name}.dlq")


async def is_gone(queue: Topic) -> None:
    """Nothing is left to claim, nor in flight, nor counted."""
    assert (await queue.claim("last", max=1000))["count"] == 0
    state = await queue.state()
    assert (state["count"], state["queue"]["ready"], state["queue"]["in_flight"]) == (0, 0, 0)


async def dead_lettered(queue: Topic) -> int:
    count: int = (await queue.state())["queue"]["dead_lettered"]
    return count


async def test_the_nack_of_the_last_delivery_moves_the_job(queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=3, dead_letter=dead.name)
    data: Body = {"type": "transcode", "at": [1.5, None]}
    await queue.append(
        {"data": 0}, {"data": data, "tag": "clip", "meta": {"trace": "z9", "$dead_letter_from": "a lie"}}
    )
    await queue.ack("n", [(await queue.take())["$seq"]])
    for delivery in (1, 2, 3):
        assert (await queue.take())["deliveries"] == delivery
        assert await dead_lettered(queue) == 0
        answer = await queue.nack("n", [2], delay_ms=60_000 if delivery == 3 else 0)  # the last one waits for nothing
        assert (answer["nacked"], answer["skipped"], answer["in_flight"]) == (1, [], 0)
        assert answer["ready"] == (1 if delivery < 3 else 0)
    assert await dead_lettered(queue) == 1
    await is_gone(queue)
    [read] = (await dead.post("diff"))["records"]
    [moved] = (await dead.claim())["claimed"]
    assert read["meta"] == moved["meta"], "a reader learns where it came from as well"
    assert (moved["$seq"], moved["data"], moved["$tag"], moved["deliveries"]) == (1, data, "clip", 1)
    came_from = {"$dead_letter_from": queue.name, "$dead_letter_deliveries": "3", "$dead_letter_src_seq": "2"}
    assert moved["meta"] == {"trace": "z9", **came_from}


@pytest.mark.parametrize("durable", [True, False])
async def test_an_absent_topic_for_dead_letters_is_made_as_a_queue(queue: Topic, dead: Topic, durable: bool) -> None:
    settings = {"durable": durable, "lease_ms": 5_000, "ttl_ms": 3_600_000, "dead_ttl_ms": 0}
    await queue.put(max_deliveries=1, dead_letter=dead.name, **settings)
    await queue.add(3)
    assert (await queue.ack("n", [(await queue.take())["$seq"]]))["acked"] == 1
    refused(await queue.http.get(dead.path), 404, "topic_not_found")
    await queue.nack("n", [(await queue.take())["$seq"]])
    state = await dead.state()
    config = state["config"]
    assert (state["type"], config["durable"], config["lease_ms"], config["ttl_ms"]) == ("queue", durable, 30_000, 0)
    assert (config["max_deliveries"], config["dead_letter"], config["on_exhausted"]) == (0, None, "redeliver")
    assert config["dead_ttl_ms"] == 0, "as its source"
    assert (state["count"], state["queue"]["ready"], state["queue"]["dead_lettered"]) == (1, 1, 0)
    await dead.drop()
    await queue.nack("n", [(await queue.take())["$seq"]])
    assert (await dead.take())["data"] == 3, "it is made again after it was deleted"
    assert await dead_lettered(queue) == 2


async def test_a_dead_letter_is_an_ordinary_job_and_may_die_again(queue: Topic, dead: Topic) -> None:
    last = Topic(queue.http, f"{queue.name}.last")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.append({"data": "x", "tag": "t", "meta": {"k": 1}, "max_deliveries": 1})
    await queue.take()
    await queue.nack("n", [1])
    for delivery in (1, 2, 3):  # its own end of deliveries does not follow it
        assert (await dead.take())["deliveries"] == delivery
        await dead.nack("n", [1])
    await dead.put(max_deliveries=2, dead_letter=last.name)  # a lower limit counts for one that had more already
    assert (await dead.claim())["count"] == 0
    job = await last.take()
    assert (job["data"], job["$tag"], job["meta"]["k"]) == ("x", "t", 1)
    assert (job["meta"]["$dead_letter_from"], job["meta"]["$dead_letter_deliveries"]) == (dead.name, "3")
    assert (await last.ack("n", [job["$seq"]]))["acked"] == 1
    await is_gone(last)


async def test_without_a_topic_for_them_jobs_are_delivered_for_ever(queue: Topic) -> None:
    await queue.put(max_deliveries=1)
    await queue.add(1)
    for delivery in (1, 2, 3):
        assert (await queue.take())["deliveries"] == delivery
        await queue.nack("n", [1])
    assert await dead_lettered(queue) == 0
