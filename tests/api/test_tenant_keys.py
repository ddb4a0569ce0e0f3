"""Keys that are for one tenant: what they enqueue is its, and they see, claim and settle nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.events import working
from tests.api.keyring import Services, client, make
from tests.api.messages.client import done
from tests.api.messages.client import refused as refused_message
from tests.api.scopes import TABLE

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

# All others refuse such a key.
CONFINED = {
    ("POST", "/in/{topic}"),
    ("POST", "/in/{topic}/{group}"),
    ("POST", "/in/{topic}/{group}/{dedupe}"),
    ("POST", "/v0/topics/{topic}"),
    ("POST", "/v0/topics/{topic}/claim"),
    ("POST", "/v0/claim"),
    ("POST", "/v0/topics/{topic}/ack"),
    ("POST", "/v0/topics/{topic}/nack"),
    ("POST", "/v0/topics/{topic}/fail"),
    ("POST", "/v0/topics/{topic}/extend"),
    ("GET", "/v0/topics/{topic}/work"),
    ("GET", "/v0/topics/{topic}/stats"),
    ("GET", "/v0/topics/{topic}/stats/history"),
    ("POST", "/api/messages"),
    ("POST", "/api/messages/batch"),
    ("POST", "/api/messages/dequeue"),
    ("POST", "/api/messages/ack"),
    ("POST", "/api/messages/{id}/ack"),
    ("POST", "/api/messages/{id}/nack"),
    ("POST", "/api/messages/{id}/extend"),
    ("GET", "/api/messages/{id}"),
}


@pytest.fixture(scope="module")
async def guarded(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await (await Services.make(serve, new_database)).start(api_keys="root")


@pytest.fixture
async def root(guarded: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(guarded, "root") as http:
        yield http


@pytest.fixture
async def acme(guarded: Running, root: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose key is for the tenant acme."""
    made = await make(root, "acme's", ["read", "write"], tenant="acme")
    assert made["tenant"] == "acme"
    async with client(guarded, made["secret"]) as http:
        yield http


@pytest.fixture
async def queue(root: httpx.AsyncClient, topic: str) -> Topic:
    """With jobs 1 and 2 of acme and 3 and 4 of another, all as the root key sees it."""
    queue = Topic(root, topic)
    await queue.put(type="queue")
    await queue.append(*({"data": n, "tenant": "acme" if n < 3 else "zeta"} for n in range(1, 5)))
    return queue


async def test_what_it_enqueues_is_its_tenants(queue: Topic, acme: httpx.AsyncClient) -> None:
    mine = queue.through(acme)
    await mine.append({"data": 5}, {"data": 6, "tenant": "acme"})
    done(await acme.post("/api/messages", json={"topic": queue.name, "payload": "7"}), 201)
    claimed = (await queue.claim("w", max=10, tenants=["acme"]))["claimed"]
    assert [job["data"] for job in claimed] == [1, 2, 5, 6, 7]
    refused(await acme.post(queue.path, json={"records": [{"data": 1, "tenant": "zeta"}]}), 403, "forbidden")
    body = {"topic": queue.name, "payload": "x", "tenant": "zeta"}
    refused_message(await acme.post("/api/messages", json=body), 403, "forbidden")
    assert len((await queue.claim("w", max=10))["claimed"]) == 2
    # What is no queue has no tenants, and it makes none of those.
    log = Topic(queue.http, f"{queue.name}.log")
    await log.put(type="log")
    for name in (log.name, f"{queue.name}.absent"):
        refused(await acme.post(f"/v0/topics/{name}", json={"records": [{"data": 1}]}), 403, "forbidden")
    # An idempotency key is its tenant's own.
    theirs = await queue.append({"data": 1, "tenant": "zeta"}, idempotency_key="k")
    first, again = [await mine.append({"data": 1}, idempotency_key="k") for _ in range(2)]
    assert (theirs["deduped"], first["deduped"], again["deduped"]) == (False, False, True)
    body = {"topic": queue.name, "payload": "1", "idempotency_key": "m"}
    ids = [done(await http.post("/api/messages", json=body), 201)["id"] for http in (queue.http, acme, acme)]
    assert ids[0] != ids[1] == ids[2]


