"""return_counts=false: the answers to workers' verbs without what the queue has left."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.conftest import Running

SETTLING = ("ack", "nack", "fail")


async def asked(queue: Topic, verb: str, query: str, **body: object) -> Body:
    return accepted(await queue.http.post(f"{queue.path}/{verb}{query}", json={"node": "n", **body}))


@pytest.mark.parametrize("verb", SETTLING)
async def test_they_are_left_out_on_demand(queue: Topic, verb: str) -> None:
    await queue.add(6)
    for query, left in (("", {"ready"}), ("?return_counts=true", {"ready"}), ("?return_counts=false", set())):
        claimed = await asked(queue, "claim", query)
        assert set(claimed) == {"topic", "claimed", "count", "performance"} | left
        settled = await asked(queue, verb, query, seqs=[claimed["claimed"][0]["$seq"]])
        assert len(settled["skipped"]) == 0
        assert {"ready", "in_flight"} & set(settled) == (left and {"ready", "in_flight"})


async def test_what_is_left_out_is_not_counted(queue: Topic, service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = service.context.engine.counters
    read, counts = counters.read, []

    async def noted(policy: object) -> object:
        counts.append(policy)
        return await read(policy)  # type: ignore[arg-type]

    monkeypatch.setattr(counters, "read", noted)
    await queue.add(2)
    for query, most in (("?return_counts=false", 0), ("", 2)):
        claimed = await asked(queue, "claim", query)
        await asked(queue, "ack", query, seqs=[claimed["claimed"][0]["$seq"]])
        assert len(counts) == most


@pytest.mark.parametrize("verb", ["claim", *SETTLING])
@pytest.mark.parametrize("value", ["1", "", "False", "null"])
async def test_another_value_is_refused_before_anything_is_done(queue: Topic, verb: str, value: str) -> None:
    (seq,) = await queue.add(1)
    if verb != "claim":
        await queue.take()
    before = await queue.counts()
    body = {"node": "n"} if verb == "claim" else {"node": "n", "seqs": [seq]}
    answer = await queue.http.post(f"{queue.path}/{verb}?return_counts={value}", json=body)
    assert "return_counts" in refused(answer, 400, "invalid_request")["message"]
    assert await queue.counts() == before


async def test_a_topics_counts_are_of_one_snapshot(queue: Topic) -> None:
    """Nothing is delayed or blocked: what is not finished is ready or in flight, in each look."""
    await queue.add(500)
    stop = asyncio.Event()

    async def work(node: str) -> None:
        while not stop.is_set():
            seqs = [job["$seq"] for job in (await queue.claim(node, max=3))["claimed"]]
            await queue.ack(node, seqs[1:])
            await queue.nack(node, seqs[:1])
            await queue.add(2)

    async with asyncio.TaskGroup() as working:
        for n in range(8):
            working.create_task(work(f"w{n}"))
        looks = [await queue.state() for _ in range(40)]
        stop.set()
    assert len({look["count"] for look in looks}) > 5, "nothing moved"
    assert [look["count"] - look["queue"]["ready"] - look["queue"]["in_flight"] for look in looks] == [0] * 40


async def test_what_is_neither_ready_nor_in_flight_is_in_the_count(queue: Topic) -> None:
    await queue.append({"data": 1, "delay_ms": 60_000}, {"data": 2}, {"data": 3, "ttl_ms": 1})

    async def expired() -> bool:
        return bool((await queue.state())["count"] == 2)

    await eventually(expired)
    assert await queue.counts() == (1, 0)
