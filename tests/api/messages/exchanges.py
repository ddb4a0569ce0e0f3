"""Every answer that the document describes for the routes of the messages dialect, asked for."""

from __future__ import annotations

import httpx

from tests.api.dialect import JSON
from tests.api.messages.client import Body, Messages
from tests.api.people import PASSWORD, add_user, token_of

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
    for path, body in bodies.items():
        await http.post(path.replace(topic, log), json={**body, "topic": log} if "topic" in body else body)
    await http.get(f"/api/messages?topic={log}")


async def every_exchange_about_users(http: httpx.AsyncClient, limited: dict[str, str]) -> None:
    """Users, their grants, and how they sign in: successes and refusals, as above."""
    ann, other = await add_user(http, "read mail.*", name="ann", is_admin=True), await add_user(http)
    path, absent = f"/api/users/{ann['id']}", "/api/users/00000000-0000-0000-0000-000000000007"
    await http.put(path, json={"username": "anna"})
    token = await token_of(http, "anna")
    for headers in (token, NOBODY, {}):  # and the client's own key
        await http.post("/api/auth/refresh", headers=headers)
    await http.post("/api/auth/login", json={"username": "anna", "password": "wrong"})
    for url in ("/api/users", "/api/users?page_size=1", "/api/users?cursor=!", f"{path}/grants", f"{absent}/grants"):
        for headers in ({}, NOBODY, limited):
            await http.get(url, headers=headers)
    bodies: dict[tuple[str, str], Body] = {
        ("POST", "/api/auth/login"): {"username": "anna", "password": PASSWORD},
        ("POST", "/api/users"): {"username": other["username"], "password": PASSWORD},
        ("PUT", path): {"username": other["username"]},
        ("POST", f"{path}/grants"): {"action": "read", "topic_pattern": "mail.*"},
    }
    for (method, url), body in bodies.items():
        for headers in ({}, NOBODY, limited):
            await http.request(method, url, json=body, headers=headers)
        await http.request(method, url, content=b"[]", headers=JSON)
        await http.request(method, url, content=b"x" * 3_000, headers=JSON)
        await http.request(method, url, content=b"{}", headers={"content-type": "text/plain"})
        if url.startswith(path):
            await http.request(method, url.replace(path, absent), json=body)
    (grant,) = (await http.get(f"{path}/grants")).json()["items"]
    for url in (f"{path}/grants/{grant['id']}", path):
        await http.delete(url, headers=token if url == path else {})  # nobody deletes themselves
        for headers in (NOBODY, limited, {}, {}):
            await http.delete(url, headers=headers)
