"""GET /v0/topics/:topic/scale: what a scaler goes by."""

from __future__ import annotations

from tests.api.dialect import Body, Topic, accepted, eventually


async def scale(queue: Topic) -> Body:
    found: Body = accepted(await queue.http.get(f"{queue.path}/scale"))
    return {name: value for name, value in found.items() if name not in ("performance", "topic")}


async def test_it_counts_what_workers_have_and_could_have(queue: Topic) -> None:
    nothing = {"depth": 0, "ready": 0, "in_flight": 0, "scheduled": 0, "oldest_claimable_age_ms": 0, "paused": False}
    assert await scale(queue) == nothing
    await queue.append(*({"data": n} for n in range(5)), {"data": 5, "delay_ms": 3_600_000})
    await queue.claim("w", max=2)
    seen = await scale(queue)
    assert (seen["depth"], seen["ready"], seen["in_flight"], seen["scheduled"]) == (5, 3, 2, 1)
    await queue.ack("w", [1, 2])
    assert (await scale(queue))["depth"] == 3

    async def aged() -> bool:
        return bool((await scale(queue))["oldest_claimable_age_ms"] > 20)

    await eventually(aged)
    await queue.claim("w", max=3)
    seen = await scale(queue)
    assert (seen["depth"], seen["oldest_claimable_age_ms"]) == (3, 0), "what is in hand keeps its workers"


async def test_a_paused_topic_calls_for_nobody(queue: Topic) -> None:
    await queue.add(3)
    await queue.claim("w")
    accepted(await queue.http.post(f"{queue.path}/pause"))
    seen = await scale(queue)
    assert (seen["depth"], seen["ready"], seen["oldest_claimable_age_ms"], seen["paused"]) == (1, 2, 0, True)
    accepted(await queue.http.post(f"{queue.path}/resume"))
    assert (await scale(queue))["depth"] == 3
