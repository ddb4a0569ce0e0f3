"""Every answer that the document describes for some routes of the v0 dialect, asked for."""

from __future__ import annotations

import re

import httpx

from app.features.saved_views.store import MOST as MOST_VIEWS
from tests.api.dialect import JSON, Topic, accepted, refused

NOBODY = {"authorization": "Bearer wrong"}


async def every_explanation_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Why not, what happened, what was: successes and refusals."""
    queue, log = Topic(http, topic), f"{topic}.log"
    await queue.put()
    await queue.add(2)
    await queue.claim()
    await Topic(http, log).put(type="log")
    at = "at=2999-01-01T00:00:00Z"
    for end in (
        "jobs/1/explain?",
        "jobs/2/explain?",
        "jobs/1/history?",
        "jobs/1/result?",
        "explain?",
        "scale?",
        "explain?group=g&",
        f"asof?{at}&",
        f"asof/jobs?{at}&limit=1&",
        "stats/history?step=60&",
    ):
        path = f"{queue.path}/{end}"
        accepted(await http.get(path))
        for headers in (NOBODY, limited):
            await http.get(path, headers=headers)
        for other in (log, f"{topic}.none"):
            await http.get(path.replace(topic, other))
        await http.get(f"{path}nonsense=1")
    accepted(await http.get("/v0/overview"))
    await http.get("/v0/overview?sort=nonsense")
    for headers in (NOBODY, limited):
        await http.get("/v0/overview", headers=headers)
    for end in ("explain", "history", "result"):
        await http.get(f"{queue.path}/jobs/77/{end}")


async def every_exchange_about_jobs(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Jobs listed, shown, changed and cancelled: successes and refusals."""
    queue, log, strict = Topic(http, topic), f"{topic}.log", Topic(http, f"{topic}.strict")
    await queue.put()
    await Topic(http, log).put(type="log")
    await strict.put(schema={"type": "integer"})
    await strict.add(1)
    await queue.append(
        {"data": "x", "content_type": "text/plain", "tag": "t", "key": "k", "group": "g", "meta": {"a": 1},
         "ttl_ms": 3_600_000, "max_deliveries": 2, "tenant": "a"},
        *({"data": n} for n in range(3)),
    )  # fmt: skip
    await queue.claim(tenants=["a"])
    await queue.nack("n", [1], errors=["no"])
    await queue.claim(tenants=["a"])
    for method, end, body in (
        ("GET", "jobs", None),
        ("GET", "jobs/1", None),
        ("PATCH", "jobs/2", {"data": 7, "tag": "u", "meta": {"b": 2}, "priority": 3, "delay_ms": 600_000}),
        ("POST", "cancel", {"seqs": [1, 3, 77]}),
        ("POST", "operations", {"kind": "cancel", "filter": {"tag": "none"}, "dry_run": True}),
        ("POST", "release", {"seqs": [77]}),
    ):
        path = f"{queue.path}/{end}"
        accepted(await http.request(method, path, json=body))
        for headers in (NOBODY, limited):
            await http.request(method, path, json=body, headers=headers)
        for other in (log, f"{topic}.none"):
            await http.request(method, path.replace(topic, other), json=body)
        await http.request(method, f"{path}?nonsense=1", json={"nonsense": 1})
        if body is not None:
            await http.request(method, path, content=b"x" * 3_000, headers=JSON)
            await http.request(method, path, content=b"{}", headers={"content-type": "text/plain"})
    for seq in (1, 77):
        await http.patch(f"{queue.path}/jobs/{seq}", json={"tag": "u"})
    await http.post(f"{queue.path}/operations", json={"kind": "cancel", "filter": {"tag": "none"}})
    accepted(await http.post(f"{queue.path}/cancel", json={"filter": {"older_than_ms": 0}}))
    accepted(await http.get(f"{queue.path}/jobs/1"))
    await http.get(f"{queue.path}/jobs/2")
    await http.patch(f"{strict.path}/jobs/1", json={"data": "no number"})
    for name in (topic, log, f"{topic}.none"):
        await http.post("/v0/claim", json={"node": "n", "topics": [name]})
    for headers in (NOBODY, limited):
        await http.post("/v0/claim", json={"node": "n", "topics": [topic]}, headers=headers)
    for content, kind in ((b"{}", JSON), (b"x" * 3_000, JSON), (b"{}", {"content-type": "text/plain"})):
        await http.post("/v0/claim", content=content, headers=kind)


async def every_exchange_about_views(http: httpx.AsyncClient, _: str, limited: dict[str, str]) -> None:
    """Saved views: successes and refusals."""
    body = {"address": "/admin/topics?q=a"}
    for n in range(MOST_VIEWS + 1):
        await http.put(f"/v0/views/view {n}", json=body)
    for method, path, given in (
        ("GET", "/v0/views", None),
        ("PUT", "/v0/views/view 1", body),
        ("DELETE", "/v0/views/view 1", None),
        ("DELETE", "/v0/views/view 1", None),
    ):
        for headers in ({}, NOBODY, limited):
            await http.request(method, path, json=given, headers=headers)
    await http.get("/v0/views?nonsense=1")
    await http.delete(f"/v0/views/{'x' * 81}")
    await http.put("/v0/views/x", json={"address": "//elsewhere"})
    await http.put("/v0/views/x", content=b"x" * 3_000, headers=JSON)
    await http.put("/v0/views/x", content=b"{}", headers={"content-type": "text/plain"})
    for n in range(MOST_VIEWS + 1):
        await http.delete(f"/v0/views/view {n}")


