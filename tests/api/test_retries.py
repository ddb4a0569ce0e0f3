"""Retries over v0: backoff, fail, refunds, and jobs that kill their workers. docs/retries.md has the promises."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.api.dialect import Body, Topic
from tests.api.test_metrics import scrape

SHORT = 100  # ms of a lease, the shortest


@pytest.fixture
def dead(queue: Topic) -> Topic:
    return Topic(queue.http, f"{queue.name}.dead")


async def crash(queue: Topic) -> Body:
    """A worker takes a job and is never heard of again; the job as it was handed out."""
    return await queue.take("dies", lease_ms=SHORT)


async def requeue(queue: Topic, seq: int) -> None:
    """Whoever takes it next waits for it."""
    assert (await queue.http.post(f"{queue.path}/requeue", json={"seqs": [seq]})).status_code == 202


def told(job: Body) -> tuple[int, int, bool]:
    """crashes, failures, and whether the job is suspected."""
    assert 0 not in {job.get("crashes"), job.get("failures")}
    return job.get("crashes", 0), job.get("failures", 0), job.get("suspected_poison", False)


async def test_a_job_that_kills_its_worker_twice_is_suspected(http: httpx.AsyncClient, queue: Topic) -> None:
    await queue.put()
    (seq,) = await queue.add(1)
    before = await scrape(http)
    assert told(await crash(queue)) == (0, 0, False)
    first = await queue.take()
    assert told(first) == (1, 0, False)
    await queue.nack("n", [seq])
    assert told(await crash(queue)) == (1, 1, False)
    assert told(await queue.take()) == (2, 1, True)
    await queue.nack("n", [seq])
    again = await queue.take()
    assert told(again) == (2, 2, True)
    assert again["deliveries"] == 5
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


async def test_a_record_of_a_dead_letter_tells_it_too(queue: Topic, dead: Topic) -> None:
    await dead.put(type="log")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(1)
    await crash(queue)
    assert (await queue.claim(wait_ms=1_000))["count"] == 0
    (record,) = (await dead.post("diff", from_seq=0))["records"]
    assert record["meta"]["$dead_letter_crashes"] == "1"


@pytest.mark.parametrize("settings", [{}, {"max_deliveries": 9, "on_exhausted": "fail"}], ids=str)
async def test_what_is_given_up_fails_where_there_are_no_dead_letters(queue: Topic, settings: Body) -> None:
    await queue.put(**settings)
    seqs = await queue.add(3)
    await queue.claim(max=2)
    answer = await queue.fail("n", seqs, errors=["boom", None, "not mine"])
    assert (answer["failed"], answer["skipped"]) == (2, [seqs[2]])
    assert (answer["ready"], answer["in_flight"]) == (1, 0)
    assert (await queue.take())["$seq"] == seqs[2]
    assert (await queue.claim())["count"] == 0
    answer = (await queue.http.get(f"{queue.path}/failures")).json()
    assert {one["title"]: one["count"] for one in answer["failures"]}["boom"] == 1


@pytest.mark.parametrize("on_exhausted", ["dead_letter", "redeliver"])
async def test_what_is_given_up_is_a_dead_letter_whatever_is_left_of_its_deliveries(
    queue: Topic, dead: Topic, on_exhausted: str
) -> None:
    await queue.put(max_deliveries=9, dead_letter=dead.name, on_exhausted=on_exhausted)
    (seq,) = await queue.add(1)
    job = await queue.take()
    other = "lease_" + "0" * 32
    assert (await queue.fail("n", [seq], lease_ids=[other]))["skipped"] == [seq]
    assert (await queue.fail("else", [seq]))["skipped"] == [seq]
    assert (await queue.fail("n", [seq], lease_ids=[job["lease_id"]], errors=["boom"]))["failed"] == 1
    assert (await queue.fail("n", [seq]))["skipped"] == [seq]
    letter = await dead.take()
    assert letter["meta"]["$dead_letter_deliveries"] == "1"
    assert (await queue.state())["queue"]["dead_lettered"] == 1


async def test_a_dead_letter_that_is_given_up_has_failed(queue: Topic, dead: Topic) -> None:
    await queue.put(dead_letter=dead.name)
    (seq,) = await queue.add(1)
    await queue.take()
    await queue.fail("n", [seq])
    letter = await dead.take()
    assert (await dead.fail("n", [letter["$seq"]], errors=["still"]))["failed"] == 1
    found = await queue.http.get(f"{dead.path}/jobs/{letter['$seq']}")
    assert found.json()["state"] == "failed"


async def test_a_lease_that_has_ended_gives_nothing_up(queue: Topic) -> None:
    await queue.put()
    (seq,) = await queue.add(1)
    await queue.take("dies", lease_ms=SHORT)
    again = await queue.take()  # once that lease has ended
    assert (await queue.fail("dies", [seq]))["skipped"] == [seq]
    assert (await queue.ack("n", [seq], lease_ids=[again["lease_id"]]))["acked"] == 1


async def test_those_who_give_up_at_once_share_a_statement_and_each_has_its_answer(queue: Topic) -> None:
    await queue.put()
    seqs = await queue.add(20)
    await queue.claim(max=20)
    answers = await asyncio.gather(*(queue.fail("n", [seq, 10_000 + seq]) for seq in reversed(seqs)))
    assert [(one["failed"], one["skipped"]) for one in answers] == [(1, [10_000 + seq]) for seq in reversed(seqs)]


async def test_three_refunds_and_then_it_counts(http: httpx.AsyncClient, queue: Topic, dead: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    (seq,) = await queue.add(1)
    for _ in range(3):
        assert (await queue.take())["deliveries"] == 1
        answer = await queue.nack("n", [seq, 99], refund=True)
        assert (answer["nacked"], answer["skipped"], answer["refunded"]) == (1, [99], [seq])
    await queue.take()
    answer = await queue.nack("n", [seq], refund=True)
    assert (answer["nacked"], answer["refunded"]) == (1, [])
    assert (await dead.take())["meta"]["$dead_letter_src_seq"] == str(seq)
    assert (await scrape(http)).of("topic_refunded_total", topic=queue.name) == 3


async def test_a_requeued_job_has_its_refunds_again(queue: Topic) -> None:
    await queue.put()
    (seq,) = await queue.add(1)
    for _ in range(2):
        for _ in range(3):
            await queue.take()
            assert (await queue.nack("n", [seq], refund=True))["refunded"] == [seq]
        await queue.take()
        assert (await queue.nack("n", [seq], refund=True))["refunded"] == []
        await queue.take()
        await queue.fail("n", [seq])
        await requeue(queue, seq)


async def test_a_nack_without_refund_says_nothing_of_it(queue: Topic) -> None:
    await queue.put()
    (seq,) = await queue.add(1)
    await queue.take()
    assert "refunded" not in await queue.nack("n", [seq])


async def test_a_backoff_is_waited_out(queue: Topic) -> None:
    """It comes by itself, no sooner than the backoff says."""
    made = await queue.put(backoff={"kind": "linear", "base_ms": 200})
    assert made["config"]["backoff"] == {"kind": "linear", "base_ms": 200, "cap_ms": 86_400_000, "jitter": "none"}
    (seq,) = await queue.add(1)
    await queue.take()
    for deliveries in (2, 3):
        began = time.monotonic()
        await queue.nack("n", [seq])
        job = await queue.take()
        assert job["deliveries"] == deliveries
        assert time.monotonic() - began >= (deliveries - 1) * 0.2


async def test_a_nacks_own_delay_goes_first_and_a_dead_worker_is_not_waited_for(queue: Topic) -> None:
    await queue.put(backoff={"kind": "fixed", "base_ms": 3_600_000})
    (seq,) = await queue.add(1)
    await queue.take()
    await queue.nack("n", [seq], delay_ms=0)
    await crash(queue)
    assert told(await queue.take()) == (1, 1, False)
    await queue.nack("n", [seq], refund=True)
    await queue.take()
    await queue.nack("n", [seq])
    assert (await queue.claim())["count"] == 0
    assert await queue.counts() == (0, 0)


async def test_a_backoff_may_change_and_end(queue: Topic) -> None:
    await queue.put(backoff={"kind": "exponential", "base_ms": 3_600_000, "jitter": "full"})
    assert (await queue.state())["config"]["backoff"]["jitter"] == "full"
    await queue.put()
    assert (await queue.state())["config"]["backoff"] is None
    (seq,) = await queue.add(1)
    await queue.take()
    await queue.nack("n", [seq])
    assert (await queue.claim())["count"] == 1
