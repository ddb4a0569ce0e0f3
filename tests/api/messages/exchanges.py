"""Every answer that the document describes for the routes of the messages dialect, asked for."""

from __future__ import annotations

import httpx

from tests.api.dialect import JSON
from tests.api.messages.client import Body, Messages

NOBODY = {"authorization": "Bearer wrong"}


async def every_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Successes, and refusals: of no key, of one that may not (`limited`), of bad bodies, and of a log."""
    messages = Messages(http, topic)
    ids = [await messages.put('{"a": 1}', metadata={"k": "v"}, priority=3, ttl_seconds=60.5)]
    ids += await messages.batch(
        {"payload": "AA==", "encoding": "base64"}, *({"payload": str(n), "max_deliveries": 1} for n in range(3))
    )
    await messages.dequeue(9, visibility_timeout_seconds=60)
    await messages.extend(ids[0], visibility_timeout_seconds=60)
    await messages.nack(ids[2], error="boom")
    await messages.ack(ids[3])
    await http.post("/api/messages/ack", json={"ids": [ids[4], ids[3]], "lease_ids": ["", "lease_1a2b"]})
    for message_id in ids[:3]:  # held, bytes, and a dead letter
        await messages.get(message_id)
    await messages.of(f"{topic}.dlq").dequeue(encoding="base64")
    await messages.page(limit=1)
    await http.get("/api/messages")
    await messages.counts()
    await messages.purge("processing")

    message: Body = {"topic": topic, "payload": "x"}
    bodies: dict[str, Body] = {
        "/api/messages": message,
        "/api/messages/batch": {"topic": topic, "messages": [{"payload": "x"}]},
        "/api/messages/dequeue": {"topic": topic},
        "/api/messages/ack": {"ids": []},
        **{f"/api/messages/x/{verb}": {} for verb in ("ack", "nack", "extend")},
        f"/api/topics/{topic}/purge": {},
    }
    for path, body in bodies.items():
        for headers in (NOBODY, limited):
            await http.post(path, json=body, headers=headers)
        await http.post(path, content=b"[]", headers=JSON)
        await http.post(path, content=b"x" * 3_000, headers=JSON)
        await http.post(path, content=b"{}", headers={"content-type": "text/plain"})
        await http.post(path, json=body)
    for path in ("/api/messages", "/api/messages/x", "/api/stats"):
        for headers in (NOBODY, limited):
            await http.get(path, headers=headers)
    for path in ("/api/messages?limit=x", "/api/messages/x?encoding=x", "/api/messages/x"):
        await http.get(path)

    log = f"{topic}.log"
    await http.put(f"/v0/topics/{log}", json={"type": "log"})
    by_key = f"/api/topics/{topic}/messages/by-key/a/b"
    await http.post("/api/messages", json={**message, "key": "a/b"})
    for headers in (NOBODY, limited, {}):
        await http.delete(by_key, headers=headers)
    for path in (by_key.replace("a/b", "k" * 300), by_key.replace(topic, log), by_key.replace(topic, f"{topic}.none")):
        await http.delete(path)
    for path, body in bodies.items():
        await http.post(path.replace(topic, log), json={**body, "topic": log} if "topic" in body else body)
    await http.get(f"/api/messages?topic={log}")


async def every_log_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """The same for a replayable topic's log and its replay."""
    messages, log = Messages(http, topic), f"{topic}.log"
    await http.put(f"/v0/topics/{topic}", json={"type": "queue", "replayable": True})
    await http.put(f"/v0/topics/{log}", json={"type": "log"})
    for n in range(2):
        await messages.put(str(n))
        await messages.ack((await messages.take())["id"])
    replay, shown, some = "/api/topics/{}/replay", "/api/topics/{}/message-log", "?before=2000-01-01T00:00:00Z"
    for method, path, query, bad in (
        ("POST", replay.format(topic), "", b"[]"),
        ("GET", shown.format(topic), "?limit=1", None),
        ("DELETE", shown.format(topic), some, None),
    ):
        for headers in (NOBODY, limited, {}):
            await http.request(method, path + query, headers=headers)
        for other in (f"{topic}.none", log, "a b"):
            await http.request(method, path.replace(topic, other) + query)
        if bad is not None:
            await http.request(method, path, content=bad, headers=JSON)
            await http.request(method, path, content=b"x" * 3_000, headers=JSON)
            await http.request(method, path, content=b"{}", headers={"content-type": "text/plain"})
    await http.post(replay.format(topic), json={"from_time": "yesterday"})
