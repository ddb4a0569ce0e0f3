"""The settings of a topic that change the order of its jobs, through both dialects."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.api.configs import Configs
from tests.api.dialect import Body, Topic, accepted, refused


async def put(http: httpx.AsyncClient, topic: str, dialect: str, **settings: object) -> None:
    """Configure a queue."""
    if dialect == "v0":
        await Topic(http, topic).put(**settings)
    else:
        await Configs(http, topic).put(**settings)


async def taken(http: httpx.AsyncClient, topic: str, count: int) -> list[Body]:
    """Messages in the order in which they are to be worked on."""
    answer = await http.post("/api/messages/dequeue", json={"topic": topic, "count": count})
    messages: list[Body] = answer.json()["messages"]
    return messages


async def add(http: httpx.AsyncClient, topic: str, *messages: Body) -> None:
    answer = await http.post("/api/messages/batch", json={"topic": topic, "messages": list(messages)})
    assert answer.status_code == 201, answer.text


@pytest.fixture(params=["v0", "messages"])
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("order", ["highest_first", "lowest_first"])
async def test_a_claim_says_in_which_order_its_jobs_are_to_be_done(queue: Topic, order: str) -> None:
    """The answer ascends by seq, and each job has its place in claim order: jobs whose time has come, then fresh ones,
    priority by priority."""
    await queue.put(priority_order=order)
    await queue.append(*({"data": n, "priority": p} for n, p in enumerate((1, 5, 5, 9, 1, 5))))
    first = await queue.claim("w", max=6)
    returned = next(job["$seq"] for job in first["claimed"] if job["data"] == 5)
    await queue.http.post(f"{queue.path}/nack", json={"node": "w", "seqs": [returned]})
    rest = sorted(job["$seq"] for job in first["claimed"] if job["$seq"] != returned)
    await queue.http.post(f"{queue.path}/nack", json={"node": "w", "seqs": rest})
    await queue.append({"data": 6, "priority": 9})

    claimed = (await queue.claim("w", max=9))["claimed"]
    assert [job["$seq"] for job in claimed] == sorted(job["$seq"] for job in claimed)
    assert sorted(job["order"] for job in claimed) == list(range(1, 8))
    by_order = [job["data"] for job in sorted(claimed, key=lambda job: job["order"])]
    high, middle, low = [3, 6], [5, 1, 2], [0, 4]
    assert by_order == high + middle + low if order == "highest_first" else low + middle + high


async def test_the_jobs_of_several_tenants_are_in_order_of_priority(queue: Topic) -> None:
    await queue.put()
    await queue.append(*({"data": f"{t}{p}", "priority": p, "tenant": t} for t in "ab" for p in (1, 1, 8)))
    claimed = (await queue.claim("w", max=6))["claimed"]
    by_order = [job["data"] for job in sorted(claimed, key=lambda job: job["order"])]
    assert {*by_order[:2]} == {"a8", "b8"}
    assert {*by_order[2:]} == {"a1", "b1"}


async def test_low_priorities_first(http: httpx.AsyncClient, topic: str, dialect: str) -> None:
    await put(http, topic, dialect, priority_order="lowest_first")
    await add(http, topic, *({"payload": str(n), "priority": n} for n in (5, 0, 9, 0)))
    assert [message["payload"] for message in await taken(http, topic, 4)] == ["0", "0", "5", "9"]


async def test_any_smallint_where_low_priorities_come_first(queue: Topic) -> None:
    given = (99, 10, 12, -5, 0, 32_767, -32_768)
    await queue.put(priority_order="lowest_first")
    await queue.append(*({"data": priority, "priority": priority} for priority in given))
    page = (await queue.http.get(f"{queue.path}/jobs?priority=-5")).json()
    assert [job["data"] for job in page["jobs"]] == [-5]
    taken = [(await queue.claim("w"))["claimed"][0]["data"] for _ in given]
    assert taken == sorted(given)


async def test_a_topic_that_an_append_makes_takes_the_priorities_of_its_order(
    http: httpx.AsyncClient, topic: str
) -> None:
    records = [{"data": "a", "priority": 12}]
    for config in ({"type": "queue"}, {"type": "queue", "priority_order": "highest_first"}):
        body = {"records": records, "create": True, "config": config}
        error = refused(await http.post(f"/v0/topics/{topic}", json=body), 400, "invalid_request")
        assert "Record 0: priority must be 0 to 9, and is 12." in error["message"]
        refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")
    body = {"records": records, "create": True, "config": {"type": "queue", "priority_order": "lowest_first"}}
    accepted(await http.post(f"/v0/topics/{topic}", json=body))
    changed = accepted(await http.patch(f"/v0/topics/{topic}/jobs/1", json={"priority": -1}))
    assert changed["priority"] == -1
    refused(
        await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1, "priority": 32_768}]}),
        400,
        "invalid_request",
    )


async def test_a_nacked_message_goes_to_the_end(http: httpx.AsyncClient, topic: str, dialect: str) -> None:
    await put(http, topic, dialect, retry_order="back")
    await add(http, topic, *({"payload": name} for name in "abc"))
    (first,) = await taken(http, topic, 1)
    assert (await http.post(f"/api/messages/{first['id']}/nack", json={"error": "no"})).is_success
    await add(http, topic, {"payload": "d"})
    assert [message["payload"] for message in await taken(http, topic, 9)] == ["b", "c", "a", "d"]


async def test_a_stream_sends_in_the_same_order(queue: Topic) -> None:
    await queue.put(retry_order="back")
    await queue.append({"data": "a"}, {"data": "b"})
    claimed = (await queue.claim("w"))["claimed"]
    await queue.http.post(f"{queue.path}/nack", json={"node": "w", "seqs": [claimed[0]["$seq"]]})
    seen: list[str] = []
    async with queue.http.stream("GET", f"{queue.path}/work?node=s&max=2") as stream:
        async for line in stream.aiter_lines():
            seen += [name for name in "ab" if line.startswith("data:") and f'"data":"{name}"' in line.replace(" ", "")]
            if len(seen) == 2:
                break
    assert seen == ["b", "a"]


async def test_an_old_message_goes_before_better_ones(http: httpx.AsyncClient, topic: str, dialect: str) -> None:
    await put(http, topic, dialect, aging_ms=20)
    await add(http, topic, {"payload": "old"})
    await asyncio.sleep(0.2)  # nine steps
    await add(http, topic, *({"payload": "better", "priority": 9} for _ in range(20)))
    assert [message["payload"] for message in await taken(http, topic, 2)] == ["old", "better"]


async def test_without_aging_it_does_not(http: httpx.AsyncClient, topic: str) -> None:
    await add(http, topic, {"payload": "old"})
    await add(http, topic, *({"payload": "better", "priority": 9} for _ in range(2)))
    assert [message["payload"] for message in await taken(http, topic, 3)] == ["better", "better", "old"]


@pytest.mark.parametrize("setting", [{"priority_order": "up"}, {"retry_order": 1}, {"aging_ms": 315_360_000_001}])
async def test_what_a_setting_can_not_be_is_refused(
    http: httpx.AsyncClient, topic: str, setting: dict[str, object]
) -> None:
    for path in (f"/v0/topics/{topic}", f"/api/topic-configs/{topic}"):
        answer = await http.put(path, json={"type": "queue", **setting})
        refused(answer, 400, "invalid_request")
