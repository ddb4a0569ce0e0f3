"""return_counts=false: the answers to workers' verbs without what the queue has left."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.dialect import Topic, accepted
from tests.conftest import Running


@pytest.mark.parametrize("verb", ["ack", "nack", "fail"])
async def test_they_are_neither_told_nor_counted_on_demand(
    queue: Topic, service: Running, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    counters = service.context.engine.counters
    read, reads = counters.read, []

    async def noted(policy: object) -> object:
        reads.append(policy)
        return await read(policy)  # type: ignore[arg-type]

    monkeypatch.setattr(counters, "read", noted)
    await queue.add(6)
    for query, counted in (("?return_counts=false", False), ("?return_counts=true", True), ("", True)):
        reads.clear()
        claimed = accepted(await queue.http.post(f"{queue.path}/claim{query}", json={"node": "n"}))
        assert ("ready" in claimed) is counted
        body = {"node": "n", "seqs": [claimed["claimed"][0]["$seq"]]}
        settled = accepted(await queue.http.post(f"{queue.path}/{verb}{query}", json=body))
        assert settled["skipped"] == []
        assert {"ready", "in_flight"} & set(settled) == ({"ready", "in_flight"} if counted else set())
        assert len(reads) == (2 if counted else 0)


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
