"""Retries over v0: backoff, fail, refunds, and jobs that kill their workers. docs/retries.md has the promises."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.api.dialect import Body, Topic
from tests.api.test_metrics import scrape


@pytest.fixture
def dead(queue: Topic) -> Topic:
    return Topic(queue.http, f"{queue.name}.dead")


async def crash(queue: Topic) -> Body:
    """A worker takes a job and is never heard of again; the job as it was handed out."""
    return await queue.take("dies", lease_ms=100)


async def requeue(queue: Topic, seq: int) -> None:
    """Whoever takes it next waits for it."""
    assert (await queue.http.post(f"{queue.path}/requeue", json={"seqs": [seq]})).status_code == 202


def told(job: Body) -> tuple[int, int, bool]:
    """crashes, failures, and whether the job is suspected."""
    assert 0 not in {job.get("crashes"), job.get("failures")}
    return job.get("crashes", 0), job.get("failures", 0), job.get("suspected_poison", False)


async def test_a_job_that_kills_its_worker_twice_is_suspected(http: httpx.AsyncClient, queue: Topic) -> None:
    (seq,) = await queue.add(1)
    before = await scrape(http)
    assert told(await crash(queue)) == (0, 0, False)
    assert told(await queue.take()) == (1, 0, False)
    await queue.nack("n", [seq])
    assert told(await crash(queue)) == (1, 1, False)
    assert told(await queue.take()) == (2, 1, True)
    await queue.nack("n", [seq])
    again = await queue.take()
    assert (told(again), again["deliveries"]) == ((2, 2, True), 5)
    after = await scrape(http)
    moved = {
        name: after.of(f"topic_{name}_total", topic=queue.name) - before.of(f"topic_{name}_total", topic=queue.name)
        for name in ("crashes", "suspected_poison")
    }
    assert moved == {"crashes": 2, "suspected_poison": 1}


async def test_a_dead_letter_tells_how_often_its_workers_died(queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=2, dead_letter=dead.name)
    (seq,) = await queue.add(1)
    await crash(queue)
    await crash(queue)
    assert (await queue.claim(wait_ms=1_000))["count"] == 0  # it meets the second crash, and buries it
    letter = await dead.take()
    assert told(letter) == (0, 0, True)
    assert letter["meta"] == {
        "$dead_letter_from": queue.name,
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": str(seq),
        "$dead_letter_crashes": "2",
    }
    (read,) = (await dead.post("diff", from_seq=0))["records"]
    assert read["meta"] == letter["meta"]
    await dead.nack("n", [letter["$seq"]])
    await requeue(queue, seq)
    fresh = await queue.take()
    assert (fresh["$seq"], fresh["deliveries"], told(fresh)) == (seq, 1, (0, 0, False))


async def test_what_is_given_up_fails_where_there_are_no_dead_letters(queue: Topic) -> None:
    seqs = await queue.add(3)
    await queue.claim(max=2)
    answer = await queue.fail("n", seqs, errors=["boom", None, "not mine"])
    assert (answer["failed"], answer["skipped"]) == (2, [seqs[2]])
    assert (answer["ready"], answer["in_flight"]) == (1, 0)
    assert (await queue.take())["$seq"] == seqs[2]
    assert (await queue.claim())["count"] == 0


@pytest.mark.parametrize("on_exhausted", ["dead_letter", "redeliver"])
async def test_what_is_given_up_is_a_dead_letter_whatever_is_left_of_its_deliveries(
    queue: Topic, dead: Topic, on_exhausted: str
) -> None:
    await queue.put(max_deliveries=9, dead_letter=dead.name, on_exhausted=on_exhausted)
    (seq,) = await queue.add(1)
    job = await queue.take()
    assert (await queue.fail("n", [seq], lease_ids=["lease_" + "0" * 32]))["skipped"] == [seq]
    assert (await queue.fail("else", [seq]))["skipped"] == [seq]
    assert (await queue.fail("n", [seq], lease_ids=[job["lease_id"]], errors=["boom"]))["failed"] == 1
    assert (await queue.fail("n", [seq]))["skipped"] == [seq]
    letter = await dead.take()
    assert letter["meta"]["$dead_letter_deliveries"] == "1"
    assert (await queue.state())["queue"]["dead_lettered"] == 1
    # A dead letter that is given up has failed.
    assert (await dead.fail("n", [letter["$seq"]], errors=["still"]))["failed"] == 1
    assert (await queue.http.get(f"{dead.path}/jobs/{letter['$seq']}")).json()["state"] == "failed"


async def test_three_refunds_and_then_it_counts(http: httpx.AsyncClient, queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    (seq,) = await queue.add(1)
    for round_ in (1, 2):
        for _ in range(3):
            assert (await queue.take())["deliveries"] == 1
            answer = await queue.nack("n", [seq, 99], refund=True)
            assert (answer["nacked"], answer["skipped"], answer["refunded"]) == (1, [99], [seq])
        await queue.take()
        answer = await queue.nack("n", [seq], refund=True)
        assert (answer["nacked"], answer["refunded"]) == (1, [])
        letter = await dead.take()
        assert letter["meta"]["$dead_letter_src_seq"] == str(seq)
        assert (await scrape(http)).of("topic_refunded_total", topic=queue.name) == 3 * round_
        assert "refunded" not in await dead.nack("n", [letter["$seq"]])
        await requeue(queue, seq)  # which gives it its refunds again


async def test_a_backoff_is_waited_out_unless_the_nack_says_otherwise_or_the_worker_died(queue: Topic) -> None:
    made = await queue.put(backoff={"kind": "linear", "base_ms": 200})
    assert made["config"]["backoff"] == {"kind": "linear", "base_ms": 200, "cap_ms": 86_400_000, "jitter": "none"}
    (seq,) = await queue.add(1)
    await queue.take()
    for deliveries in (2, 3):
        began = time.monotonic()
        await queue.nack("n", [seq])
        assert (await queue.take())["deliveries"] == deliveries
        assert time.monotonic() - began >= (deliveries - 1) * 0.2
    await queue.put(backoff={"kind": "fixed", "base_ms": 3_600_000, "jitter": "full"})
    assert (await queue.state())["config"]["backoff"]["jitter"] == "full"
    await queue.nack("n", [seq], delay_ms=0)
    await crash(queue)
    assert told(await queue.take())[0] == 1
    await queue.nack("n", [seq], refund=True)
    await queue.take()
    await queue.put(backoff={"kind": "fixed", "base_ms": 3_600_000})
    await queue.nack("n", [seq])
    assert (await queue.claim())["count"] == 0
    assert await queue.counts() == (0, 0)
    await queue.put()
    assert (await queue.state())["config"]["backoff"] is None
