"""Cancel, and the jobs that somebody looks at and changes, in both dialects."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from app.features.upkeep import sweeps
from tests.api.dialect import Body, Topic, accepted, eventually, refused, until_waiting
from tests.conftest import Running


async def show(queue: Topic, seq: int) -> Body:
    return accepted(await queue.http.get(f"{queue.path}/jobs/{seq}"))


async def change(queue: Topic, seq: int, **fields: object) -> Body:
    return accepted(await queue.http.patch(f"{queue.path}/jobs/{seq}", json=fields))


async def listed(queue: Topic, **parameters: str | int | list[str]) -> list[int]:
    """The seqs of all pages."""
    seqs: list[int] = []
    while True:
        page = accepted(await queue.http.get(f"{queue.path}/jobs", params=parameters))
        seqs += [job["seq"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            return seqs
        parameters["cursor"] = page["next_cursor"]


async def last_event(queue: Topic, seq: int) -> str:
    events = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/history"))["events"]
    last: str = events[-1]["event"]
    return last


async def test_cancel_tells_apart_what_is_gone_and_what_is_marked(queue: Topic) -> None:
    await queue.add(3)
    await queue.take()
    told = await queue.post("cancel", seqs=[1, 2, 77, 2])
    assert (told["cancelled"], told["marked"], told["skipped"]) == (1, 1, [77])
    assert await queue.counts() == (1, 1)
    assert await last_event(queue, 2) == "cancelled"
    extended = await queue.extend("n", [1], 60_000)
    assert (extended["extended"], extended["cancelled"], extended["skipped"]) == (1, [1], [])
    assert (await show(queue, 1))["cancelled"] is True
    assert (await queue.ack("n", [1]))["acked"] == 1
    assert await last_event(queue, 1) == "acked"


async def test_a_heartbeat_of_others_says_nothing_of_it(queue: Topic) -> None:
    await queue.add(2)
    await queue.claim(max=2)
    await queue.post("cancel", seqs=[2])
    first, second = await asyncio.gather(queue.extend("n", [1], 60_000), queue.extend("n", [2], 60_000))
    assert (first["cancelled"], second["cancelled"]) == ([], [2])


@pytest.mark.parametrize("verb", ["nack", "fail"])
async def test_whoever_gives_it_up_ends_it(queue: Topic, verb: str) -> None:
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.add(2)
    await queue.claim(max=2)
    await queue.post("cancel", seqs=[1])
    told = await queue.post(verb, node="n", seqs=[1, 2], errors=["a", "b"])
    assert told["skipped"] == []
    refused(await queue.http.get(f"{queue.path}/jobs/1"), 404, "not_found")
    events = accepted(await queue.http.get(f"{queue.path}/jobs/1/history"))["events"]
    assert (events[-1]["event"], events[-1]["detail"]) == ("cancelled", "a")
    assert await listed(Topic(queue.http, f"{queue.name}.dead")) == [1]


async def test_it_makes_no_dead_letter_topic(queue: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.add(1)
    await queue.take()
    await queue.post("cancel", seqs=[1])
    await queue.nack("n", [1])
    refused(await queue.http.get(f"/v0/topics/{queue.name}.dead"), 404, "topic_not_found")


async def test_one_whose_worker_died_is_not_delivered_again(service: Running, queue: Topic) -> None:
    await queue.add(1)
    await queue.take(lease_ms=200)
    await queue.post("cancel", seqs=[1])
    assert (await queue.claim(wait_ms=1_000))["claimed"] == []
    assert await eventually(lambda: gone(queue, 1))
    assert await last_event(queue, 1) == "cancelled"
    assert await queue.counts() == (0, 0)


async def test_the_sweep_ends_it_where_nobody_claims(service: Running, queue: Topic) -> None:
    await queue.add(1)
    await queue.take(lease_ms=100)
    await queue.post("cancel", seqs=[1])
    context = service.context

    async def swept() -> bool:
        await sweeps.expiry(context.pools, context.engine)
        return await gone(queue, 1)

    assert await eventually(swept)
    assert await last_event(queue, 1) == "cancelled"


async def gone(queue: Topic, seq: int) -> bool:
    return (await queue.http.get(f"{queue.path}/jobs/{seq}")).status_code == 404


async def test_the_next_of_a_group_comes_at_once(service: Running, queue: Topic) -> None:
    await queue.add(2, group="g")
    await queue.take()
    waiting = asyncio.create_task(queue.claim(wait_ms=15_000))
    await until_waiting(service, queue.name, 1)
    await queue.post("cancel", seqs=[1])
    assert [job["$seq"] for job in (await waiting)["claimed"]] == [2], "its holder has the first one still"
    assert accepted(await queue.http.get(f"{queue.path}/jobs/1"))["group"] == "g"
    found = accepted(await queue.http.get(f"{queue.path}/jobs?group=g"))["jobs"]
    assert {(job["seq"], job["group"]) for job in found} == {(1, "g"), (2, "g")}


async def test_by_filter(queue: Topic) -> None:
    await queue.append(
        {"data": 1, "tag": "a"},
        {"data": 2, "tag": "b"},
        {"data": 3, "tag": "a", "key": "k"},
        {"data": 4, "key": "l", "group": "g"},
        {"data": 5, "group": "g"},
    )
    await queue.take()
    told = await queue.post("cancel", filter={"tag": "a"})
    assert (told["cancelled"], told["marked"], told["skipped"]) == (1, 1, [])
    assert (await queue.post("cancel", filter={"key": "l", "tag": "a"}))["cancelled"] == 0
    assert (await queue.post("cancel", filter={"key": "l"}))["cancelled"] == 1
    assert (await queue.post("cancel", filter={"group": "g"}))["cancelled"] == 1
    assert (await queue.post("cancel", filter={"older_than_ms": 3_600_000}))["cancelled"] == 0
    assert (await queue.post("cancel", filter={"tenant": "other"}))["cancelled"] == 0
    assert (await queue.post("cancel", filter={"tenant": "", "older_than_ms": 0}))["cancelled"] == 1
    assert await listed(queue) == [1]


async def test_by_filter_in_batches(queue: Topic) -> None:
    for tag in ("a", "b", "a"):
        await queue.append(*({"data": i, "tag": tag} for i in range(1_500)))
    assert (await queue.post("cancel", filter={"tag": "a"}))["cancelled"] == 3_000
    assert await queue.counts() == (1_500, 0)


async def test_cancels_that_are_refused(queue: Topic) -> None:
    path = f"{queue.path}/cancel"
    bodies: tuple[Body, ...] = (
        {},
        {"seqs": [1], "filter": {"tag": "a"}},
        {"filter": {}},
        {"seqs": [-1]},
        {"filter": {"data": 1}},
    )
    for body in bodies:
        refused(await queue.http.post(path, json=body), 400, "invalid_request")
    refused(await queue.http.post(path, json={"seqs": [1] * 1_001}), 400, "batch_too_large")
    assert (await queue.post("cancel", seqs=[]))["cancelled"] == 0
    assert (await queue.post("cancel", seqs=[10**30]))["skipped"] == [10**30]


async def test_explain_and_as_of(queue: Topic) -> None:
    await queue.add(2)
    await queue.take(lease_ms=60_000)
    await queue.post("cancel", seqs=[1, 2])
    told = accepted(await queue.http.get(f"{queue.path}/jobs/1/explain"))
    assert (told["state"], [reason["code"] for reason in told["reasons"]]) == ("leased", ["cancelled"])
    assert 0 < told["reasons"][0]["detail"]["in_ms"] <= 60_000
    ended = accepted(await queue.http.get(f"{queue.path}/jobs/2/explain"))
    assert (ended["state"], ended["reasons"][0]["detail"]["event"]) == ("gone", "cancelled")
    past = accepted(await queue.http.get(f"{queue.path}/asof", params={"at": "2999-01-01T00:00:00Z"}))
    assert past["in_flight"] + past["scheduled"] + past["ready"] == 0, "its lease's end is its end"
    await queue.nack("n", [1])
    past = accepted(await queue.http.get(f"{queue.path}/asof", params={"at": "2999-01-01T00:00:00Z"}))
    assert past["ready"] == 0


async def test_as_of_knows_of_a_change_of_time(queue: Topic) -> None:
    await queue.add(2)
    await change(queue, 1, delay_ms=3_600_000)
    await change(queue, 2, tag="t")
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    past = accepted(await queue.http.get(f"{queue.path}/asof", params={"at": now}))
    assert (past["ready"], past["scheduled"]) == (1, 1)


async def test_a_holder_in_the_messages_dialect_learns_of_a_cancel(http: httpx.AsyncClient, topic: str) -> None:
    ids = [
        (await http.post("/api/messages", json={"topic": topic, "payload": text})).json()["id"] for text in ("a", "b")
    ]
    [held] = (await http.post("/api/messages/dequeue", json={"topic": topic, "count": 1})).json()["messages"]
    assert held["id"] == ids[0]
    done = await Topic(http, topic).post("cancel", seqs=[1, 2])
    assert (done["marked"], done["cancelled"]) == (1, 1)
    refused(await http.get(f"/api/messages/{ids[1]}"), 404, "not_found")
    extended = (await http.post(f"/api/messages/{ids[0]}/extend")).json()
    assert extended["cancelled"] is True
    assert (await http.post(f"/api/messages/{ids[0]}/nack")).status_code == 204
    refused(await http.get(f"/api/messages/{ids[0]}"), 404, "not_found")


async def test_lists_by_each_filter_both_ways(queue: Topic) -> None:
    await queue.append(
        {"data": 1},
        {"data": 2, "tag": "a"},
        {"data": 3, "delay_ms": 60_000},
        {"data": 4, "group": "g"},
        {"data": 5, "group": "g"},
        {"data": 6, "key": "k", "tag": "a"},
    )
    await queue.take()
    assert await listed(queue) == [6, 5, 4, 3, 2, 1]
    assert await listed(queue, order="oldest", limit=2) == [1, 2, 3, 4, 5, 6]
    assert await listed(queue, order="newest", limit=4) == [6, 5, 4, 3, 2, 1]
    for parameters, seqs in (
        ({"state": "leased"}, [1]),
        ({"state": "ready"}, [2, 4, 6]),
        ({"state": "scheduled"}, [3]),
        ({"state": "blocked"}, [5]),
        ({"state": "failed"}, []),
        ({"tag": "a"}, [2, 6]),
        ({"tag": "a", "state": "leased"}, []),
        ({"key": "k"}, [6]),
        ({"key": "k", "tenant": "t"}, []),
        ({"group": "g"}, [4, 5]),
        ({"tenant": ""}, [1, 2, 3, 4, 5, 6]),
        ({"older_than_ms": "3600000"}, []),
    ):
        assert await listed(queue, order="oldest", **parameters) == seqs, parameters


async def test_what_is_over_is_listed_too(queue: Topic) -> None:
    await queue.add(1)
    await queue.add(2, ttl_ms=1)
    await queue.take()
    await queue.fail("n", [1])
    assert await listed(queue, state="failed") == [1]
    assert await eventually(lambda: _two(queue))
    assert await listed(queue, state="ready") == []


async def _two(queue: Topic) -> bool:
    return await listed(queue, state="expired") == [3, 2]


async def test_a_job_is_shown_in_full(queue: Topic) -> None:
    await queue.append(
        {"data": "hello", "content_type": "text/plain", "tag": "t", "key": "k", "group": "g", "meta": {"a": 1},
         "priority": 3, "ttl_ms": 60_000, "max_deliveries": 7},
    )  # fmt: skip
    waiting = await show(queue, 1)
    assert waiting["state"] == "ready"
    assert not {"node", "leased_at", "visible_at", "cancelled"} & set(waiting)
    job = await queue.take("w1")
    held = await show(queue, 1)
    for name, value in {
        "topic": queue.name, "seq": 1, "state": "leased", "node": "w1", "data": "hello", "content_type": "text/plain",
        "tag": "t", "key": "k", "group": "g", "meta": {"a": 1}, "priority": 3, "tenant": "", "deliveries": 1,
        "max_deliveries": 7, "visible_at": job["deadline"], "created_at": job["$ts"],
    }.items():  # fmt: skip
        assert held[name] == value, name
    assert job["lease_id"] not in str(held), "its lease is its holder's business"
    assert held["expires_at"] == held["created_at"] + 60_000


async def test_a_dead_letter_says_where_it_comes_from(queue: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.add(1)
    await queue.take()
    await queue.nack("n", [1], errors=["no"])
    dead = await show(Topic(queue.http, f"{queue.name}.dead"), 1)
    assert (dead["original_topic"], dead["original_seq"], dead["original_deliveries"]) == (queue.name, 1, 1)
    assert (dead["last_error"], dead["state"]) == ("no", "ready")


async def test_a_change_of_each_field(queue: Topic) -> None:
    await queue.add(1, tag="t", meta={"a": 1})
    told = await change(queue, 1, data={"b": 2}, tag="u", meta={"c": 3}, priority=9)
    assert (told["data"], told["tag"], told["meta"], told["priority"]) == ({"b": 2}, "u", {"c": 3}, 9)
    told = await change(queue, 1, data={"$base64": "AAE="})
    assert (told["data"], told["content_type"]) == ({"$base64": "AAE="}, "application/octet-stream")
    told = await change(queue, 1, tag=None, meta=None)
    assert not {"tag", "meta"} & set(told)
    assert told["data"] == {"$base64": "AAE="}
    assert (await change(queue, 1, data=None))["data"] is None
    assert await last_event(queue, 1) == "updated"


async def test_a_new_priority_is_found_by_the_next_claim(queue: Topic) -> None:
    await queue.add(3)
    await change(queue, 3, priority=7)
    assert [(await queue.take())["$seq"] for _ in range(3)] == [3, 1, 2]


async def test_a_new_time_is_kept(queue: Topic) -> None:
    await queue.add(2)
    told = await change(queue, 1, run_at="2999-01-01T00:00:00Z")
    assert (told["state"], told["visible_at"]) == ("scheduled", 32_472_144_000_000)
    assert [job["$seq"] for job in (await queue.claim(max=10))["claimed"]] == [2]
    assert (await change(queue, 1, run_at="2000-01-01T00:00:00Z"))["state"] == "ready"
    assert (await queue.take())["$seq"] == 1


async def test_who_waits_gets_what_is_due_now(service: Running, queue: Topic) -> None:
    await queue.add(2, delay_ms=3_600_000)
    waiting = asyncio.create_task(queue.take())
    await until_waiting(service, queue.name, 1)
    await change(queue, 1, delay_ms=0)
    assert (await waiting)["$seq"] == 1
    waiting = asyncio.create_task(queue.take())
    await until_waiting(service, queue.name, 1)
    await change(queue, 2, delay_ms=300)
    assert (await waiting)["$seq"] == 2


async def test_what_does_not_fit_the_schema_is_refused(queue: Topic) -> None:
    schema = {"type": "object", "required": ["a"]}
    await queue.put(schema=schema)
    await queue.append({"data": {"a": 1}})
    refused(await queue.http.patch(f"{queue.path}/jobs/1", json={"data": {"b": 1}}), 422, "schema_violation")
    assert (await show(queue, 1))["data"] == {"a": 1}


async def test_changes_that_are_refused(queue: Topic) -> None:
    await queue.add(2)
    path = f"{queue.path}/jobs"
    await queue.take()
    error = refused(await queue.http.patch(f"{path}/1", json={"tag": "t"}), 409, "not_pending")
    assert error["detail"] == {"topic": queue.name, "seq": 1, "status": "leased"}
    refused(await queue.http.patch(f"{path}/77", json={"tag": "t"}), 404, "not_found")
    refused(await queue.http.patch(f"{path}/77", json={"priority": 1}), 404, "not_found")
    for body in ({}, {"priority": 10}, {"tags": "t"}, {"content_type": "text/plain"}, {"meta": 3}, {"run_at": "soon"}):
        refused(await queue.http.patch(f"{path}/2", json=body), 400, "invalid_request")
    for query in ("state=x", "order=x", "limit=x", "older_than_ms=-1", "cursor=x", "x=1", "tag=%00"):
        refused(await queue.http.get(f"{path}?{query}"), 400, "invalid_request")
    for seq in ("0", "x", "99999999999999999999"):
        refused(await queue.http.get(f"{path}/{seq}"), 400, "invalid_request")
    refused(await queue.http.get(f"{path}/77"), 404, "not_found")