async def test_it_claims_and_settles_its_tenants_jobs_alone(queue: Topic, acme: httpx.AsyncClient) -> None:
    mine = queue.through(acme)
    answer = await mine.claim("w", max=10)
    assert ([job["$seq"] for job in answer["claimed"]], answer["ready"]) == ([1, 2], 0)
    refused(await acme.post(f"{queue.path}/claim", json={"node": "w", "tenants": ["zeta"]}), 403, "forbidden")
    refused(await acme.get(f"{queue.path}/work?node=w&tenants=zeta"), 403, "forbidden")
    await queue.claim("w", max=10)
    more: Body
    for verb, count, more in (
        ("extend", "extended", {"lease_ms": 60_000}),
        ("nack", "nacked", {}),
        ("ack", "acked", {}),
    ):
        answer = await mine.post(verb, node="w", seqs=[3, 4, 99], **more)
        assert (answer[count], answer["skipped"]) == (0, [3, 4, 99])
    assert (await mine.post("extend", node="w", seqs=[4, 2, 3], lease_ms=60_000))["deadlines"].keys() == {"2"}
    answer = await mine.post("nack", node="w", seqs=[3, 1])
    assert (answer["nacked"], answer["skipped"]) == (1, [3])
    async with working(mine, "w") as stream:
        assert (await stream.job())["$seq"] == 1
    answer = await mine.ack("w", [4, 2])
    assert (answer["acked"], answer["skipped"]) == (1, [4])
    assert (await queue.ack("w", [3, 4]))["acked"] == 2
    shown = accepted(await acme.get(f"{queue.path}/stats?by=tenant"))["tenants"]
    assert [(one["tenant"], one["ready"]) for one in shown] == [("acme", 1)]


async def test_messages_of_others_are_not_there(queue: Topic, acme: httpx.AsyncClient) -> None:
    items = done(await queue.http.get("/api/messages", params={"topic": queue.name}))["items"]
    theirs, own = items[0]["id"], items[-1]["id"]
    assert (items[0]["tenant"], items[-1]["tenant"]) == ("zeta", "acme")
    assert done(await acme.get(f"/api/messages/{own}"))["tenant"] == "acme"
    refused_message(await acme.get(f"/api/messages/{theirs}"), 404, "not_found")
    body = {"topic": queue.name, "count": 10}
    held = done(await acme.post("/api/messages/dequeue", json=body))["messages"]
    assert [message["tenant"] for message in held] == ["acme", "acme"]
    assert len(done(await queue.http.post("/api/messages/dequeue", json=body))["messages"]) == 2
    for verb in ("ack", "nack", "extend"):
        refused_message(await acme.post(f"/api/messages/{theirs}/{verb}"), 404, "not_found")
    assert done(await acme.post("/api/messages/ack", json={"ids": [theirs, own]})) == {"acked": 1, "skipped": [theirs]}
    refused_message(await acme.post("/api/messages/dequeue", json=body | {"tenants": ["zeta"]}), 403, "forbidden")


async def test_every_other_route_refuses_it(queue: Topic, acme: httpx.AsyncClient) -> None:
    for (method, path), row in TABLE.items():
        if (method, path) not in CONFINED:
            one = path.replace("{topic}", queue.name)
            one = re.sub(r"\{(id|name|cluster|key|wid|grant_id)\}", "key_0000000000000000", one)
            answer = await acme.request(method, one + row.query, json=row.body)
            assert answer.status_code == 403, (method, path, answer.text)


async def test_it_can_not_be_made_with_more(root: httpx.AsyncClient) -> None:
    for bad in (
        {"scopes": ["admin"], "tenant": "a"},
        {"scopes": ["read", "delete"], "tenant": "a"},
        {"scopes": ["read"], "tenant": ""},
        {"scopes": ["read"], "tenant": "a" * 129},
        {"scopes": ["read"], "tenant": "a\0b"},
    ):
        refused(await root.post("/v0/keys", json={"name": "k", **bad}), 400, "invalid_request")
