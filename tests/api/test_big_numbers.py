"""Whole numbers that no machine word holds: a clamped one is clamped, a seq is one beyond the end."""

from __future__ import annotations

import pytest

from tests.api.dialect import JSON, Topic, accepted, refused
from tests.api.watches import event_id, watching


@pytest.mark.parametrize("place", [0, 4_299, 4_301])
async def test_a_number_has_4300_digits_at_most_wherever_it_stands(queue: Topic, place: int) -> None:
    """Python's json reads no longer ones; in a text there may be as many as fit."""
    padding = " " * place
    for digits, status in ((4_300, 200), (4_301, 400), (20_000, 400)):
        body = f'{{"records":[{{"data":[{padding}{"1" * digits}]}}]}}'
        assert (await queue.http.post(queue.path, content=body, headers=JSON)).status_code == status, digits
        await queue.append({"data": [padding, "1" * digits]})
    assert [len(str(job["data"][-1])) for job in (await queue.claim(max=9))["claimed"]] == [4_300, 4_300, 4_301, 20_000]


async def test_a_long_number_is_refused_with_the_bound_by_whichever_way_it_comes(queue: Topic) -> None:
    long = "1" * 5_000
    await queue.put(ingest="key")
    sent = {"topic": queue.name, "payload": long, "content_type": "application/json"}
    for answer in (
        await queue.http.post(f"/in/{queue.name}", content=long, headers=JSON),
        await queue.http.post("/api/messages", json=sent),
    ):
        assert "more than 4300 digits" in refused(answer, 400, "invalid_request")["message"]


@pytest.mark.parametrize("big", [2**63, 2**64, 10**400], ids=["2^63", "2^64", "10^400"])
async def test_a_number_that_is_too_big_is_clamped_or_beyond_the_end(big: int, queue: Topic) -> None:
    log = Topic(queue.http, f"{queue.name}.log")
    await log.put(type="log")
    for topic in (log, queue):
        await topic.append({"data": 1}, {"data": 2})
        answer = await topic.post("diff", from_seq=big, limit=big, wait_ms=0, max_batch_bytes=big)
        assert [record["data"] for record in answer["records"]] == [1, 2]
        assert (answer["next_from_seq"], answer["tombstone"]["reason"]) == (2, "recreated")
        assert len((await topic.post("diff", wait_ms=big))["records"]) == 2

    body = {"topics": {log.name: {"from_seq": big}}, "limit": big, "max_batch_bytes": big, "heartbeat_ms": big}
    watch = accepted(await log.http.post("/v0/watch", json=body))
    async with watching(log.http, watch, event_id(**{log.name: big})) as stream:
        assert (await stream.event("tombstone")).data["reason"] == "recreated"
        assert await stream.records(2) == [1, 2]

    await queue.claim(max=big, lease_ms=big)
    extended = await queue.extend("n", [1, big], big)
    assert (extended["extended"], extended["skipped"]) == (1, [big])
    nacked = await queue.nack("n", [big, 1, big + 1], delay_ms=big)
    assert (nacked["nacked"], nacked["skipped"]) == (1, [big, big + 1])
    acked = await queue.ack("n", [big, 2])
    assert (acked["acked"], acked["skipped"]) == (1, [big])
    asked = {"node": "n", "max": str(big), "lease_ms": str(big)}
    async with queue.http.stream("GET", f"{queue.path}/work", params=asked) as response:
        assert response.status_code == 200
    for topic, left in ((log, 2), (queue, 1)):
        answer = await topic.post("delete", before_seq=big)
        assert (answer["deleted"], answer["count"]) == (left, 0)
