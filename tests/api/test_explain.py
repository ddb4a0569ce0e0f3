"""Why is it not running? Each reason by its cause, and in pairs, what must be mended first coming first."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.keyring import bearer, client
from tests.api.keyring import make as make_key
from tests.conftest import Running


async def explain(queue: Topic, seq: int) -> Body:
    return accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/explain"))


async def codes(queue: Topic, seq: int) -> list[str]:
    return [reason["code"] for reason in (await explain(queue, seq))["reasons"]]


async def history(queue: Topic, seq: int) -> list[Body]:
    events: list[Body] = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/history"))["events"]
    return events


async def test_nobody_claims(queue: Topic) -> None:
    first, second = await queue.add(2)
    assert await codes(queue, first) == ["no_claimer"]
    told = await explain(queue, second)
    assert [reason["code"] for reason in told["reasons"]] == ["no_claimer", "behind"]
    assert told["reasons"][1]["detail"]["ahead"] == 1
    assert told["state"] == "ready"
    assert told["wait_ms"] is None


async def test_a_claim_of_late_is_a_claimer(queue: Topic) -> None:
    _, second, third = await queue.add(3)
    await queue.claim()
    assert await codes(queue, second) == ["next"]
    assert await codes(queue, third) == ["behind"]


async def test_scheduled(queue: Topic) -> None:
    [seq] = await queue.add(1, delay_ms=60_000)
    told = await explain(queue, seq)
    assert told["state"] == "scheduled"
    assert [reason["code"] for reason in told["reasons"]] == ["scheduled", "no_claimer"]
    detail = told["reasons"][0]["detail"]
    assert 55_000 < detail["in_ms"] <= 60_000
    assert abs(detail["until"] - (time.time() * 1000 + detail["in_ms"])) < 5_000


async def test_returned_with_a_delay_tells_the_error(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.claim()
    await queue.nack("n", [seq], delay_ms=60_000, errors=["no route to host"])
    [reason] = (await explain(queue, seq))["reasons"]
    assert reason["code"] == "scheduled"
    assert "1 delivery" in reason["message"]
    assert "no route to host" in reason["message"]


async def test_leased(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.claim("w1", lease_ms=60_000)
    told = await explain(queue, seq)
    [reason] = told["reasons"]
    assert (told["state"], reason["code"]) == ("leased", "leased")
    assert reason["detail"]["node"] == "w1"
    assert 50_000 < reason["detail"]["in_ms"] <= 60_000


async def test_a_lease_that_ended_is_next(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.claim(lease_ms=100)

    async def ready() -> bool:
        return bool((await explain(queue, seq))["state"] == "ready")

    await eventually(ready)
    assert await codes(queue, seq) == ["next"]


async def test_a_higher_priority_and_a_returned_job_are_before_it(queue: Topic) -> None:
    low, returned = await queue.add(2)
    await queue.claim(max=2)
    await queue.nack("n", [low, returned])
    await queue.add(3, priority=5)
    fresh = (await queue.add(1))[0]
    told = await explain(queue, fresh)
    assert told["reasons"][-1]["detail"]["ahead"] == 5
    assert (await explain(queue, returned))["reasons"][-1]["detail"]["ahead"] == 4


async def test_the_last_delivery_is_over(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    [seq] = await queue.add(1)
    await queue.claim(lease_ms=100)
    await eventually(lambda: _is(queue, seq, ["exhausted"]))
    await queue.claim()
    told = await explain(queue, seq)
    assert (told["state"], told["reasons"][0]["code"]) == ("failed", "failed")


async def test_dead_lettered(queue: Topic) -> None:
    await queue.put(max_deliveries=2, dead_letter=f"{queue.name}.dlq")
    [seq] = await queue.add(1)
    for error in ("first", "boom"):
        await queue.claim()
        await queue.nack("n", [seq], errors=[error])
    told = await explain(queue, seq)
    [reason] = told["reasons"]
    assert (told["state"], reason["code"]) == ("gone", "dead_lettered")
    assert reason["detail"]["topic"] == f"{queue.name}.dlq"
    assert (reason["detail"]["error"], reason["detail"]["deliveries"]) == ("boom", 2)
    assert "2 deliveries" in reason["message"]
    assert "boom" in reason["message"]
    accepted(await queue.http.delete(f"/v0/topics/{queue.name}.dlq"))
    [reason] = (await explain(queue, seq))["reasons"]
    detail = {name: reason["detail"][name] for name in ("topic", "seq", "error", "deliveries")}
    assert detail == {"topic": None, "seq": None, "error": "boom", "deliveries": 2}, "the ledger still knows"


async def test_expired(queue: Topic) -> None:
    [seq] = await queue.add(1, ttl_ms=1)
    await eventually(lambda: _is(queue, seq, ["expired"]))


async def test_acknowledged(queue: Topic) -> None:
    [seq] = await queue.add(1)
    await queue.claim("w1")
    await queue.ack("w1", [seq])
    told = await explain(queue, seq)
    [reason] = told["reasons"]
    assert (told["state"], reason["code"], reason["detail"]["event"]) == ("gone", "ended", "acked")
    events = await history(queue, seq)
    assert [event["event"] for event in events] == ["enqueued", "claimed", "acked"]
    assert [event["node"] for event in events] == [None, "w1", "w1"]
    assert all("lease_id" not in event for event in events)


async def test_out_of_tokens(queue: Topic) -> None:
    await queue.put(throughput_limit=1)
    seqs = await queue.add(5)
    await queue.claim(max=5)
    told = await explain(queue, seqs[-1])
    assert [reason["code"] for reason in told["reasons"]] == ["throughput_limit", "behind"]
    detail = told["reasons"][0]["detail"]
    assert detail["limit"] == 1
    assert 0 < detail["refill_ms"] <= told["wait_ms"] <= 4_000

    async def refilled() -> bool:
        return "throughput_limit" not in await codes(queue, seqs[-1])

    began = time.monotonic()
    await eventually(refilled)
    assert time.monotonic() - began < detail["refill_ms"] / 1000 + 0.5, "when the bucket says so"


async def test_behind_the_head_of_its_group(queue: Topic) -> None:
    first, second, third = await queue.add(3, group="g")
    told = await explain(queue, third)
    assert (told["state"], [reason["code"] for reason in told["reasons"]]) == ("blocked", ["blocked"])
    assert told["reasons"][0]["detail"] == {
        **told["reasons"][0]["detail"],
        **{"head": first, "state": "ready", "before": 1},
    }
    await queue.claim("w1", lease_ms=60_000)
    [reason] = (await explain(queue, second))["reasons"]
    assert (reason["detail"]["state"], reason["detail"]["node"], reason["detail"]["before"]) == ("leased", "w1", 0)
    assert "w1" in reason["message"]
    await queue.nack("w1", [first], delay_ms=60_000)
    [reason] = (await explain(queue, second))["reasons"]
    assert reason["detail"]["state"] == "scheduled"


async def test_its_tenant_is_at_its_limit(queue: Topic) -> None:
    await queue.put(tenant_limits={"acme": 1})
    _, second = await queue.add(2, tenant="acme")
    await queue.claim(max=2)
    told = await explain(queue, second)
    assert [reason["code"] for reason in told["reasons"]] == ["tenant_limit"]
    assert told["wait_ms"] is None, "nobody can tell when the lease ends"
    assert told["reasons"][0]["detail"] == {"tenant": "acme", "limit": 1, "in_flight": 1}


async def test_a_paused_tenant_has_its_own_jobs_before_it(queue: Topic) -> None:
    last = (await queue.add(5, tenant="acme"))[-1]
    [other] = await queue.add(1, tenant="other")
    accepted(await queue.http.post(f"{queue.path}/pause", json={"tenant": "acme"}))
    told = await explain(queue, last)
    assert [reason["code"] for reason in told["reasons"]] == ["paused", "no_claimer", "behind"]
    assert (told["reasons"][2]["detail"]["ahead"], told["wait_ms"]) == (4 + 1, None)
    assert await codes(queue, other) == ["no_claimer"], "paused ones take no turns"


async def test_the_topics_order_says_what_is_ahead(queue: Topic) -> None:
    await queue.put(priority_order="lowest_first")
    await queue.add(4, priority=9)
    [low] = await queue.add(1)
    assert "behind" not in await codes(queue, low)
    assert (await explain(queue, 1))["reasons"][-1]["detail"]["ahead"] == 1


async def test_a_job_that_is_old_enough_overtakes(queue: Topic) -> None:
    await queue.put(aging_ms=20)
    [old] = await queue.add(1)
    await queue.add(20, priority=9)
    await eventually(lambda: _is_behind(queue, old, 3))  # of four jobs, one is of a lane that overtakes
    assert (await explain(queue, old + 1))["reasons"][-1]["code"] == "no_claimer"
    await queue.put(aging_ms=0)
    assert await _is_behind(queue, old, 20)


async def _is_behind(queue: Topic, seq: int, ahead: int) -> bool:
    return bool((await explain(queue, seq))["reasons"][-1]["detail"]["ahead"] == ahead)


async def test_other_tenants_take_their_turns(queue: Topic) -> None:
    await queue.put(tenant_weights={"b": 2})
    await queue.add(100, tenant="a")
    await queue.add(2, tenant="b")
    [mine] = await queue.add(1, tenant="c")
    assert (await explain(queue, mine))["reasons"][-1]["detail"]["ahead"] == 1 + 2
    assert (await explain(queue, 1))["reasons"][-1]["detail"]["ahead"] == 2 + 1


async def test_the_wait_is_right_within_a_factor_of_two(queue: Topic) -> None:
    await queue.add(400)
    [seq] = await queue.add(1)
    steady = asyncio.create_task(_work(queue))
    try:
        await asyncio.sleep(1)  # of a steady load
        began = time.monotonic()
        told = (await explain(queue, seq))["wait_ms"] / 1000

        async def runs() -> bool:
            return bool((await explain(queue, seq))["state"] != "ready")

        await eventually(runs, seconds=20)
        took = time.monotonic() - began
        assert took / 2 < told < took * 2
    finally:
        steady.cancel()


async def _work(queue: Topic) -> None:
    """A hundred jobs a second, or thereabouts."""
    while True:
        jobs = (await queue.claim(max=10))["claimed"]
        await queue.ack("n", sorted(job["$seq"] for job in jobs))
        await asyncio.sleep(0.1)


async def _is(queue: Topic, seq: int, wanted: list[str]) -> bool:
    return await codes(queue, seq) == wanted


async def test_a_topic(queue: Topic) -> None:
    path = f"{queue.path}/explain"
    [reason] = accepted(await queue.http.get(path))["reasons"]
    assert reason["code"] == "empty"
    await queue.add(1, delay_ms=60_000)
    told = accepted(await queue.http.get(path))
    assert (told["claimable"], told["scheduled"]) == (0, 1)
    assert "1 scheduled for later" in told["reasons"][0]["message"]
    await queue.add(3)
    told = accepted(await queue.http.get(path))
    assert [reason["code"] for reason in told["reasons"]] == ["no_claimer", "behind"]
    assert told["claimable"] == 3


async def test_a_group(queue: Topic) -> None:
    first, *_ = await queue.add(3, group="g", tenant="acme")
    told = await of_group(queue, "g", "acme")
    assert (told["head"], told["state"], told["behind"], told["at_least"]) == (first, "ready", 2, False)
    assert [reason["code"] for reason in told["reasons"]] == ["no_claimer"]
    assert not {"claimable", "scheduled", "blocked", "in_flight"} & set(told)
    await queue.claim("w1", lease_ms=60_000)
    told = await of_group(queue, "g", "acme")
    assert (told["state"], told["reasons"][0]["code"], told["reasons"][0]["detail"]["node"]) == (
        "leased",
        "leased",
        "w1",
    )
    await queue.nack("w1", [first], delay_ms=60_000, errors=["no route to host"])
    told = await of_group(queue, "g", "acme")
    assert (told["state"], told["reasons"][0]["code"]) == ("scheduled", "scheduled")
    assert "no route to host" in told["reasons"][0]["message"]
    assert 50_000 < told["wait_ms"] <= 60_000


async def test_a_group_whose_head_is_over(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    first, second = await queue.add(2, group="g")
    await queue.claim(lease_ms=100)

    async def exhausted() -> bool:
        return [reason["code"] for reason in (await of_group(queue, "g"))["reasons"]] == ["exhausted"]

    await eventually(exhausted)
    assert (await explain(queue, second))["reasons"][0]["detail"]["head"] == first
    await queue.put()
    await queue.claim()
    await queue.post("cancel", seqs=[first])
    told = await of_group(queue, "g")
    assert (told["head"], told["state"], told["behind"]) == (second, "ready", 0), "a cancelled one is no head"
    [reason] = (await explain(queue, first))["reasons"]
    assert reason["code"] == "cancelled"


async def test_a_group_without_jobs(queue: Topic) -> None:
    await queue.add(2, group="g")
    told = await of_group(queue, "g", "acme")
    assert (told["head"], told["state"], told["behind"], told["wait_ms"]) == (None, None, 0, None)
    assert [reason["code"] for reason in told["reasons"]] == ["empty"]
    for asked in ("group=", f"group={'g' * 129}", "group=%00", "tenant=acme", f"group=g&tenant={'t' * 129}"):
        refused(await queue.http.get(f"{queue.path}/explain?{asked}"), 400, "invalid_request")


async def of_group(queue: Topic, group: str, tenant: str = "") -> Body:
    return accepted(await queue.http.get(f"{queue.path}/explain", params={"group": group, "tenant": tenant}))


async def test_what_nobody_knows(queue: Topic) -> None:
    for verb in ("explain", "history"):
        refused(await queue.http.get(f"{queue.path}/jobs/999/{verb}"), 404, "not_found")
        refused(await queue.http.get(f"{queue.path}/jobs/0/{verb}"), 400, "invalid_request")
        refused(await queue.http.get(f"{queue.path}/jobs/1/{verb}?x=1"), 400, "invalid_request")


@pytest.mark.parametrize("verb", ["explain", "history", "result"])
async def test_where_a_job_of_a_key_went_to_in_a_topic_of_others_is_not_told(
    guarded: Running, topic: str, verb: str
) -> None:
    async with client(guarded, "root") as root:
        queue, dead = Topic(root, f"mine.{topic}"), Topic(root, f"secret.{topic}")
        key = await make_key(root, f"k-{topic}", ["read"], prefixes=["mine."])
        await queue.put(max_deliveries=1, dead_letter=dead.name)
        [gone], [back] = await queue.add(1), await queue.add(1, tag="back")
        await queue.claim(max=2)
        await queue.nack("n", [gone, back], errors=["boom", "boom"])
        assert (await root.post(f"{queue.path}/requeue", json={"filter": {"tag": "back"}})).status_code == 202
        await queue.until_counts(1, 0)
        for seq in (gone, back):
            path = f"{queue.path}/jobs/{seq}/{verb}"
            whole = await root.get(path)
            assert (dead.name in whole.text) == ((verb == "history") == (seq == back)), whole.text
            shown = accepted(await root.get(path, headers=bearer(key["secret"])))
            assert dead.name not in str(shown)
