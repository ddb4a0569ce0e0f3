"""Why is it not running? Each reason by its cause, and what it says; of a job, a topic, a group."""

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


async def reason(queue: Topic, seq: int) -> tuple[str, str, Body, str]:
    """State, the one reason, its detail and its message."""
    told = await explain(queue, seq)
    [one] = told["reasons"]
    return told["state"], one["code"], one["detail"], one["message"]


async def ahead(queue: Topic, seq: int) -> int:
    behind = (await explain(queue, seq))["reasons"][-1]
    return int(behind["detail"]["ahead"]) if behind["code"] == "behind" else 0


async def of_group(queue: Topic, group: str, tenant: str = "") -> Body:
    return accepted(await queue.http.get(f"{queue.path}/explain", params={"group": group, "tenant": tenant}))


async def until(queue: Topic, seq: int, wanted: list[str]) -> None:
    async def fact() -> bool:
        return await codes(queue, seq) == wanted

    await eventually(fact)


async def test_nobody_claims_and_then_somebody_does(queue: Topic) -> None:
    first, second, third = await queue.add(3)
    assert await codes(queue, first) == ["no_claimer"]
    told = await explain(queue, second)
    assert [reason["code"] for reason in told["reasons"]] == ["no_claimer", "behind"]
    assert (told["reasons"][1]["detail"]["ahead"], told["state"], told["wait_ms"]) == (1, "ready", None)
    await queue.claim()
    assert await codes(queue, second) == ["next"]
    assert await codes(queue, third) == ["behind"]


async def test_scheduled_leased_and_ended(queue: Topic) -> None:
    [later, job] = [(await queue.add(1, delay_ms=delay))[0] for delay in (600_000, 0)]
    told = await explain(queue, later)
    assert (told["state"], await codes(queue, later)) == ("scheduled", ["scheduled", "no_claimer"])
    detail = told["reasons"][0]["detail"]
    assert 500_000 < detail["in_ms"] <= 600_000
    assert abs(detail["until"] - (time.time() * 1000 + detail["in_ms"])) < 30_000
    await queue.claim("w1", lease_ms=600_000)
    state, code, detail, _ = await reason(queue, job)
    assert (state, code, detail["node"]) == ("leased", "leased", "w1")
    assert 500_000 < detail["in_ms"] <= 600_000
    await queue.nack("w1", [job], delay_ms=60_000, errors=["no route to host"])
    state, code, _, message = await reason(queue, job)
    assert (state, code) == ("scheduled", "scheduled")
    assert "1 delivery" in message
    assert "no route to host" in message
    [other] = await queue.add(1)
    await queue.claim("w1", lease_ms=100)
    await until(queue, other, ["next"])  # once its lease has ended
    await queue.claim("w1")
    await queue.ack("w1", [other])
    state, code, detail, _ = await reason(queue, other)
    assert (state, code, detail["event"]) == ("gone", "ended", "acked")
    events = accepted(await queue.http.get(f"{queue.path}/jobs/{other}/history"))["events"]
    assert [event["event"] for event in events] == ["enqueued", "claimed", "claimed", "acked"]
    assert [event["node"] for event in events] == [None, "w1", "w1", "w1"]
    assert all("lease_id" not in event for event in events)
    [brief] = await queue.add(1, ttl_ms=1)
    await until(queue, brief, ["expired"])


