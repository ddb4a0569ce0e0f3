"""Leases that an operator takes back: POST /v0/topics/:topic/release. docs/semantics.md, section 3."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.dialect import Body, Topic, accepted, refused, until_waiting
from tests.api.test_audit import entries
from tests.conftest import Running

TAKEN_BACK = "An operator took the lease back."
ONE_EACH = "visible_at must have one entry for each seq."


async def events(queue: Topic, seq: int) -> list[Body]:
    found: list[Body] = accepted(await queue.http.get(f"{queue.path}/jobs/{seq}/history"))["events"]
    return found


async def job(queue: Topic, seq: int) -> Body:
    return accepted(await queue.http.get(f"{queue.path}/jobs/{seq}"))


async def test_a_job_is_claimable_at_once_and_the_late_worker_changes_nothing(service: Running, queue: Topic) -> None:
    await queue.add(1)
    late = (await queue.take("hung", lease_ms=3_600_000))["lease_id"]
    waiting = asyncio.create_task(queue.claim("well", wait_ms=15_000))
    await until_waiting(service, queue.name, 1)
    assert (await queue.post("release", seqs=[1], node="well"))["skipped"] == [1], "only if this worker holds it"
    told = await queue.post("release", seqs=[1, 77], node="hung")
    assert (told["released"], told["skipped"]) == (1, [77])
    (again,) = (await waiting)["claimed"]
    shown = await job(queue, 1)
    assert (again["$seq"], shown["deliveries"], shown["last_error"]) == (1, 2, TAKEN_BACK)
    released = (await events(queue, 1))[-2]
    assert (released["event"], released["node"], released["detail"]) == ("released", "hung", TAKEN_BACK)
    more: Body
    for verb, more in (("ack", {}), ("nack", {}), ("fail", {}), ("extend", {"lease_ms": 1_000})):
        answer = await queue.post(verb, node="hung", seqs=[1], lease_ids=[late], **more)
        assert answer["skipped"] == [1], verb
    assert (await queue.ack("well", [1]))["acked"] == 1


async def test_a_delivery_is_given_back_where_that_is_asked_for(queue: Topic) -> None:
    await queue.add(1)
    for _ in range(5):  # more often than a holder may
        await queue.take("hung")
        await queue.post("release", seqs=[1], refund=True)
    assert (await job(queue, 1))["deliveries"] == 0
    await queue.take("hung")
    await queue.post("release", seqs=[1])
    assert (await job(queue, 1))["deliveries"] == 1


async def test_the_last_delivery_ends_as_a_nack_ends_it(queue: Topic) -> None:
    dead = Topic(queue.http, f"{queue.name}.dead")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(2)
    await queue.append({"data": 3, "max_deliveries": 9}, {"data": 4, "key": "k"}, {"data": 5, "group": "g"})
    await queue.claim("hung", max=9)
    told = await queue.post("release", seqs=[1], refund=True)
    assert (told["released"], told["ended"], (await job(queue, 1))["state"]) == (1, 0, "ready")
    told = await queue.post("release", seqs=[2])
    assert (told["released"], told["ended"]) == (1, 1)
    assert ((await job(dead, 1))["original_seq"], (await job(dead, 1))["last_error"]) == (2, TAKEN_BACK)
    told = await queue.post("release", group="g")
    assert (told["released"], told["ended"]) == (1, 1)
    told = await queue.post("release", node="hung")
    assert (told["released"], told["ended"]) == (2, 1)


async def test_all_jobs_of_a_worker(queue: Topic) -> None:
    await queue.append(*({"data": n, "priority": n % 3, "tenant": f"t{n % 2}"} for n in range(12)))
    await queue.append(*({"data": n, "delay_ms": 600_000} for n in range(3)))
    theirs = [one["$seq"] for one in (await queue.claim("hung", max=7))["claimed"]]
    others = [one["$seq"] for one in (await queue.claim("well", max=9))["claimed"]]
    assert (await queue.post("release", node="nobody"))["released"] == 0
    told = await queue.post("release", node="hung")
    assert (told["released"], told["skipped"]) == (7, [])
    assert (await queue.ack("hung", theirs))["acked"] == 0
    assert (await queue.ack("well", others))["acked"] == 5
    assert await queue.counts() == (7, 0)


async def test_the_job_of_a_group_and_one_that_was_cancelled(queue: Topic) -> None:
    await queue.append({"data": 1, "group": "g"}, {"data": 2, "group": "g"}, {"data": 3, "group": "g", "tenant": "t"})
    await queue.claim("hung", max=9)
    assert (await queue.post("release", group="g", node="well"))["released"] == 0
    assert (await queue.post("release", group="other"))["released"] == 0
    assert (await queue.post("release", group="g"))["released"] == 1
    assert [one["$seq"] for one in (await queue.claim("well", max=9))["claimed"]] == [1], "it is tried again first"
    assert (await queue.post("release", group="g", tenant="t", node="hung"))["released"] == 1
    await queue.claim("hung", max=9)
    await queue.post("cancel", seqs=[3])
    assert (await queue.post("release", seqs=[3]))["released"] == 1
    assert (await events(queue, 3))[-1]["event"] == "cancelled"


async def test_it_is_in_the_audit_trail(queue: Topic) -> None:
    await queue.add(1)
    bodies: list[Body] = [{"seqs": [1]}, {"node": "hung", "refund": True}, {"group": "g", "tenant": "t"}]
    for body in bodies:
        await queue.post("release", **body)
    assert [(one["action"], one["detail"]) for one in (await entries(queue.http, subject=queue.name))[:3]] == [
        ("leases.released", {"group": "g", "tenant": "t", "refund": False}),
        ("leases.released", {"node": "hung", "refund": True}),
        ("leases.released", {"seqs": [1], "refund": False}),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"refund": True}, "Name the leases by seqs, group or node."),
        ({"seqs": [1], "group": "g"}, "Name the jobs by seqs or by group, not by both."),
        ({"node": "n", "tenant": "t"}, "tenant names the tenant of a group. Give group as well."),
        ({"seqs": [1, 2], "visible_at": [1]}, f"{ONE_EACH} It has 1 entries for 2 seqs."),
        ({"node": "w", "visible_at": [1]}, f"{ONE_EACH} It has 1 entries for 0 seqs."),
    ],
)
async def test_what_is_refused(body: Body, message: str, queue: Topic) -> None:
    answer = await queue.http.post(f"{queue.path}/release", json=body)
    assert refused(answer, 400, "invalid_request")["message"] == message


async def test_only_if_the_lease_still_ends_when_the_list_said(queue: Topic) -> None:
    await queue.put(max_deliveries=2)
    await queue.add(4)
    await queue.claim("hung", max=4)
    listed = accepted(await queue.http.get(f"{queue.path}/jobs", params={"state": "leased", "order": "oldest"}))["jobs"]
    until = [one["visible_at"] for one in listed]
    await queue.extend("hung", [2], 50_000)
    await queue.post("release", seqs=[3])
    assert (await queue.take("hung", lease_ms=50_000))["$seq"] == 3
    told = await queue.post("release", seqs=[1, 2, 3, 4], node="hung", visible_at=until)
    assert (told["released"], told["ended"], told["skipped"]) == (2, 0, [2, 3])
    assert (await queue.ack("hung", [2, 3]))["acked"] == 2
