"""The settings of a topic that change the order of its jobs, in both dialects. What they do is tests/engine's."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.api.configs import Configs
from tests.api.dialect import Topic, accepted, refused
from tests.api.messages.client import Messages


@pytest.mark.parametrize("order", ["highest_first", "lowest_first"])
async def test_a_claim_says_in_which_order_its_jobs_are_to_be_done(queue: Topic, order: str) -> None:
    """The answer ascends by seq, and each job has its place in claim order: jobs whose time has come, then fresh ones,
    priority by priority."""
    await queue.put(priority_order=order)
    await queue.append(*({"data": n, "priority": p} for n, p in enumerate((1, 5, 5, 9, 1, 5))))
    first = {job["data"]: job["$seq"] for job in (await queue.claim("w", max=6))["claimed"]}
    returned = first.pop(5)
    await queue.nack("w", [returned])
    await queue.nack("w", sorted(first.values()))
    await queue.append({"data": 6, "priority": 9})
    claimed = (await queue.claim("w", max=9))["claimed"]
    assert [job["$seq"] for job in claimed] == sorted(job["$seq"] for job in claimed)
    by_order = [job["data"] for job in sorted(claimed, key=lambda job: job["order"])]
    assert sorted(job["order"] for job in claimed) == list(range(1, 8))
    high, middle, low = [3, 6], [5, 1, 2], [0, 4]
    assert by_order == (high + middle + low if order == "highest_first" else low + middle + high)


async def test_the_jobs_of_several_tenants_are_in_order_of_priority(queue: Topic) -> None:
    await queue.append(*({"data": f"{t}{p}", "priority": p, "tenant": t} for t in "ab" for p in (1, 1, 8)))
    claimed = (await queue.claim("w", max=6))["claimed"]
    by_order = [job["data"] for job in sorted(claimed, key=lambda job: job["order"])]
    assert ({*by_order[:2]}, {*by_order[2:]}) == ({"a8", "b8"}, {"a1", "b1"})


@pytest.mark.parametrize("dialect", ["v0", "messages"])
async def test_each_setting_does_what_it_says(http: httpx.AsyncClient, topic: str, dialect: str) -> None:
    messages = Messages(http, topic)
    put = Topic(http, topic).put if dialect == "v0" else Configs(http, topic).put
    await put(priority_order="lowest_first", retry_order="back")
    await messages.batch(*({"payload": str(n), "priority": n} for n in (5, 0, 9, 0)))
    first, *others = await messages.dequeue(2)
    assert [one["payload"] for one in (first, *others)] == ["0", "0"]
    await messages.nack(first["id"])
    await messages.put("late")
    late_first = [message["payload"] for message in await messages.dequeue(9)]
    assert late_first == ["0", "late", "5", "9"], "its return was before the late one came"
    await put(aging_ms=20, priority_order="highest_first")
    await messages.put("old")
    await asyncio.sleep(0.2)  # nine steps
    await messages.batch(*({"payload": "better", "priority": 9} for _ in range(20)))
    assert [message["payload"] for message in await messages.dequeue(2)] == ["old", "better"]


async def test_any_smallint_where_low_priorities_come_first(http: httpx.AsyncClient, topic: str) -> None:
    queue, given = Topic(http, topic), (99, 10, 12, -5, 0, 32_767, -32_768)
    records = [{"data": priority, "priority": priority} for priority in given]
    for config in ({"type": "queue"}, {"type": "queue", "priority_order": "highest_first"}):
        body = {"records": records, "create": True, "config": config}
        error = refused(await http.post(queue.path, json=body), 400, "invalid_request")
        assert "Record 0: priority must be 0 to 9, and is 99." in error["message"]
        refused(await http.get(queue.path), 404, "topic_not_found")
    body = {"records": records, "create": True, "config": {"type": "queue", "priority_order": "lowest_first"}}
    accepted(await http.post(queue.path, json=body))
    page = accepted(await http.get(f"{queue.path}/jobs?priority=-5"))
    assert [job["data"] for job in page["jobs"]] == [-5]
    assert accepted(await http.patch(f"{queue.path}/jobs/1", json={"priority": -1}))["priority"] == -1
    assert [(await queue.take())["data"] for _ in given] == [-32_768, -5, 99, 0, 10, 12, 32_767]
    body = {"records": [{"data": 1, "priority": 32_768}]}
    refused(await http.post(queue.path, json=body), 400, "invalid_request")
