"""Tenants on the wire, in both dialects: records, claims that name them, work streams, settings, counts."""

from __future__ import annotations

import httpx

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
    assert tenants((await queue.claim("w", max=10))["claimed"]) == ["acme", None, "zeta é"]
    await queue.nack("w", [1, 2, 3])
    messages = done(await http.post("/api/messages/dequeue", json={"topic": name, "count": 10}))["messages"]
    assert sorted(map(str, tenants(messages))) == ["None", "acme", "zeta é"]


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
    for bad in ({"tenant_weights": {"": 1}}, {"tenant_weights": {str(n): 1 for n in range(1001)}}):
        refused(await http.put(path, json={"type": "queue", **bad}), 400, "invalid_request")
        refused(await http.put(configs, json=bad), 400, "invalid_request")


async def test_what_each_tenant_has_by_pages(queue: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.append(*({"data": n, "tenant": "abc"[n % 3], "priority": n} for n in range(6)))
    await queue.append({"data": 6, "tenant": "a", "delay_ms": 60_000})
    first, _ = (await queue.claim(max=2, tenants=["b"]))["claimed"]
    await queue.nack("n", [first["$seq"]])
    path = f"{queue.path}/stats?by=tenant&page_size=2"

    async def counted() -> list[Body]:
        page = accepted(await queue.http.get(path))
        return page["tenants"] if page["tenants"][1]["dead"] else []

    a, b = await eventually(counted)
    page = accepted(await queue.http.get(path))
    [c] = accepted(await queue.http.get(f"{path}&cursor={page['next_cursor']}"))["tenants"]
    shown = ("tenant", "ready", "scheduled", "in_flight", "dead", "blocked", "at_least")
    assert [[one[name] for name in shown] for one in (a, b, c)] == [
        ["a", 2, 1, 0, 0, 0, False],
        ["b", 0, 0, 1, 1, 0, False],
        ["c", 2, 0, 0, 0, 0, False],
    ]
    assert b["oldest_claimable_age_ms"] is None
    assert c["oldest_claimable_age_ms"] >= 0
    for bad in ("", "?by=node", "?by=tenant&cursor=x", "?by=tenant&page_size=x", "?by=tenant&limit=3"):
        refused(await queue.http.get(f"{queue.path}/stats{bad}"), 400, "invalid_request")