async def test_the_last_delivery_is_over(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    [seq] = await queue.add(1)
    await queue.claim(lease_ms=100)
    await until(queue, seq, ["exhausted"])
    await queue.claim()
    accepted(await queue.http.post(f"{queue.path}/pause"))
    assert (await reason(queue, seq))[:2] == ("failed", "failed"), "of what is over nothing else is said"
    assert (await explain(queue, seq))["wait_ms"] is None


async def test_dead_lettered(queue: Topic) -> None:
    dead = Topic(queue.http, f"{queue.name}.dlq")
    await queue.put(max_deliveries=2, dead_letter=dead.name)
    [seq] = await queue.add(1)
    for error in ("first", "boom"):
        await queue.claim()
        await queue.nack("n", [seq], errors=[error])
    state, code, detail, message = await reason(queue, seq)
    assert (state, code, detail["topic"]) == ("gone", "dead_lettered", dead.name)
    assert (detail["error"], detail["deliveries"]) == ("boom", 2)
    assert "2 deliveries" in message
    assert "boom" in message
    await dead.drop()
    detail = (await reason(queue, seq))[2]
    assert (detail["topic"], detail["seq"]) == (None, None)
    assert (detail["error"], detail["deliveries"]) == ("boom", 2), "the ledger still knows"


async def test_out_of_tokens(queue: Topic) -> None:
    await queue.put(throughput_limit=1)
    *_, last = await queue.add(9)

    async def spent() -> Body | None:
        await queue.claim()
        told = await explain(queue, last)
        return told if [reason["code"] for reason in told["reasons"]] == ["throughput_limit", "behind"] else None

    told = await eventually(spent)
    assert told is not None
    detail = told["reasons"][0]["detail"]
    assert detail["limit"] == 1
    assert 0 < detail["refill_ms"] <= told["wait_ms"] <= 8_000
    await until(queue, last, ["behind"])


async def test_behind_the_head_of_its_group(queue: Topic) -> None:
    first, second, third = await queue.add(3, group="g")
    state, code, detail, _ = await reason(queue, third)
    assert (state, code) == ("blocked", "blocked")
    assert (detail["head"], detail["state"], detail["before"]) == (first, "ready", 1)
    await queue.claim("w1", lease_ms=60_000)
    _, _, detail, message = await reason(queue, second)
    assert (detail["state"], detail["node"], detail["before"]) == ("leased", "w1", 0)
    assert "w1" in message
    await queue.nack("w1", [first], delay_ms=60_000)
    assert (await reason(queue, second))[2]["state"] == "scheduled"


async def test_its_tenant_is_at_its_limit_or_paused(queue: Topic) -> None:
    await queue.put(tenant_limits={"acme": 1})
    first, second = await queue.add(2, tenant="acme")
    await queue.claim(max=2)
    told = await explain(queue, second)
    assert [reason["code"] for reason in told["reasons"]] == ["tenant_limit"]
    assert told["wait_ms"] is None, "nobody can tell when the lease ends"
    assert told["reasons"][0]["detail"] == {"tenant": "acme", "limit": 1, "in_flight": 1}
    await queue.put()
    await queue.nack("n", [first])
    [other] = await queue.add(1, tenant="other")
    accepted(await queue.http.post(f"{queue.path}/pause", json={"tenant": "acme"}))
    told = await explain(queue, second)
    assert [reason["code"] for reason in told["reasons"]] == ["paused", "behind"]
    assert (told["reasons"][1]["detail"]["ahead"], told["wait_ms"]) == (1 + 1, None)
    assert await codes(queue, other) == ["next"], "paused ones take no turns"


async def test_the_topics_order_says_what_is_ahead(queue: Topic) -> None:
    low, returned = await queue.add(2)
    await queue.claim(max=2)
    await queue.nack("n", [low, returned])
    high = (await queue.add(3, priority=5))[0]
    [fresh] = await queue.add(1)
    assert (await ahead(queue, fresh), await ahead(queue, returned), await ahead(queue, high)) == (5, 4, 0)
    await queue.put(priority_order="lowest_first")
    assert (await ahead(queue, fresh), await ahead(queue, low), await ahead(queue, high)) == (2, 0, 3)


async def test_a_job_that_is_old_enough_overtakes(queue: Topic) -> None:
    await queue.put(aging_ms=20)
    [old] = await queue.add(1)
    await queue.add(20, priority=9)

    async def overtakes() -> bool:
        return await ahead(queue, old) == 3  # of four jobs, one is of a lane that overtakes

    await eventually(overtakes)
    assert (await explain(queue, old + 1))["reasons"][-1]["code"] == "no_claimer"
    await queue.put(aging_ms=0)
    assert await ahead(queue, old) == 20


async def test_other_tenants_take_their_turns(queue: Topic) -> None:
    await queue.put(tenant_weights={"b": 2})
    await queue.add(100, tenant="a")
    await queue.add(2, tenant="b")
    [mine] = await queue.add(1, tenant="c")
    assert (await ahead(queue, mine), await ahead(queue, 1)) == (1 + 2, 2 + 1)


@pytest.mark.slow
async def test_the_wait_is_right_within_a_factor_of_two(queue: Topic) -> None:
    await queue.add(400)
    [seq] = await queue.add(1)

    async def work() -> None:
        """A hundred jobs a second, or thereabouts."""
        while True:
            jobs = (await queue.claim(max=10))["claimed"]
            await queue.ack("n", sorted(job["$seq"] for job in jobs))
            await asyncio.sleep(0.1)

    steady = asyncio.create_task(work())
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
    assert (told["state"], told["reasons"][0]["code"]) == ("leased", "leased")
    assert told["reasons"][0]["detail"]["node"] == "w1"
    await queue.nack("w1", [first], delay_ms=600_000, errors=["no route to host"])
    told = await of_group(queue, "g", "acme")
    assert (told["state"], told["reasons"][0]["code"]) == ("scheduled", "scheduled")
    assert "no route to host" in told["reasons"][0]["message"]
    assert 500_000 < told["wait_ms"] <= 600_000
    told = await of_group(queue, "g", "other")
    assert (told["head"], told["state"], told["behind"], told["wait_ms"]) == (None, None, 0, None)
    assert [reason["code"] for reason in told["reasons"]] == ["empty"]
    for asked in ("group=", "tenant=acme"):
        refused(await queue.http.get(f"{queue.path}/explain?{asked}"), 400, "invalid_request")


async def test_a_group_whose_head_is_over(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    first, second = await queue.add(2, group="g")
    await queue.claim(lease_ms=100)

    async def exhausted() -> bool:
        return [reason["code"] for reason in (await of_group(queue, "g"))["reasons"]] == ["exhausted"]

    await eventually(exhausted)
    assert (await reason(queue, second))[2]["head"] == first
    await queue.put()
    await queue.claim()
    await queue.post("cancel", seqs=[first])
    told = await of_group(queue, "g")
    assert (told["head"], told["state"], told["behind"]) == (second, "ready", 0), "a cancelled one is no head"
    assert await codes(queue, first) == ["cancelled"]


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
