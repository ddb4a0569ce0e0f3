"""Jobs whose deliveries are spent: out to the dead letters, failed, or delivered for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.api.dialect import Body, Topic, eventually, refused


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
    await queue.append({"data": 0}, {"data": data, "tag": "clip", "meta": {"trace": "z9"}})
    await queue.ack("n", [(await queue.take())["$seq"]])
    for delivery in (1, 2, 3):
        job = await queue.take()
        assert job["deliveries"] == delivery
        assert await dead_lettered(queue) == 0
        answer = await queue.nack("n", [job["$seq"]])
        assert (answer["nacked"], answer["skipped"], answer["in_flight"]) == (1, [], 0)
        assert answer["ready"] == (1 if delivery < 3 else 0)
    assert await dead_lettered(queue) == 1
    await is_gone(queue)

    [read] = (await dead.post("diff"))["records"]
    [moved] = (await dead.claim())["claimed"]
    assert read["meta"] == moved["meta"], "a reader learns where it came from as well"
    assert (moved["$seq"], moved["data"], moved["$tag"], moved["deliveries"]) == (1, data, "clip", 1)
    assert moved["meta"] == {
        "trace": "z9",
        "$dead_letter_from": queue.name,
        "$dead_letter_deliveries": "3",
        "$dead_letter_src_seq": "2",
    }


async def test_a_job_without_meta_of_its_own_gets_where_it_came_from(queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.append({"data": 1}, {"data": 2, "meta": {}}, {"data": 3, "meta": {"$dead_letter_from": "a lie"}})
    await queue.nack("n", [job["$seq"] for job in (await queue.claim(max=3))["claimed"]])
    for job in (await dead.claim(max=3))["claimed"]:
        assert job["meta"] == {
            "$dead_letter_from": queue.name,
            "$dead_letter_deliveries": "1",
            "$dead_letter_src_seq": str(job["data"]),
        }
    assert await dead_lettered(queue) == 3


async def test_a_silent_death_moves_the_job_at_the_next_claim(queue: Topic, dead: Topic) -> None:
    """Nobody says anything: two leases run out."""
    await queue.put(max_deliveries=2, dead_letter=dead.name)
    await queue.add(2)
    for delivery in (1, 2):
        job = await queue.take(lease_ms=100)
        assert (job["$seq"], job["deliveries"]) == (1, delivery)
        await queue.until_counts(3 - delivery, 0)
    # The claim meets the spent job first, and still gets the one behind it.
    assert (await queue.take())["$seq"] == 2
    assert await dead_lettered(queue) == 1
    [moved] = (await dead.claim())["claimed"]
    assert (moved["data"], moved["meta"]["$dead_letter_deliveries"]) == (1, "2")


async def test_who_waits_for_dead_letters_gets_them_at_once(queue: Topic, dead: Topic) -> None:
    await dead.put()
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(1)
    waiting = asyncio.create_task(dead.take("undertaker"))
    job = await queue.take()
    began = time.monotonic()
    await queue.nack("n", [job["$seq"]])
    assert (await waiting)["data"] == 1
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("delay_ms", [0, 60_000])
async def test_the_last_nack_asks_for_no_delay(queue: Topic, dead: Topic, delay_ms: int) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(1)
    await queue.take()
    await queue.nack("n", [1], delay_ms=delay_ms)
    assert (await dead.claim())["count"] == 1


async def test_an_ack_of_the_last_delivery_is_an_ack(queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(1)
    await queue.take()
    assert (await queue.ack("n", [1]))["acked"] == 1
    assert await dead_lettered(queue) == 0
    refused(await queue.http.get(dead.path), 404, "topic_not_found")


async def test_extending_the_last_delivery_keeps_it(queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(2)
    await queue.claim(max=2, lease_ms=500)
    assert (await queue.extend("n", [1], 60_000))["extended"] == 1

    async def one_has_gone() -> bool:
        assert (await queue.claim("other"))["count"] == 0
        return await dead_lettered(queue) == 1

    await eventually(one_has_gone)
    assert (await dead.take())["data"] == 2
    assert (await queue.ack("n", [1]))["acked"] == 1


@pytest.mark.parametrize("durable", [True, False])
async def test_an_absent_topic_for_dead_letters_is_made_as_a_queue(queue: Topic, dead: Topic, durable: bool) -> None:
    await queue.put(
        max_deliveries=1, dead_letter=dead.name, durable=durable, lease_ms=5_000, ttl_ms=3_600_000, dead_ttl_ms=0
    )
    refused(await queue.http.get(dead.path), 404, "topic_not_found")
    await queue.add(1)
    await queue.take()
    await queue.nack("n", [1])
    state = await dead.state()
    config = state["config"]
    assert (state["type"], config["durable"], config["lease_ms"], config["ttl_ms"]) == ("queue", durable, 30_000, 0)
    assert (config["max_deliveries"], config["dead_letter"], config["on_exhausted"]) == (0, None, "redeliver")
    assert config["dead_ttl_ms"] == 0, "as its source"
    assert (state["count"], state["queue"]["ready"], state["queue"]["dead_lettered"]) == (1, 1, 0)


async def test_it_is_made_again_after_it_was_deleted(queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(2)
    for _ in range(2):
        job = await queue.take()
        await queue.nack("n", [job["$seq"]])
        assert (await dead.take())["data"] == job["data"]
        await dead.drop()
    assert await dead_lettered(queue) == 2


async def test_a_dead_letter_is_an_ordinary_job(queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.append({"data": 1, "ttl_ms": 86_400_000, "max_deliveries": 1, "priority": 4})
    await queue.take()
    await queue.nack("n", [1])
    for delivery in (1, 2, 3, 4):  # its own end of deliveries does not follow it
        job = await dead.take()
        assert job["deliveries"] == delivery
        await dead.nack("n", [job["$seq"]])
    await dead.take()
    assert (await dead.ack("n", [job["$seq"]]))["acked"] == 1
    await is_gone(dead)


async def test_a_dead_letter_may_die_again(queue: Topic, dead: Topic) -> None:
    last = Topic(queue.http, f"{queue.name}.last")
    await dead.put(max_deliveries=2, dead_letter=last.name)
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.append({"data": "x", "tag": "t", "meta": {"k": 1}})
    await queue.take()
    await queue.nack("n", [1])
    for _ in range(2):
        await dead.nack("n", [(await dead.take())["$seq"]])
    job = await last.take()
    assert (job["data"], job["$tag"], job["meta"]["k"]) == ("x", "t", 1)
    assert job["meta"]["$dead_letter_from"] == dead.name
    assert job["meta"]["$dead_letter_deliveries"] == "2"


async def test_where_it_fails_it_is_gone_for_consumers(queue: Topic) -> None:
    await queue.put(max_deliveries=2, on_exhausted="fail")
    await queue.add(2)
    for _ in range(2):
        jobs = (await queue.claim(max=2))["claimed"]
        answer = await queue.nack("n", [job["$seq"] for job in jobs], errors=["boom", None])
        assert answer["nacked"] == 2
    await is_gone(queue)
    assert await dead_lettered(queue) == 0


async def test_where_it_fails_in_silence_too(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    await queue.add(1)
    await queue.take(lease_ms=100)

    async def failed() -> bool:
        claimed = await queue.claim("other")
        assert claimed["count"] == 0
        return bool((await queue.state())["count"] == 0)

    await eventually(failed)


async def test_without_a_topic_for_them_jobs_are_delivered_for_ever(queue: Topic) -> None:
    await queue.put(max_deliveries=1)
    await queue.add(1)
    for delivery in range(1, 6):
        job = await queue.take(lease_ms=100 if delivery % 2 else 30_000)
        assert job["deliveries"] == delivery
        if delivery % 2 == 0:
            await queue.nack("n", [1])
    assert await dead_lettered(queue) == 0


@pytest.mark.parametrize("exit_", ["dead_letter", "fail"])
async def test_no_job_is_ever_delivered_once_too_often(queue: Topic, dead: Topic, exit_: str) -> None:
    """Many workers who nack, fall silent and ack, on jobs of three deliveries each."""
    named = {"dead_letter": dead.name} if exit_ == "dead_letter" else {}
    await queue.put(max_deliveries=3, on_exhausted=exit_, **named)
    seqs = await queue.add(60)
    deliveries: dict[int, list[int]] = {seq: [] for seq in seqs}
    acked: list[int] = []

    async def worker(name: str, habit: int) -> None:
        while True:
            claimed = (await queue.claim(name, max=5, lease_ms=100, wait_ms=1_000))["claimed"]
            if not claimed:
                return
            mine = [job["$seq"] for job in claimed]
            for job in claimed:
                deliveries[job["$seq"]].append(job["deliveries"])
            if habit == 0:
                await queue.nack(name, mine)
            elif habit == 1:
                answer = await queue.ack(name, mine[:1])
                acked.extend(seq for seq in mine[:1] if seq not in answer["skipped"])

    await asyncio.gather(*(worker(f"w{i}", i % 3) for i in range(9)))
    assert all(sorted(told) == list(range(1, len(told) + 1)) for told in deliveries.values()), deliveries
    assert all(len(told) == 3 for seq, told in deliveries.items() if seq not in acked)
    await is_gone(queue)
    expected = 60 - len(acked) if exit_ == "dead_letter" else 0
    assert await dead_lettered(queue) == expected
    if expected:
        buried = (await dead.claim(max=100))["claimed"]
        assert sorted(int(job["meta"]["$dead_letter_src_seq"]) for job in buried) == sorted(set(seqs) - set(acked))


async def test_a_lower_limit_counts_for_jobs_that_had_more_already(queue: Topic, dead: Topic) -> None:
    await queue.add(2)
    for _ in range(3):
        await queue.nack("n", [(await queue.take())["$seq"]])
    await queue.put(max_deliveries=2, dead_letter=dead.name)
    assert (await queue.take())["$seq"] == 2
    assert (await dead.take())["meta"]["$dead_letter_deliveries"] == "3"
