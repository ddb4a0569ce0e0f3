"""Cancel, and the jobs that somebody looks at and changes, in both dialects."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.dialect import Body, Topic, accepted, refused, until_waiting
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


async def last_event(queue: Topic, seq: int) -> tuple[str, str | None]:
    """The event, and its detail."""
    last = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/history"))["events"][-1]
    return last["event"], last.get("detail")


async def test_cancel_tells_apart_what_is_gone_and_what_is_marked(queue: Topic) -> None:
    await queue.add(4)
    await queue.claim(max=2)
    told = await queue.post("cancel", seqs=[1, 3, 77, 3])
    assert (told["cancelled"], told["marked"], told["skipped"]) == (1, 1, [77])
    assert await queue.counts() == (1, 2)
    assert (await last_event(queue, 3))[0] == "cancelled"
    mine, others = await asyncio.gather(queue.extend("n", [1], 60_000), queue.extend("n", [2], 60_000))
    assert (mine["extended"], mine["cancelled"], mine["skipped"]) == (1, [1], [])
    assert others["cancelled"] == [], "a heartbeat of others says nothing of it"
    assert (await show(queue, 1))["cancelled"] is True
    told = accepted(await queue.http.get(f"{queue.path}/jobs/1/explain"))
    assert (told["state"], [reason["code"] for reason in told["reasons"]]) == ("leased", ["cancelled"])
    assert 0 < told["reasons"][0]["detail"]["in_ms"] <= 60_000
    ended = accepted(await queue.http.get(f"{queue.path}/jobs/3/explain"))
    assert (ended["state"], ended["reasons"][0]["detail"]["event"]) == ("gone", "cancelled")
    assert (await queue.ack("n", [1]))["acked"] == 1
    assert (await last_event(queue, 1))[0] == "acked"


@pytest.mark.parametrize("verb", ["nack", "fail"])
async def test_whoever_gives_it_up_ends_it(queue: Topic, verb: str) -> None:
    dead = Topic(queue.http, f"{queue.name}.dead")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(2)
    for seq in (1, 2):
        await queue.take()
        if seq == 1:
            await queue.post("cancel", seqs=[1])
        told = await queue.post(verb, node="n", seqs=[seq], errors=["a"])
        assert told["skipped"] == []
        if seq == 1:  # and makes no topic for dead letters
            refused(await queue.http.get(dead.path), 404, "topic_not_found")
    refused(await queue.http.get(f"{queue.path}/jobs/1"), 404, "not_found")
    assert await last_event(queue, 1) == ("cancelled", "a")
    assert await listed(dead) == [1]


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
    asked: list[tuple[Body, int]] = [
        ({"key": "l", "tag": "a"}, 0),
        ({"key": "l"}, 1),
        ({"group": "g"}, 1),
        ({"older_than_ms": 3_600_000}, 0),
        ({"tenant": "other"}, 0),
        ({"tenant": "", "older_than_ms": 0}, 1),
    ]
    for wanted, count in asked:
        assert (await queue.post("cancel", filter=wanted))["cancelled"] == count, wanted
    assert await listed(queue) == [1]
    for tag in ("a", "b", "a"):  # several batches
        await queue.append(*({"data": i, "tag": tag} for i in range(600)))
    assert (await queue.post("cancel", filter={"tag": "a"}))["cancelled"] == 1_200
    assert await queue.counts() == (600, 1)


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
    expected = {
        "topic": queue.name, "seq": 1, "state": "leased", "node": "w1", "data": "hello", "content_type": "text/plain",
        "tag": "t", "key": "k", "group": "g", "meta": {"a": 1}, "priority": 3, "tenant": "", "deliveries": 1,
        "max_deliveries": 7, "visible_at": job["deadline"], "created_at": job["$ts"],
        "expires_at": job["$ts"] + 60_000,
    }  # fmt: skip
    assert {name: held[name] for name in expected} == expected
    assert job["lease_id"] not in str(held), "its lease is its holder's business"
    dead = Topic(queue.http, f"{queue.name}.dead")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.fail("w1", [1], errors=["no"])
    letter = await show(dead, 1)
    assert (letter["original_topic"], letter["original_seq"], letter["original_deliveries"]) == (queue.name, 1, 1)
    assert (letter["last_error"], letter["state"]) == ("no", "ready")


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
    assert (await last_event(queue, 1))[0] == "updated"


async def test_who_waits_gets_what_is_due_now(service: Running, queue: Topic) -> None:
    await queue.add(2, delay_ms=3_600_000)
    for seq, delay_ms in ((1, 0), (2, 300)):
        waiting = asyncio.create_task(queue.take())
        await until_waiting(service, queue.name, 1)
        await change(queue, seq, delay_ms=delay_ms)
        assert (await waiting)["$seq"] == seq


async def test_changes_that_are_refused(queue: Topic) -> None:
    await queue.put(schema={"type": "integer"})
    await queue.add(2)
    path = f"{queue.path}/jobs"
    refused(await queue.http.patch(f"{path}/1", json={"data": "no integer"}), 422, "schema_violation")
    assert (await queue.take())["data"] == 1
    error = refused(await queue.http.patch(f"{path}/1", json={"tag": "t"}), 409, "not_pending")
    assert error["detail"] == {"topic": queue.name, "seq": 1, "status": "leased"}
    for change_ in ({"tag": "t"}, {"priority": 1}):
        refused(await queue.http.patch(f"{path}/77", json=change_), 404, "not_found")
    for body in ({}, {"priority": 10}, {"content_type": "text/plain"}, {"run_at": "soon"}):
        refused(await queue.http.patch(f"{path}/2", json=body), 400, "invalid_request")
    for query in ("cursor=x", "tag=%00"):
        refused(await queue.http.get(f"{path}?{query}"), 400, "invalid_request")
    bodies: list[Body] = [{}, {"seqs": [1], "filter": {"tag": "a"}}, {"filter": {}}]
    for body in bodies:
        refused(await queue.http.post(f"{queue.path}/cancel", json=body), 400, "invalid_request")
    for verb in ("cancel", "release"):
        answer = await queue.http.post(f"{queue.path}/{verb}", json={"seqs": [1] * 1_001})
        refused(answer, 400, "batch_too_large")
    assert (await queue.post("cancel", seqs=[10**30]))["skipped"] == [10**30]
    refused(await queue.http.get(f"{path}/77"), 404, "not_found")
