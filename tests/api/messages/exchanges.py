"""Every answer that the document describes for the routes of the messages dialect, asked for."""

from __future__ import annotations

import httpx

from tests.api.dialect import JSON, Topic, accepted, refused
from tests.api.messages.client import Body, Messages
from tests.api.people import PASSWORD, add_user, token_of

NOBODY = {"authorization": "Bearer wrong"}


async def every_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Successes, and refusals: of no key, of one that may not (`limited`), of bad bodies, and of a log."""
    messages, jobs = Messages(http, topic), Topic(http, topic)
    ids = [await messages.put('{"a": 1}', metadata={"k": "v"}, priority=3, ttl_seconds=3600.5)]
    ids += await messages.batch(
        {"payload": "AA==", "encoding": "base64"}, *({"payload": str(n), "max_deliveries": 1} for n in range(3))
    )
    await messages.dequeue(9, visibility_timeout_seconds=60)
    await messages.extend(ids[0], visibility_timeout_seconds=60)
    await jobs.post("cancel", seqs=[1])
    await messages.extend(ids[0], visibility_timeout_seconds=60, progress={"percent": 40, "note": "half"})
    await messages.put("x")
    await jobs.post("cancel", seqs=[6])
    await messages.verb(ids[1], "nack", refund=True)
    await messages.take()
    await jobs.fail("messages", [2], errors=["boom"])
    await messages.nack(ids[2], error="boom")
    await messages.ack(ids[3], result={"n": 1})
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


async def every_schema_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Each answer of the routes for topics' schemas."""
    path, v0 = f"/api/topic-schemas/{topic}.checked", f"/v0/topics/{topic}.checked"
    for schema in ('{"type":"object"}', {"type": "object"}, ["null", "long"], '"long"'):
        assert (await http.put(path, json={"schema_json": schema})).status_code == 200
        for url in (path, v0, "/api/topic-schemas", "/api/topic-schemas?page_size=1"):
            assert (await http.get(url)).status_code == 200
        given = accepted(await http.get(v0))["config"]["schema"]
        kept = accepted(await http.put(v0, json={"type": "queue", "schema": given}))["config"]["schema"]
        assert kept == given
    one = {"payload": "x"}
    for url, payloads in (("/api/messages", one), ("/api/messages/batch", {"messages": [one]})):
        refused(await http.post(url, json={"topic": f"{topic}.checked", **payloads}), 422, "schema_violation")
    assert (await http.delete(path)).status_code == 204
    assert (await http.get(path)).status_code == 404
    for method in ("GET", "PUT", "DELETE"):
        body = {"schema_json": "{}"} if method == "PUT" else None
        assert (await http.request(method, "/api/topic-schemas/a b", json=body)).status_code == 400
        for headers, status in ((NOBODY, 401), (limited, 403)):
            assert (await http.request(method, path, headers=headers)).status_code == status
    for headers, status in ((NOBODY, 401), (limited, 403)):
        assert (await http.get("/api/topic-schemas", headers=headers)).status_code == status
    assert (await http.get("/api/topic-schemas?cursor=!")).status_code == 400
    assert (await http.put(path, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
    assert (await http.put(path, content=b" " * 3_000, headers=JSON)).status_code == 413


async def every_exchange_about_users(http: httpx.AsyncClient, _: str, limited: dict[str, str]) -> None:
    """Users, their grants, and how they sign in: successes and refusals, as above."""
    ann, other = await add_user(http, "read mail.*", name="ann", is_admin=True), await add_user(http, name="bob")
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


async def every_requeue_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Requeues, of one and of many, and their operations: successes and refusals, as above."""
    messages, log = Messages(http, topic), f"{topic}.log"
    await http.put(f"/v0/topics/{log}", json={"type": "log"})
    out = []
    for payload, key in (("1", None), ("2", "k"), ("3", None)):
        field = {} if key is None else {"key": key}
        out.append(await messages.put(payload, max_deliveries=1, **field))
        await messages.nack((await messages.take())["id"], error="boom")
    await messages.put("4", key="k")
    for message_id, status in ((out[0], 204), (out[1], 409), (out[0], 404)):
        assert (await http.post(f"/api/messages/{message_id}/requeue")).status_code == status
    for headers in (NOBODY, limited):
        await http.post(f"/api/messages/{out[2]}/requeue", headers=headers)
    for name in (topic, log, f"{topic}.none"):
        for headers in ({}, NOBODY, limited):
            await http.get(f"/v0/topics/{name}/operations", headers=headers)
    await http.get(f"/v0/topics/{topic}/operations?nonsense=1")
    for start in ("/v0/topics/", "/api/topics/"):  # what begins in either is followed in v0
        many = f"{topic}.{start[1:-8]}"  # so many that the operation still runs when it is looked at
        await messages.of(many).batch(*({"payload": str(n), "max_deliveries": 1} for n in range(30)))
        await Topic(http, many).claim(max=30)
        await Topic(http, many).nack("n", range(1, 31))
        path, body = f"{start}{many}/requeue", {"filter": {}, "rate": 1}
        await http.post(path, json={**body, "dry_run": True})
        done = await http.post(path, json=body)
        assert done.is_success, done.text
        operation = f"/v0/operations/{done.json()['id']}"
        for url, method in ((operation, "GET"), (f"{operation}/cancel", "POST")):
            for headers in ({}, NOBODY, limited):
                await http.request(method, url, headers=headers)
            for query in ("", "?nonsense=1"):
                await http.request(method, url.replace(done.json()["id"], "x") + query)
        for headers in (NOBODY, limited):
            await http.post(path, json=body, headers=headers)
        for other in (log, f"{topic}.none", "a b"):
            await http.post(path.replace(many, other), json=body)
        await http.post(path, content=b"[]", headers=JSON)
        await http.post(path, content=b"x" * 3_000, headers=JSON)
        await http.post(path, content=b"{}", headers={"content-type": "text/plain"})


async def every_failure_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """What messages have failed with, and purges of one kind: successes and refusals, as above."""
    messages, log = Messages(http, topic), f"{topic}.log"
    await http.put(f"/v0/topics/{log}", json={"type": "log"})
    for error in ("a: 1", None):
        message_id = await messages.put(max_deliveries=1)
        await messages.take()
        await messages.nack(message_id, **({} if error is None else {"error": error}))
    path = f"/v0/topics/{topic}/failures"
    shown = (await http.get(path)).json()["failures"]
    assert len(shown) == 2
    for method, url in (("GET", path), ("DELETE", f"{path}/{shown[0]['cluster']}")):
        for headers in (NOBODY, limited, {}):
            await http.request(method, url, headers=headers)
        for other in (log, f"{topic}.none", "a b"):
            await http.request(method, url.replace(topic, other))
    purge = f"/api/topics/{topic}/purge"
    assert (await http.post(purge, json={"cluster": shown[1]["cluster"]})).json() == {"deleted": 1}


async def every_schedule_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Schedules: successes and refusals, as above."""
    log, checked = f"{topic}.log", f"{topic}.checked"
    await http.put(f"/v0/topics/{log}", json={"type": "log"})
    await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    await http.put(f"/v0/topics/{checked}", json={"type": "queue", "schema": {"type": "object"}})
    when: Body = {"cron": "0 0 1 1 *", "time_zone": "Europe/Berlin", "missed": "all"}
    record = {"data": [1], "tag": "t", "node": "p", "meta": {"k": [1]}, "priority": 3, "ttl_ms": 9, "key": "k"}
    many, path = "/v0/schedules", f"/v0/schedules/{topic}.v0"
    body = {"topic": topic, **when, "record": record}
    for status in (201, 200):
        assert (await http.put(path, json=body)).status_code == status
    for url in (many, f"{many}?page_size=1&prefix={topic}", path):
        for headers in ({}, NOBODY, limited):
            await http.get(url, headers=headers)
    for url in (f"{many}?cursor=!", f"{many}/a b"):
        assert (await http.get(url)).status_code == 400
    assert (await http.get(f"{many}/none")).status_code == 404
    for verb in ("pause", "run", "resume"):
        for headers in ({}, NOBODY, limited):
            await http.post(f"{path}/{verb}", headers=headers)
        assert (await http.post(f"{many}/none/{verb}")).status_code == 404
        assert (await http.post(f"{many}/a b/{verb}")).status_code == 400
    for headers in (NOBODY, limited):
        await http.put(path, json=body, headers=headers)
    for fault, status in (
        ({"topic": f"{topic}.none"}, 404),
        ({"topic": log}, 409),
        ({"cron": "* * *"}, 422),
        ({"time_zone": "Mars/Olympus"}, 422),
        ({"unknown": 1}, 400),
    ):
        assert (await http.put(path, json={**body, **fault})).status_code == status
    assert (await http.put(path, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
    assert (await http.put(path, content=b" " * 3_000, headers=JSON)).status_code == 413
    assert (await http.put(path, json={**body, "topic": checked})).status_code == 200
    assert (await http.post(f"{path}/run")).status_code == 422
    await http.delete(f"/v0/topics/{checked}")
    await http.put(f"/v0/topics/{checked}", json={"type": "log"})
    assert (await http.post(f"{path}/run")).status_code == 409
    await http.delete(f"/v0/topics/{checked}")
    await http.put(f"/v0/topics/{checked}", json={"type": "queue", "schema": {"type": "object"}})
    for headers in (NOBODY, limited, {}, {}):
        await http.delete(path, headers=headers)
    assert (await http.delete(f"{many}/a b")).status_code == 400