async def every_control_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Pause, resume, drain: successes and refusals."""
    queue, log = Topic(http, topic), f"{topic}.log"
    await queue.put()
    await Topic(http, log).put(type="log")
    for verb in ("pause", "drain", "resume"):
        path = f"{queue.path}/{verb}"
        accepted(await http.post(path))
        for headers in (NOBODY, limited):
            await http.post(path, headers=headers)
        for other in (log, f"{topic}.none"):
            await http.post(path.replace(topic, other))
        await http.post(path, json={"nonsense": 1})
        await http.post(path, content=b"x" * 3_000, headers=JSON)
        await http.post(path, content=b"{}", headers={"content-type": "text/plain"})


async def every_ingestion_exchange(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """What comes over /in: successes and refusals."""
    queue, log, strict = Topic(http, topic), f"{topic}.log", Topic(http, f"{topic}.strict")
    await queue.put()
    await Topic(http, log).put(type="log")
    await strict.put(schema={"type": "integer"})
    for end in ("", "/g", "/g/d"):
        path = f"/in/{topic}{end}"
        for kind, content in (
            ("application/json", b'{"a": 1}'),
            ("application/x-www-form-urlencoded", b"a=1&a=2"),
            (
                "multipart/form-data; boundary=b",
                b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\n',
            ),
            ("text/plain", "é".encode()),
        ):
            taken = await http.post(f"{path}?from=home", content=content, headers={"content-type": kind})
            assert taken.status_code == 202, taken.text
        for headers in (NOBODY, limited):
            await http.post(path, json=1, headers=headers)
        for other in (log, f"{topic}.none"):
            await http.post(path.replace(topic, other), json=1)
        refused(await http.post(path.replace(topic, strict.name), json="no number"), 422, "schema_violation")
        await http.post(path, content=b"no JSON", headers=JSON)
        await http.post(path, content=b"x" * 3_000, headers=JSON)
        await http.post(path, content=b"x", headers={"content-type": "image/png"})


async def every_exchange_about_users_events(http: httpx.AsyncClient, user: str, limited: dict[str, str]) -> None:
    """A user's token, and events: successes and refusals."""
    path = f"/v0/users/{user}"
    token = accepted(await http.post(f"{path}/token"))["token"]
    accepted(await http.post(f"{path}/token", json={"ttl_ms": 60_000}))
    for event in ({"event": "e"}, {"event": "e", "data": {"percent": 40}}):
        accepted(await http.post(f"{path}/events", json=event))
    for end in ("token", "events"):
        for headers in (NOBODY, limited):
            await http.post(f"{path}/{end}", json={"event": "e"}, headers=headers)
        await http.post(f"{path}/{end}", json={"nonsense": 1})
        await http.post(f"{path}/{end}", content=b"x" * 3_000, headers=JSON)
        await http.post(f"{path}/{end}", content=b"{}", headers={"content-type": "text/plain"})
    mine = {"authorization": f"Bearer {token}"}
    async with http.stream("GET", f"{path}/events?last_event_id=0", headers=mine) as stream:
        seen = ""
        async for text in stream.aiter_text():
            seen += text
            if len(re.findall(r"\ndata: .*\n\n", seen)) == 2:
                break
    for other, headers, query in (
        (user, NOBODY, ""),
        (f"{user}.other", mine, ""),
        (user, mine | {"accept": "image/png"}, ""),
        (user, mine, "?last_event_id=x"),
    ):
        await http.get(f"/v0/users/{other}/events{query}", headers=headers)


async def every_key_exchange(http: httpx.AsyncClient, _: str, limited: dict[str, str]) -> None:
    """Keys and the audit trail: successes and refusals."""
    body = {"name": "n", "scopes": ["read"], "prefixes": ["a."], "expires_in_ms": 60_000}
    made = [accepted(await http.post("/v0/keys", json=body)) for _ in range(2)]
    path = f"/v0/keys/{made[0]['id']}"
    accepted(await http.post(f"{path}/rotate", json={"grace_ms": 5_000}))
    accepted(await http.post(f"{path}/rotate"))
    for page in ("/v0/keys?page_size=1", "/v0/admin/audit?page_size=1", "/v0/keys", "/v0/admin/audit", path):
        accepted(await http.get(page))
    accepted(await http.delete(path))
    assert (await http.post(f"{path}/rotate")).status_code == 409
    absent = "/v0/keys/key_0000000000000000"
    for url, methods in (
        ("/v0/keys", "GET POST"),
        (path, "GET DELETE"),
        (f"{path}/rotate", "POST"),
        ("/v0/admin/audit", "GET"),
    ):
        for method in methods.split():
            for headers in (NOBODY, limited):
                await http.request(method, url, headers=headers)
            if method == "POST":
                await http.post(url, json={"unknown": 1})
                await http.post(url, content=b"[" * 3_000, headers=JSON)
                await http.post(url, content=b"{}", headers={"content-type": "text/plain"})
            else:
                await http.request(method, f"{path}?unknown=1")
            await http.request(method, f"{absent}{url.removeprefix(path)}" if path in url else f"{url}?unknown=1")
