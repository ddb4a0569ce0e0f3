"""Tenants on the wire, in both dialects: records, claims that name them, work streams, settings, counts."""

from __future__ import annotations

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.events import working
from tests.api.messages.client import done


def tenants(jobs: list[Body]) -> list[str | None]:
    return [job.get("tenant") for job in jobs]


async def test_a_job_shows_whose_it_is_wherever_it_is_shown(queue: Topic) -> None:
    http, name = queue.http, queue.name
    await queue.append({"data": 1, "tenant": "acme"}, {"data": 2})
    done(await http.post("/api/messages", json={"topic": name, "payload": "3", "tenant": "zeta é"}), 201)
    items = done(await http.get("/api/messages", params={"topic": name}))["items"]
    assert tenants(items) == ["zeta é", None, "acme"]
    assert tenants([done(await http.get(f"/api/messages/{item['id']}")) for item in items]) == ["zeta é", None, "acme"]
    claimed = (await queue.claim("w", max=10))["claimed"]
    assert tenants(claimed) == ["acme", None, "zeta é"]
    await queue.post("nack", node="w", seqs=[1, 2, 3])
    messages = done(await http.post("/api/messages/dequeue", json={"topic": name, "count": 10}))["messages"]
    assert sorted(map(str, tenants(messages))) == ["None", "acme", "zeta é"]


@pytest.mark.parametrize("tenant", ["", "x" * 129, "a\0", 1])
async def test_what_is_no_tenant(queue: Topic, tenant: object) -> None:
    http, name = queue.http, queue.name
    for path, body in (
        (queue.path, {"records": [{"data": 1, "tenant": tenant}]}),
        (f"{queue.path}/claim", {"node": "n", "tenants": [tenant]}),
        ("/api/messages", {"topic": name, "payload": "x", "tenant": tenant}),
        ("/api/messages/dequeue", {"topic": name, "tenants": [tenant]}),
    ):
        refused(await http.post(path, json=body), 400, "invalid_request")
    if isinstance(tenant, str):
        refused(await http.get(f"{queue.path}/work", params={"node": "n", "tenants": tenant}), 400, "invalid_request")
    for some in ([], ["x"] * 101):
        refused(await http.post(f"{queue.path}/claim", json={"node": "n", "tenants": some}), 400, "invalid_request")


async def test_claims_and_streams_of_named_tenants(queue: Topic) -> None:
    await queue.append(*({"data": n, "tenant": "abc"[n % 3]} for n in range(9)))
    answer = await queue.claim("w", max=10, tenants=["b", "c", "none such"])
    assert sorted(map(str, tenants(answer["claimed"]))) == ["b"] * 3 + ["c"] * 3
    body = {"topic": queue.name, "count": 2, "tenants": ["a"]}
    messages = done(await queue.http.post("/api/messages/dequeue", json=body))["messages"]
    assert tenants(messages) == ["a", "a"]
    async with working(queue, "s", max=5, tenants=["a", "b"]) as stream:
        assert (await stream.job())["tenant"] == "a"
        await queue.append({"data": 10, "tenant": "c"}, {"data": 11, "tenant": "b"})
        assert (await stream.job())["tenant"] == "b"
    assert tenants((await queue.claim("w", max=10, tenants=["c"]))["claimed"]) == ["c"]


async def test_weights_and_limits_are_settings_of_both_dialects(http: httpx.AsyncClient, topic: str) -> None:
    asked = {"tenant_weights": {"acme": 5, "zeta": 1000}, "tenant_limits": {"acme": 2}}
    path, configs = f"/v0/topics/{topic}", f"/api/topic-configs/{topic}"
    assert accepted(await http.put(path, json={"type": "queue", **asked}))["config"].items() >= asked.items()
    shown = next(one for one in done(await http.get("/api/topic-configs"))["items"] if one["topic"] == topic)
    assert shown.items() >= asked.items()
    done(await http.put(configs, json={"max_retries": 2}))
    assert (await http.get(path)).json()["config"].items() >= asked.items()
    done(await http.put(configs, json={"tenant_limits": None, "tenant_weights": {"b": 2}}))
    config = (await http.get(path)).json()["config"]
    assert (config["tenant_weights"], config["tenant_limits"]) == ({"b": 2}, {})
    for bad in (
        {"tenant_weights": {"a": 0}},
        {"tenant_weights": {"a": 1001}},
        {"tenant_weights": {"": 1}},
        {"tenant_weights": {str(n): 1 for n in range(1001)}},
        {"tenant_limits": {"a": 0}},
        {"tenant_limits": {"a": 2**31}},
    ):
        refused(await http.put(path, json={"type": "queue", **bad}), 400, "invalid_request")
        refused(await http.put(configs, json=bad), 400, "invalid_request")


async def test_what_each_tenant_has(http: httpx.AsyncClient, topic: str) -> None:
    path = f"/v0/topics/{topic}"
    accepted(await http.put(path, json={"type": "queue", "max_deliveries": 1, "dead_letter": f"{topic}.dead"}))
    records = [{"data": n, "tenant": "abc"[n % 3], "priority": n} for n in range(6)]
    accepted(await http.post(path, json={"records": [*records, {"data": 6, "tenant": "a", "delay_ms": 60_000}]}))
    claimed = accepted(await http.post(f"{path}/claim", json={"node": "n", "max": 2, "tenants": ["b"]}))["claimed"]
    accepted(await http.post(f"{path}/nack", json={"node": "n", "seqs": [claimed[0]["$seq"]]}))

    async def shown() -> list[Body]:
        found: list[Body] = accepted(await http.get(f"{path}/stats?by=tenant"))["tenants"]
        return found

    async def counted() -> bool:
        return [one["dead"] for one in await shown()] == [0, 1, 0]

    await eventually(counted)
    a, b, c = await shown()
    assert (a["tenant"], a["ready"], a["scheduled"], a["in_flight"], a["dead"], a["blocked"]) == ("a", 2, 1, 0, 0, 0)
    assert (b["tenant"], b["ready"], b["scheduled"], b["in_flight"], b["dead"]) == ("b", 0, 0, 1, 1)
    assert (c["tenant"], c["ready"], c["at_least"]) == ("c", 2, False)
    assert b["oldest_claimable_age_ms"] is None
    assert c["oldest_claimable_age_ms"] >= 0


async def test_tenants_are_shown_by_pages(queue: Topic) -> None:
    await queue.append(*({"data": n, "tenant": f"t{n:02}"} for n in range(5)))
    found: list[str] = []
    cursor = ""
    while True:
        page = accepted(await queue.http.get(f"{queue.path}/stats?by=tenant&page_size=2&cursor={cursor}"))
        found += [one["tenant"] for one in page["tenants"]]
        if (cursor := page.get("next_cursor", "")) == "":
            break
    assert found == [f"t{n:02}" for n in range(5)]
    for bad in ("", "?by=node", "?by=tenant&cursor=x", "?by=tenant&page_size=x", "?by=tenant&limit=3"):
        refused(await queue.http.get(f"{queue.path}/stats{bad}"), 400, "invalid_request")
