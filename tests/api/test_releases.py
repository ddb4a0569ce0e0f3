"""Leases that an operator takes back: POST /v0/topics/:topic/release. docs/semantics.md, section 3."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused, until_waiting
from tests.api.test_audit import entries
from tests.conftest import Running

TAKEN_BACK = "An operator took the lease back."


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
    told = await queue.post("release", seqs=[1, 77])
    assert (told["released"], told["skipped"]) == (1, [77])
    (again,) = (await waiting)["claimed"]
    assert (again["$seq"], (await job(queue, 1))["deliveries"]) == (1, 2)
    for verb, more in (("ack", {}), ("nack", {}), ("fail", {}), ("extend", {"lease_ms": 1_000})):
        answer = await queue.post(verb, node="hung", seqs=[1], lease_ids=[late], **more)
        assert answer["skipped"] == [1], verb
    assert await queue.counts() == (0, 1)
    assert (await queue.ack("well", [1]))["acked"] == 1


async def test_the_ledger_has_it(queue: Topic) -> None:
    await queue.add(1)
    await queue.take("hung")
    await queue.post("release", seqs=[1])
    last = (await events(queue, 1))[-1]
    assert (last["event"], last["node"], last["detail"], last["deliveries"]) == ("released", "hung", TAKEN_BACK, 1)
    assert (await job(queue, 1))["last_error"] == TAKEN_BACK


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
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.add(2)
    await queue.claim("hung", max=2)
    assert (await queue.post("release", seqs=[1], refund=True))["released"] == 1
    assert (await queue.post("release", seqs=[2]))["released"] == 1
    assert (await job(queue, 1))["state"] == "ready"
    dead = Topic(queue.http, f"{queue.name}.dead")
    assert ((await job(dead, 1))["original_seq"], (await job(dead, 1))["last_error"]) == (2, TAKEN_BACK)


async def test_all_jobs_of_a_worker(queue: Topic) -> None:
    await queue.append(*({"data": n, "priority": n % 3, "tenant": f"t{n % 2}"} for n in range(12)))
    await queue.append(*({"data": n, "delay_ms": 60_000} for n in range(3)))
    theirs = [one["$seq"] for one in (await queue.claim("hung", max=7))["claimed"]]
    others = [one["$seq"] for one in (await queue.claim("well", max=9))["claimed"]]
    assert (await queue.post("release", node="nobody"))["released"] == 0
    told = await queue.post("release", node="hung")
    assert (told["released"], told["skipped"]) == (7, [])
    assert (await queue.ack("hung", theirs))["acked"] == 0
    assert (await queue.ack("well", others))["acked"] == 5
    assert await queue.counts() == (7, 0)


async def test_the_job_of_a_group(queue: Topic) -> None:
    await queue.append({"data": 1, "group": "g"}, {"data": 2, "group": "g"}, {"data": 3, "group": "g", "tenant": "t"})
    await queue.claim("hung", max=9)
    assert (await queue.post("release", group="g", node="well"))["released"] == 0
    assert (await queue.post("release", group="other"))["released"] == 0
    assert (await queue.post("release", group="g"))["released"] == 1
    assert [one["$seq"] for one in (await queue.claim("well", max=9))["claimed"]] == [1], "it is tried again first"
    assert (await queue.post("release", group="g", tenant="t", node="hung"))["released"] == 1


async def test_a_cancelled_one_ends(queue: Topic) -> None:
    await queue.add(1)
    await queue.take("hung")
    await queue.post("cancel", seqs=[1])
    assert (await queue.post("release", seqs=[1]))["released"] == 1
    assert [one["event"] for one in await events(queue, 1)][-1] == "cancelled"


async def test_only_if_this_worker_holds_it(queue: Topic) -> None:
    await queue.add(1)
    await queue.take("hung")
    assert (await queue.post("release", seqs=[1], node="well"))["skipped"] == [1]
    assert (await queue.post("release", seqs=[1], node="hung"))["released"] == 1


async def test_it_is_in_the_audit_trail(queue: Topic) -> None:
    await queue.add(1)
    for body in ({"seqs": [1]}, {"node": "hung", "refund": True}, {"group": "g", "tenant": "t"}):
        await queue.post("release", **body)
    assert [(one["action"], one["detail"]) for one in (await entries(queue.http, subject=queue.name))[:3]] == [
        ("leases.released", {"group": "g", "tenant": "t", "refund": False}),
        ("leases.released", {"node": "hung", "refund": True}),
        ("leases.released", {"seqs": [1], "refund": False}),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Name the leases: by seqs, group or node."),
        ({"refund": True}, "Name the leases: by seqs, group or node."),
        ({"seqs": [1], "group": "g"}, "Name jobs by seqs or by group, not by both."),
        ({"node": "n", "tenant": "t"}, "tenant goes with group."),
        ({"node": ""}, ""),
        ({"group": ""}, ""),
        ({"node": "n\0"}, ""),
        ({"node": "n" * 129}, ""),
        ({"seqs": list(range(1, 1_002))}, ""),
        ({"seqs": [1], "errors": ["no"]}, ""),
        ({"seqs": [1, 2], "visible_at": [1]}, "visible_at has 1 entries for 2 seqs."),
        ({"node": "w", "visible_at": [1]}, "visible_at has 1 entries for 0 seqs."),
        ({"seqs": [1], "visible_at": [2**63]}, ""),
    ],
)
async def test_what_is_refused(body: Body, message: str, queue: Topic) -> None:
    answer = await queue.http.post(f"{queue.path}/release", json=body)
    error = refused(answer, 400, answer.json()["error"]["code"])
    assert error["message"] == message or not message


async def test_a_log_has_no_leases(http: httpx.AsyncClient, topic: str) -> None:
    log = Topic(http, topic)
    await log.put(type="log")
    refused(await http.post(f"{log.path}/release", json={"seqs": [1]}), 409, "not_a_queue")


async def test_only_if_the_lease_still_ends_when_the_list_said(queue: Topic) -> None:
    await queue.put(max_deliveries=2)
    await queue.add(4)
    await queue.claim("hung", max=4)
    listed = accepted(await queue.http.get(f"{queue.path}/jobs", params={"state": "leased", "order": "oldest"}))["jobs"]
    until = [one["visible_at"] for one in listed]
    await queue.post("extend", node="hung", seqs=[2], lease_ms=50_000)
    await queue.post("release", seqs=[3])
    [again] = (await queue.claim("hung", lease_ms=50_000))["claimed"]
    assert again["$seq"] == 3
    told = await queue.post("release", seqs=[1, 2, 3, 4], node="hung", visible_at=until)
    assert (told["released"], told["ended"], told["skipped"]) == (2, 0, [2, 3])
    assert (await queue.ack("hung", [2, 3]))["acked"] == 2


async def test_jobs_that_ended_are_counted(queue: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.append(
        {"data": 1}, {"data": 2, "max_deliveries": 9}, {"data": 3, "key": "k"}, {"data": 4, "group": "g"}
    )
    await queue.claim("hung", max=4)
    told = await queue.post("release", group="g")
    assert (told["released"], told["ended"]) == (1, 1)
    told = await queue.post("release", node="hung")
    assert (told["released"], told["ended"]) == (3, 2)
