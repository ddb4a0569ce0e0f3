"""POST /v0/claim: several topics in one call, in the order given."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused, until_waiting
from tests.api.keyring import bearer, client, make
from tests.api.people import add_user, token_of
from tests.conftest import Running


@pytest.fixture
async def queues(http: httpx.AsyncClient, topic: str) -> list[Topic]:
    """Three queues. The last one in the alphabet comes first."""
    three = [Topic(http, f"{topic}.{name}") for name in ("z", "a", "m")]
    for queue in three:
        await queue.put()
    return three


async def claim(queues: list[Topic], **fields: object) -> Body:
    body = {"node": "n", "topics": [queue.name for queue in queues], **fields}
    return accepted(await queues[0].http.post("/v0/claim", json=body))


def places(answer: Body, queues: list[Topic]) -> list[tuple[int, int]]:
    """The jobs: the place of their topic among these, and their seqs."""
    names = [queue.name for queue in queues]
    return [(names.index(job["topic"]), job["$seq"]) for job in answer["claimed"]]


async def test_topics_are_asked_in_the_order_given_up_to_max_in_all(queues: list[Topic]) -> None:
    for queue in queues:
        await queue.add(2, priority=1)
    await queues[1].add(1, priority=9)
    answer = await claim(queues, max=4)
    # One topic's jobs ascend by seq, whatever their priority, as in a claim of that topic.
    assert places(answer, queues) == [(0, 1), (0, 2), (1, 1), (1, 3)]
    assert [job["order"] for job in answer["claimed"]] == [1, 2, 4, 3]
    assert (answer["count"], answer["ready"]) == (4, 3)
    assert (await queues[1].ack("n", [1, 3]))["acked"] == 2
    assert places(await claim(queues[::-1]), queues) == [(2, 1)]
    answer = await claim(queues, max=9)
    assert (places(answer, queues), answer["ready"]) == ([(1, 2), (2, 2)], 0)
    body = {"node": "n", "topics": [queue.name for queue in queues]}
    answer = accepted(await queues[0].http.post("/v0/claim?return_counts=false", json=body))
    assert answer.keys() == {"claimed", "count", "performance"}


async def test_a_job_is_shown_as_its_own_topics_claim_shows_it(queues: list[Topic]) -> None:
    await queues[0].put(lease_ms=3_600_000)
    for queue in queues[:2]:
        await queue.append({"data": {"a": 1}, "tag": "t", "meta": {"b": 2}, "tenant": "acme"})
    one, other = (await claim(queues, max=2, tenants=["acme"], tags=["t"]))["claimed"]
    assert one["deadline"] - other["deadline"] > 3_000_000
    await queues[0].nack("n", [1])
    alone = await queues[0].take()
    assert one.keys() == (alone.keys() | {"topic"}) - {"failures"} == other.keys()
    assert (one["$tag"], one["data"], one["meta"]) == ("t", {"a": 1}, {"b": 2})
    assert one["token"].startswith(f"{queues[0].name}:1:lease_")


async def test_a_job_of_any_of_them_ends_the_wait_and_nobody_has_one_who_left(
    service: Running, queues: list[Topic]
) -> None:
    assert (await claim(queues, wait_ms=1))["claimed"] == []
    for place, queue in enumerate(queues):
        waiting = asyncio.create_task(claim(queues, max=5, wait_ms=20_000))
        for each in queues:
            await until_waiting(service, each.name, 1)
        await queue.add(2)
        assert places(await waiting, queues) == [(place, 1), (place, 2)]
    leaving = asyncio.create_task(claim(queues, wait_ms=30_000))
    await until_waiting(service, queues[2].name, 1)
    leaving.cancel()
    for queue in queues:
        await until_waiting(service, queue.name, 0)
        await queue.add(1)
        assert (await queue.take("there"))["deliveries"] == 1


async def test_what_makes_no_sense_is_refused_and_leases_nothing(queues: list[Topic]) -> None:
    http, names = queues[0].http, [queue.name for queue in queues]
    await queues[0].add(1)
    log = Topic(http, f"{names[0]}.log")
    await log.put(type="log")
    for topics in ([], [f"{names[0]}{i}" for i in range(33)], [*names, "a b"]):
        refused(await http.post("/v0/claim", json={"node": "n", "topics": topics}), 400, "invalid_request")
    for name, status, code in ((f"{names[0]}.none", 404, "topic_not_found"), (log.name, 409, "not_a_queue")):
        answer = await http.post("/v0/claim", json={"node": "n", "topics": [*names, name]})
        assert refused(answer, status, code)["detail"]["topic"] == name
    assert await queues[0].counts() == (1, 0)
    assert places(await claim([queues[0], queues[0]], max=2), queues) == [(0, 1)]


async def test_a_key_is_needed_for_each_topic(guarded: Running) -> None:
    async with client(guarded, "root") as root, client(guarded) as http:
        for name in ("any.a", "any.b", "other"):
            await Topic(root, name).put()
            await Topic(root, name).add(1, tenant="acme")
        key = bearer((await make(root, scopes=["read", "write"], prefixes=["any."]))["secret"])
        await add_user(root, "consume any.*", name="anybody")
        session = await token_of(root, "anybody")
        for headers in (key, session):
            for topics in (["other", "any.a"], ["any.a", "other"], ["any.a", "nowhere"]):
                answer = await http.post("/v0/claim", json={"node": "n", "topics": topics, "max": 9}, headers=headers)
                assert refused(answer, 403, "forbidden")["detail"]["topic"] in {"other", "nowhere"}
        beta = bearer((await make(root, scopes=["read", "write"], tenant="beta"))["secret"])
        body = {"node": "n", "topics": ["any.a", "any.b"], "max": 9}
        found = accepted(await http.post("/v0/claim", json=body, headers=beta))
        assert (found["count"], found["ready"]) == (0, 0)
        found = accepted(await http.post("/v0/claim", json=body, headers=key))
        assert [job["topic"] for job in found["claimed"]] == ["any.a", "any.b"]


async def test_a_key_that_is_revoked_meanwhile_gets_no_job(guarded: Running) -> None:
    async with client(guarded, "root") as root, client(guarded) as http:
        queue = Topic(root, "any.revoked")
        await queue.put()
        made = await make(root, scopes=["read", "write"])
        body = {"node": "n", "topics": [queue.name], "wait_ms": 20_000}
        waiting = asyncio.create_task(http.post("/v0/claim", json=body, headers=bearer(made["secret"])))
        await until_waiting(guarded, queue.name, 1)
        accepted(await root.delete(f"/v0/keys/{made['id']}"))
        await queue.add(1)
        refused(await waiting, 401, "unauthorized")
        assert (await queue.take())["deliveries"] == 1
