"""What workers hand in, and who reads it: results, how jobs end otherwise, and progress. docs/results.md."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from app.features.results.outcomes import Outcomes
from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.keyring import client, make

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

MIB = 1024 * 1024


async def result(queue: Topic, seq: int, wait_ms: int = 0) -> Body:
    return accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/result?wait_ms={wait_ms}", timeout=70))


async def gone(queue: Topic, seq: int) -> None:
    refused(await queue.http.get(f"{queue.path}/jobs/{seq}/result"), 404, "not_found")


async def until_waited_for(service: Running, count: int = 1) -> None:
    async def fact() -> bool:
        return service.context.core(Outcomes).count() == count

    await eventually(fact)


@pytest.mark.parametrize("handed_in", [{"n": 1, "é": [None, 1e300]}, 0, False, "", [], "x" * 100_000])
async def test_a_result_is_what_was_handed_in(queue: Topic, handed_in: object) -> None:
    [seq] = await queue.add(1)
    job = await queue.take()
    before = time.time() * 1000
    assert (await queue.ack("n", [seq], lease_ids=[job["lease_id"]], results=[handed_in]))["acked"] == 1
    found = await result(queue, seq)
    assert found["state"] == "completed"
    assert found["result"] == handed_in
    assert before - 5_000 < found["completed_at"] < before + 15_000
    assert found["expires_at"] == pytest.approx(found["completed_at"] + 86_400_000, abs=1)


async def test_each_seq_has_its_own(queue: Topic) -> None:
    seqs = await queue.add(4)
    await queue.claim(max=4)
    backwards = seqs[::-1]
    assert (await queue.ack("n", backwards, results=["d", None, {"b": 2}, "a"]))["acked"] == 4
    assert [(await result(queue, seq)).get("result") for seq in seqs] == ["a", {"b": 2}, None, "d"]
    assert "expires_at" not in await result(queue, seqs[2]), "none was handed in"


async def test_an_ack_without_results_tells_the_end(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    await queue.ack("n", [seq])
    found = await result(queue, seq)
    assert (found["state"], found["result"]) == ("completed", None)


async def test_who_has_lost_the_lease_hands_nothing_in(queue: Topic) -> None:
    [seq] = await queue.add(1)
    first = await queue.take(lease_ms=100)
    second = await queue.take()
    answer = await queue.ack("n", [seq], lease_ids=[first["lease_id"]], results=["late"])
    assert (answer["acked"], answer["skipped"]) == (0, [seq])
    assert (await result(queue, seq))["state"] == "pending"
    await queue.ack("n", [seq], lease_ids=[second["lease_id"]], results=["good"])
    assert (await result(queue, seq))["result"] == "good"
    answer = await queue.ack("n", [seq], lease_ids=[first["lease_id"]], results=["late"])
    assert answer["skipped"] == [seq]


async def test_the_same_lease_answers_the_same_again(queue: Topic) -> None:
    [seq] = await queue.add(1)
    job = await queue.take()
    for handed_in in ("first", "second"):
        answer = await queue.ack("n", [seq], lease_ids=[job["lease_id"]], results=[handed_in])
        assert (answer["acked"], answer["skipped"], answer["in_flight"]) == (1, [], 0)
    assert (await result(queue, seq))["result"] == "first"
    assert (await queue.ack("n", [seq], lease_ids=[job["lease_id"]]))["skipped"] == [seq], "no result, no receipt"
    assert (await queue.ack("n", [seq], results=["x"]))["skipped"] == [seq], "a node is no lease"
    events = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/history"))["events"]
    assert [event["event"] for event in events] == ["enqueued", "claimed", "acked"]


async def test_two_acks_of_one_lease_at_once_both_answer_acked(queue: Topic) -> None:
    for _ in range(5):
        [seq] = await queue.add(1)
        job = await queue.take()
        both = [queue.ack("n", [seq], lease_ids=[job["lease_id"]], results=[n]) for n in range(2)]
        assert [answer["acked"] for answer in await asyncio.gather(*both)] == [1, 1]
        assert (await result(queue, seq))["result"] in {0, 1}
    assert await queue.counts() == (0, 0)


async def test_on_a_replayable_topic_the_job_is_archived_too(queue: Topic) -> None:
    await queue.put(replayable=True)
    [seq] = await queue.add(1)
    await queue.take()
    await queue.ack("n", [seq], results=["r"])
    assert (await result(queue, seq))["result"] == "r"
    log = (await queue.http.get(f"/api/topics/{queue.name}/message-log")).json()
    assert [item["payload"] for item in log["items"]] == ["MQ=="]


async def test_it_is_hidden_after_its_time_and_by_the_time_of_its_completion(queue: Topic) -> None:
    await queue.put(result_ttl_ms=300)
    brief, long = await queue.add(2)
    job = await queue.take()
    await queue.ack("n", [brief], lease_ids=[job["lease_id"]], results=["r"])
    await queue.put(result_ttl_ms=0)
    await queue.take()
    await queue.ack("n", [long], results=["r"])

    async def over() -> bool:
        return (await queue.http.get(f"{queue.path}/jobs/{brief}/result")).status_code == 404

    await eventually(over)
    assert (await queue.ack("n", [brief], lease_ids=[job["lease_id"]], results=["r"]))["skipped"] == [brief]
    found = await result(queue, long)
    assert (found["result"], found["expires_at"]) == ("r", None)


async def test_nothing_is_known_of_a_job_that_never_was(queue: Topic) -> None:
    await gone(queue, 77)


async def test_a_caller_waits_for_an_ack(service: Running, queue: Topic) -> None:
    [seq] = await queue.add(1)
    waiting = [asyncio.create_task(result(queue, seq, 60_000)) for _ in range(3)]
    await until_waited_for(service, 3)
    await queue.take()
    began = time.monotonic()
    await queue.ack("n", [seq], results=[{"ok": True}])
    assert [found["result"] for found in await asyncio.gather(*waiting)] == [{"ok": True}] * 3
    assert time.monotonic() - began < 10
    assert service.context.core(Outcomes).count() == 0


async def test_a_caller_waits_in_vain_and_is_told_so(queue: Topic) -> None:
    [seq] = await queue.add(1)
    began = time.monotonic()
    assert (await result(queue, seq, 300))["state"] == "pending"
    assert time.monotonic() - began >= 0.29


async def test_a_nack_is_no_end(service: Running, queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    waiting = asyncio.create_task(result(queue, seq, 60_000))
    await until_waited_for(service)
    await queue.nack("n", [seq])
    await queue.take()
    await queue.ack("n", [seq], results=[2])
    assert (await waiting)["result"] == 2


async def test_a_caller_who_leaves_waits_no_longer(service: Running, queue: Topic) -> None:
    [seq] = await queue.add(1)
    waiting = asyncio.create_task(result(queue, seq, 60_000))
    await until_waited_for(service)
    waiting.cancel()
    await until_waited_for(service, 0)


async def test_an_end_through_another_process_is_found(serve: Serve, service: Running, queue: Topic) -> None:
    [seq] = await queue.add(1)
    waiting = asyncio.create_task(result(queue, seq, 60_000))
    await until_waited_for(service)
    async with httpx.AsyncClient(base_url=(await serve()).url, timeout=35) as other:
        there = queue.through(other)
        await there.take()
        await there.ack("n", [seq], results=["there"])
    assert (await waiting)["result"] == "there"


async def test_it_outlives_a_restart(serve: Serve, queue: Topic) -> None:
    [seq] = await queue.add(1)
    job = await queue.take()
    await queue.ack("n", [seq], lease_ids=[job["lease_id"]], results=["kept"])
    async with httpx.AsyncClient(base_url=(await serve()).url, timeout=35) as other:
        there = queue.through(other)
        assert (await result(there, seq))["result"] == "kept"
        assert (await there.ack("n", [seq], lease_ids=[job["lease_id"]], results=["kept"]))["acked"] == 1


async def test_failed(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    [seq] = await queue.add(1)
    await queue.take()
    await queue.nack("n", [seq], errors=["boom"])
    found = await result(queue, seq)
    assert (found["state"], found["error"]) == ("failed", "boom")
    assert abs(found["ended_at"] - time.time() * 1000) < 15_000
    assert "result" not in found


async def test_dead_lettered_and_completed_there(service: Running, queue: Topic) -> None:
    dead = Topic(queue.http, f"{queue.name}.dead")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    [seq] = await queue.add(1)
    await queue.take()
    waiting = asyncio.create_task(result(queue, seq, 60_000))
    await until_waited_for(service)
    await queue.nack("n", [seq], errors=["boom"])
    found = await waiting
    assert (found["state"], found["error"]) == ("dead_lettered", "boom")
    letter = found["dead_letter"]
    assert letter["topic"] == dead.name
    await dead.take()
    await dead.ack("n", [letter["seq"]], results=["mended"])
    assert (await result(dead, letter["seq"]))["result"] == "mended"
    assert (await result(queue, seq))["result"] == "mended", "it is the same job"


async def test_expired_while_somebody_waits(service: Running, queue: Topic) -> None:
    [seq] = await queue.add(1, ttl_ms=700)
    waiting = asyncio.create_task(result(queue, seq, 60_000))
    await until_waited_for(service)
    assert (await waiting)["state"] == "expired"


async def test_deleted(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.post("delete", before_seq=seq + 1)
    assert (await result(queue, seq))["state"] == "deleted"


async def test_a_topic_made_anew_knows_nothing_of_its_namesake(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    await queue.ack("n", [seq], results=["old"])
    await queue.drop()
    await queue.put()
    await gone(queue, seq)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"results": []}, "invalid_request"),
        ({"results": [1, 2]}, "invalid_request"),
        ({"results": "r"}, "invalid_request"),
        ({"results": ["x" * MIB]}, "record_too_large"),
        ({"results": [None], "seqs": []}, "invalid_request"),
    ],
)
async def test_a_bad_result_is_refused_and_the_job_stays(queue: Topic, fields: Body, code: str) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    answer = await queue.http.post(f"{queue.path}/ack", json={"node": "n", "seqs": [seq], **fields})
    refused(answer, 400, code)
    assert await queue.counts() == (0, 1)


async def test_a_deep_result_and_one_with_a_nul_are_refused(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    for bad in ("[" * 129 + "]" * 129, '"\\u0000"'):
        body = f'{{"node": "n", "seqs": [{seq}], "results": [{bad}]}}'
        answer = await queue.http.post(f"{queue.path}/ack", content=body, headers={"content-type": "application/json"})
        refused(answer, 400, "invalid_request")


async def test_the_largest_there_can_be(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    await queue.ack("n", [seq], results=["x" * (MIB - 2)])
    assert len((await result(queue, seq))["result"]) == MIB - 2


@pytest.mark.parametrize("wait", ["x", "-1", "60001", "1.5", ""])
async def test_a_bad_wait_is_refused(queue: Topic, wait: str) -> None:
    refused(await queue.http.get(f"{queue.path}/jobs/1/result?wait_ms={wait}"), 400, "invalid_request")


async def test_explain_says_where_the_result_is(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    await queue.ack("n", [seq], results=["r"])
    [reason] = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/explain"))["reasons"]
    assert reason["code"] == "ended"
    assert "Its result is kept until" in reason["message"]
    assert accepted(await queue.http.get(reason["detail"]["result"]))["result"] == "r"


async def test_progress_is_seen_live_and_goes_with_its_lease(queue: Topic) -> None:
    [seq] = await queue.add(1)
    job = await queue.take(lease_ms=60_000)
    assert "progress" not in await result(queue, seq)
    fields: Body = {"lease_ids": [job["lease_id"]]}
    answer = await queue.extend("n", [seq], 60_000, progress=[{"percent": 40, "note": "half of it"}], **fields)
    assert answer["extended"] == 1
    said = (await result(queue, seq))["progress"]
    assert (said["percent"], said["note"]) == (40, "half of it")
    await queue.extend("n", [seq], 60_000, **fields)
    await queue.extend("n", [seq], 60_000, progress=[None], **fields)
    assert (await result(queue, seq))["progress"] == said, "a heartbeat without a word changes nothing"
    [reason] = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/explain"))["reasons"]
    assert reason["detail"]["progress"] == said
    assert '40 per cent: "half of it"' in reason["message"]

    await queue.extend("n", [seq], 100, progress=[{"percent": 90}], **fields)
    again = await queue.take()
    assert again["deliveries"] == 2
    assert "progress" not in await result(queue, seq), "it was of another lease"
    answer = await queue.extend("n", [seq], 60_000, progress=[{"percent": 99}], **fields)
    assert answer["skipped"] == [seq], "whose holder says nothing any more"
    assert "progress" not in await result(queue, seq)


@pytest.mark.parametrize(
    "progress",
    [[], [{"percent": 101}], [{"percent": -1}], [{"percent": 1.5}], [{}], [{"percent": 1, "note": "é" * 513}], [1]],
)
async def test_bad_progress_is_refused(queue: Topic, progress: object) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    body = {"node": "n", "seqs": [seq], "lease_ms": 60_000, "progress": progress}
    refused(await queue.http.post(f"{queue.path}/extend", json=body), 400, "invalid_request")


async def test_a_key_of_one_topic_is_not_told_what_was_handed_in_in_another(guarded: Running, topic: str) -> None:
    async with client(guarded, "root") as root:
        mine, dead = Topic(root, f"mine.{topic}"), Topic(root, f"dead.{topic}")
        await mine.put(max_deliveries=1, dead_letter=dead.name)
        [seq] = await mine.add(1)
        await mine.take()
        await mine.nack("n", [seq], errors=["boom"])
        key = await make(root, f"k-{topic}", prefixes=["mine."])
        async with client(guarded, key["secret"]) as http:
            theirs = await result(mine.through(http), seq)
            assert (theirs["state"], theirs["error"]) == ("dead_lettered", "boom")
            assert "dead_letter" not in theirs
            await dead.ack("n", [(await dead.take())["$seq"]], results=["secret"])
            assert (await result(mine.through(http), seq))["state"] == "dead_lettered"
        assert (await result(mine, seq))["result"] == "secret"


async def test_a_wait_ends_with_the_key(guarded: Running, topic: str) -> None:
    async with client(guarded, "root") as root:
        queue = Topic(root, topic)
        await queue.put()
        [seq] = await queue.add(1)
        key = await make(root, f"w-{topic}", ["read"])
        async with client(guarded, key["secret"]) as http:
            waiting = asyncio.create_task(http.get(f"{queue.path}/jobs/{seq}/result?wait_ms=30000"))
            await until_waited_for(guarded)
            accepted(await root.delete(f"/v0/keys/{key['id']}"))
            await queue.take()
            await queue.ack("n", [seq], results=["secret"])
            refused(await waiting, 401, "unauthorized")
