"""What workers hand in, and who reads it: results, how jobs end otherwise, and progress. docs/jobs.md."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from app.features.results.outcomes import Outcomes
from tests.api.dialect import JSON, Body, Topic, accepted, eventually, refused
from tests.api.keyring import client, make

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

MIB = 1024 * 1024


async def result(queue: Topic, seq: int, wait_ms: int = 0) -> Body:
    return accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/result?wait_ms={wait_ms}", timeout=70))


async def until_waited_for(service: Running, count: int = 1) -> None:
    async def fact() -> bool:
        return service.context.core(Outcomes).count() == count

    await eventually(fact)


async def test_a_result_is_what_was_handed_in_for_each_seq(queue: Topic) -> None:
    handed_in = [{"n": 1, "é": [None, 1e300]}, 0, False, "", [], "x" * (MIB - 2), None]
    seqs = await queue.add(len(handed_in))
    await queue.claim(max=len(handed_in))
    before = time.time() * 1000
    answer = await queue.ack("n", seqs[::-1], results=handed_in[::-1])
    assert answer["acked"] == len(handed_in)
    for seq, one in zip(seqs, handed_in, strict=True):
        found = await result(queue, seq)
        assert (found["state"], found["result"]) == ("completed", one)
        assert before - 5_000 < found["completed_at"] < before + 60_000
        if one is None:
            assert "expires_at" not in found, "none was handed in"
        else:
            assert found["expires_at"] == pytest.approx(found["completed_at"] + 86_400_000, abs=1)
    refused(await queue.http.get(f"{queue.path}/jobs/77/result"), 404, "not_found")
    await queue.drop()
    await queue.put()
    refused(await queue.http.get(f"{queue.path}/jobs/1/result"), 404, "not_found")  # of its namesake


async def test_the_same_lease_answers_the_same_again_wherever_it_is_asked(serve: Serve, queue: Topic) -> None:
    [seq] = await queue.add(1)
    job = await queue.take()
    async with httpx.AsyncClient(base_url=(await serve()).url, timeout=35) as other:
        for where, handed_in in ((queue, "first"), (queue, "second"), (queue.through(other), "third")):
            answer = await where.ack("n", [seq], lease_ids=[job["lease_id"]], results=[handed_in])
            assert (answer["acked"], answer["skipped"]) == (1, [])
            assert (await result(where, seq))["result"] == "first"
    assert (await queue.ack("n", [seq], lease_ids=[job["lease_id"]]))["skipped"] == [seq], "no result, no receipt"
    assert (await queue.ack("n", [seq], results=["x"]))["skipped"] == [seq], "a node is no lease"
    events = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/history"))["events"]
    assert [event["event"] for event in events] == ["enqueued", "claimed", "acked"]
    [reason] = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/explain"))["reasons"]
    assert reason["code"] == "ended"
    assert "Its result is kept until" in reason["message"]
    assert accepted(await queue.http.get(reason["detail"]["result"]))["result"] == "first"


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


async def test_callers_wait_for_an_ack_and_a_nack_is_no_end(service: Running, queue: Topic) -> None:
    [seq] = await queue.add(1)
    began = time.monotonic()
    assert (await result(queue, seq, 300))["state"] == "pending"
    assert time.monotonic() - began >= 0.29
    waiting = [asyncio.create_task(result(queue, seq, 60_000)) for _ in range(3)]
    await until_waited_for(service, 3)
    waiting.pop().cancel()
    await until_waited_for(service, 2)
    await queue.take()
    await queue.nack("n", [seq])
    await queue.take()
    await queue.ack("n", [seq], results=[{"ok": True}])
    assert [found["result"] for found in await asyncio.gather(*waiting)] == [{"ok": True}] * 2
    assert service.context.core(Outcomes).count() == 0


async def test_an_end_through_another_process_is_found(serve: Serve, service: Running, queue: Topic) -> None:
    [seq] = await queue.add(1)
    waiting = asyncio.create_task(result(queue, seq, 60_000))
    await until_waited_for(service)
    async with httpx.AsyncClient(base_url=(await serve()).url, timeout=35) as other:
        there = queue.through(other)
        await there.take()
        await there.ack("n", [seq], results=["there"])
    assert (await waiting)["result"] == "there"


async def test_how_jobs_end_otherwise(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    failed, deleted = await queue.add(2)
    await queue.take()
    await queue.nack("n", [failed], errors=["boom"])
    found = await result(queue, failed)
    assert (found["state"], found["error"], "result" in found) == ("failed", "boom", False)
    assert abs(found["ended_at"] - time.time() * 1000) < 60_000
    await queue.post("delete", before_seq=deleted + 1)
    assert (await result(queue, deleted))["state"] == "deleted"
    [expired] = await queue.add(1, ttl_ms=700)
    assert (await result(queue, expired, 60_000))["state"] == "expired"


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


async def test_bad_results_progress_and_waits_are_refused_and_the_job_stays(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.take()
    bad: list[tuple[str, Body, str]] = [
        ("ack", {"results": []}, "invalid_request"),
        ("ack", {"results": [1, 2]}, "invalid_request"),
        ("ack", {"results": ["x" * MIB]}, "record_too_large"),
        ("ack", {"results": [None], "seqs": []}, "invalid_request"),
    ]
    for progress in ([], [{"percent": 101}], [{"percent": 1, "note": "é" * 513}]):
        bad.append(("extend", {"lease_ms": 60_000, "progress": progress}, "invalid_request"))
    for verb, fields, code in bad:
        body = {"node": "n", "seqs": [seq], **fields}
        refused(await queue.http.post(f"{queue.path}/{verb}", json=body), 400, code)
    for raw in ("[" * 129 + "]" * 129, '"\\u0000"'):
        text = f'{{"node": "n", "seqs": [{seq}], "results": [{raw}]}}'
        refused(await queue.http.post(f"{queue.path}/ack", content=text, headers=JSON), 400, "invalid_request")
    for wait in ("-1", "60001", ""):
        refused(await queue.http.get(f"{queue.path}/jobs/1/result?wait_ms={wait}"), 400, "invalid_request")
    assert await queue.counts() == (0, 1)


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
    assert 'Progress: 40%: "half of it"' in reason["message"]
    await queue.extend("n", [seq], 100, progress=[{"percent": 90}], **fields)
    assert (await queue.take())["deliveries"] == 2
    assert "progress" not in await result(queue, seq), "it was of another lease"
    answer = await queue.extend("n", [seq], 60_000, progress=[{"percent": 99}], **fields)
    assert answer["skipped"] == [seq], "whose holder says nothing any more"
    assert "progress" not in await result(queue, seq)


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
