"""Every route of both dialects is asked, and each answer held against the OpenAPI document and what was recorded."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import jsonschema
import pytest

from app.base.log import ID_PATTERN
from tests import examples, routes
from tests.api.dialect import JSON, Body, Topic, accepted, refused
from tests.api.events import working
from tests.api.exchanges import (
    NOBODY,
    every_control_exchange,
    every_exchange_about_jobs,
    every_exchange_about_users_events,
    every_exchange_about_views,
    every_explanation_exchange,
    every_ingestion_exchange,
    every_key_exchange,
)
from tests.api.keyring import Services
from tests.api.messages import exchanges
from tests.api.recording import FOLDER, Recorder
from tests.api.watches import made, watching

if TYPE_CHECKING:
    from tests.api.conftest import Serve

DOCUMENT = routes.document()
SOMETIMES = {"408", "414", "429", "431", "503"}  # limits, and what is away: other tests have these
OF_MESSAGES = ("expiry", "delete", "archive")
ABOUT = ("/api/version", "/api/auth/status")
PROBES = ("/healthz", "/v0/health", "/readyz", "/v0/ready")
# Somebody makes the topic at this moment, as the other type; and what is set up in another test.
TOO_MUCH = tuple(("GET", f"/v0/topics/{{topic}}/asof{end}", "422") for end in ("", "/jobs"))
CHANGED = ("POST", "/v0/topics/{topic}", "409")
ELSEWHERE = {CHANGED, *TOO_MUCH, *(("GET", path, "401") for path in PROBES)}


class Checked:
    """Holds every exchange of a client against the document, and remembers which answers it has seen."""

    def __init__(self, document: Body) -> None:
        self._document = document
        self._closed = copy.deepcopy(document)
        for schema in self._closed["components"]["schemas"].values():
            if schema.get("properties"):
                schema["additionalProperties"] = False  # an answer has no field that is not described
        self.seen: set[tuple[str, str, str]] = set()

    async def __call__(self, response: httpx.Response) -> None:
        request, status = response.request, str(response.status_code)
        path = examples.route(request.url.path)
        operation = self._document["paths"][path][request.method.lower()]
        self.seen.add((request.method, path, status))
        assert status in operation["responses"], f"{request.method} {path} answered {status}, which is not described"
        assert set(operation["responses"][status].get("headers", {})) <= {"Retry-After", "X-Job-Id", "X-Request-Id"}
        assert re.fullmatch(ID_PATTERN, response.headers["x-request-id"])
        if status in SOMETIMES:
            assert int(response.headers["retry-after"]) >= 1
        if status == "204":
            assert await response.aread() == b""
            return
        content = operation["responses"][status]["content"]
        kind = response.headers["content-type"].partition(";")[0]
        assert kind in content
        if kind == "application/json":
            self._check(self._closed, content[kind]["schema"], await response.aread())
        if response.is_success and request.headers.get("content-type") == JSON["content-type"]:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            self._check(self._document, schema, request.content)

    def _check(self, document: Body, schema: Body, text: bytes) -> None:
        whole = {**schema, "components": document["components"]}
        jsonschema.Draft202012Validator(whole).validate(json.loads(text))


@pytest.fixture
def checked() -> Checked:
    return Checked(DOCUMENT)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(KEY["authorization"])


KEY, LIMITED = {"authorization": "Bearer k"}, {"authorization": "Bearer low"}


@pytest.fixture
async def http(
    serve: Serve, new_database: Callable[[], Awaitable[str]], checked: Checked, recorder: Recorder
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with keys and small bodies; every answer it gets is checked."""
    services = await Services.make(serve, new_database)  # of its own: keys are made in it
    small = await services.start(api_keys="k,low:delete:nothing.", max_body_bytes=2_000)
    async with httpx.AsyncClient(
        base_url=small.url, headers=KEY, timeout=35, event_hooks={"response": [checked, recorder]}
    ) as client:
        yield client
    await small.stop()


GOOD: dict[tuple[str, str], Any] = {
    ("PUT", ""): {"type": "queue", "max_deliveries": 1, "dead_letter": "{topic}.dlq", "claim_jitter_ms": None},
    ("POST", ""): {
        "records": [
            {"data": {"a": 1}, "tag": "t", "meta": {"k": [1]}, "priority": 3, "ttl_ms": 3_600_000},
            {"data": None},
        ],
        "node": "p",
        "config": {"type": "queue"},
    },
    ("POST", "/claim"): {"node": "n", "max": 10, "lease_ms": 60_000, "wait_ms": 0},
    ("POST", "/ack"): {"node": "n", "seqs": [1, 99], "lease_ids": ["", "lease_1a2b"]},
    ("POST", "/nack"): {"node": "n", "seqs": [2, 99], "delay_ms": 0, "errors": ["boom", None], "refund": False},
    ("POST", "/fail"): {"node": "n", "seqs": [99], "errors": ["boom"]},
    ("POST", "/extend"): {"node": "n", "seqs": [1, 99], "lease_ms": 60_000, "lease_ids": ["", "lease_1a2b"]},
    ("POST", "/diff"): {"from_seq": 0, "limit": 10, "node": ["other"], "include_tags": True, "wait_ms": 0},
    ("POST", "/delete"): {"before_seq": 1, "match": ["tag", "Glob", "t*"]},
    **dict.fromkeys([("GET", ""), ("DELETE", ""), ("GET", "/work"), ("GET", "/stats")]),
}
QUERIES = {"/work": "?node=n", "/stats": "?by=tenant"}
ORDER = [
    ("POST", ""),
    ("PUT", ""),
    *(("POST", f"/{verb}") for verb in ("claim", "diff", "extend", "nack", "fail", "ack", "delete")),
    *(("GET", verb) for verb in ("", "/stats")),
]


async def send(
    http: httpx.AsyncClient, method: str, path: str, body: object, headers: dict[str, str] | None = None
) -> httpx.Response:
    request = http.build_request(method, path, json=body, headers=headers)
    if body is None:
        request = http.build_request(method, path, headers=headers)
    response = await http.send(request, stream=True)
    await response.aclose()
    return response


def good(topic: str) -> Callable[[str, str], Any]:
    return lambda method, verb: json.loads(json.dumps(GOOD[method, verb]).replace("{topic}", topic))


async def reapers(http: httpx.AsyncClient, _: str, limited: dict[str, str]) -> None:
    """The reapers' routes; a run that lasts is in tests/api/test_reapers.py."""
    runs = ["/v0/admin/reapers/watches/run", *(f"/api/admin/{name}-reaper/run" for name in OF_MESSAGES)]
    schedule = "/api/admin/delete-reaper/schedule"
    shown = ("/v0/admin/reapers", "/v0/admin/reapers/watches/runs", schedule)
    for path in shown:
        for headers in (NOBODY, limited, KEY):
            await http.get(path, headers=headers)
    for path in shown[:2]:
        refused(await http.get(f"{path}?x=1"), 400, "invalid_request")
    refused(await http.get("/v0/admin/reapers/nobody/runs"), 404, "not_found")
    refused(await http.post("/v0/admin/reapers/nobody/run"), 404, "not_found")
    for method, path in [*(("POST", path) for path in runs), ("PUT", schedule)]:
        for headers in (NOBODY, limited):
            await http.request(method, path, headers=headers)
        for content, kind in ((b"[]", JSON["content-type"]), (b"{}", "text/plain"), (b"x" * 3_000, "text/plain")):
            await http.request(method, path, content=content, headers={"content-type": kind})
    for path in runs:
        assert (await http.post(path)).is_success
    for text in ("0 3 * * *", "no", ""):
        await http.put(schedule, json={"schedule": text})


async def topic_configs(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Each answer of the routes for topics' configurations in the messages dialect."""
    path, log = f"/api/topic-configs/{topic}.configured", f"/api/topic-configs/{topic}.log"
    every = {
        **{"max_retries": 5, "dlq_threshold": None, "message_ttl_seconds": 3600, "max_depth": 10, "priority": 1},
        **{"throughput_limit": 10, "replayable": True, "replay_window_seconds": 60, "visibility_timeout_seconds": 60},
    }
    of_v0 = {
        **{"max_deliveries": 5, "on_exhausted": "fail", "dead_letter": "z", "ttl_ms": 1, "lease_ms": 150},
        **{"replayable": True, "replay_window_ms": 1, "durability": "memory", "type": "queue"},
    }
    accepted(await http.put(f"/v0/topics/{topic}.log", json={"type": "log"}))
    for body in (every, of_v0, {}):
        assert (await http.put(path, json=body)).status_code == 200
        for url in (path, "/api/topic-configs", "/api/topic-configs?page_size=1"):
            assert (await http.get(url)).status_code == 200
    assert (await http.delete(path)).status_code == 204
    for url, status in ((path, 404), (log, 409), ("/api/topic-configs/a b", 400)):
        for method in ("GET", "DELETE"):
            assert (await http.request(method, url)).status_code == status
    assert (await http.put(log, json={})).status_code == 409
    for fault in ({"ttl_ms": 1, "message_ttl_seconds": 1}, {"on_exhausted": "fail"}, {"max_retries": -1}):
        assert (await http.put(path, json=fault)).status_code == 400
    assert (await http.put(path, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
    assert (await http.put(path, content=b" " * 3_000, headers=JSON)).status_code == 413
    assert (await http.get("/api/topic-configs?cursor=!")).status_code == 400
    for headers, status in ((NOBODY, 401), (limited, 403)):
        assert (await http.get("/api/topic-configs", headers=headers)).status_code == status
        for method in ("GET", "PUT", "DELETE"):
            assert (await http.request(method, path, headers=headers)).status_code == status


async def topics(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """A queue and a log, and the verbs that most callers use."""
    body = good(topic)
    queue, log, absent = (f"/v0/topics/{topic}{end}" for end in ("", ".log", ".absent"))
    for round_ in range(2):  # the second time with a dead letter
        for method, verb in ORDER[: -1 if round_ else None]:  # stats are read once a second: only the first are certain
            answer = await send(http, method, queue + verb + QUERIES.get(verb, ""), body(method, verb))
            assert answer.is_success, (round_, verb)
    dead = accepted(await http.post(f"{queue}.dlq/claim", json={"node": "n", "lease_ms": 600_000}))
    assert "$dead_letter_from" in dead["claimed"][0]["meta"]
    accepted(await http.put(log, json={}))
    for path in (log, f"/v0/topics?prefix={topic}&page_size=1"):
        accepted(await http.get(path))
    big = b'{"node":"%b"}' % (b"x" * 3_000)
    for method, verb in GOOD:
        query = QUERIES.get(verb, "")
        await send(http, method, queue + verb + query, body(method, verb), NOBODY)
        await send(http, method, queue + verb + query, body(method, verb), limited)
        await send(http, method, f"/v0/topics/a b{verb}{query}", body(method, verb))
        if method in {"POST", "PUT"}:
            await http.request(method, queue + verb, content=big, headers=JSON)
            await http.request(method, queue + verb, content=big[:100], headers={"content-type": "text/plain"})
        if (method, verb) not in {("PUT", ""), ("DELETE", "")}:
            plain = (
                {"records": [{"data": 1}], "create": False} if (method, verb) == ("POST", "") else body(method, verb)
            )
            await send(http, method, absent + verb + query, plain)
        accepted(await http.put(log, json={}))
        await send(http, method, log + verb + query, body(method, verb))
    await send(http, "GET", f"{queue}/work?node=n", None, {"accept": "image/png"})
    await send(http, "DELETE", f"{queue}.dlq?if_empty=true", None)
    full = Topic(http, f"{topic}.full")
    await full.put(type="log", cap_records=2)
    await full.append(*({"data": i, "tag": "t", "node": "n", "meta": {"a": i}} for i in range(3)), idempotency_key="k")
    assert (await full.post("diff", include_tags=True))["tombstone"]["reason"] == "cap"
    assert (await full.post("diff", from_seq=9))["tombstone"]["reason"] == "recreated"
    await full.put(type="log", cap_records=2, discard="reject")
    refused(await http.post(full.path, json={"records": [{"data": 1}]}), 422, "topic_full")
    for headers, query in ((NOBODY, ""), (limited, ""), (KEY, "?cursor=!")):
        await http.get(f"/v0/topics{query}", headers=headers)
    accepted(await http.delete(queue))


async def streams(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Work and watches."""
    worked, watched, absent = Topic(http, topic), Topic(http, f"{topic}.watched"), f"{topic}.absent"
    await worked.put()
    await worked.add(1)
    async with working(worked) as stream:
        await stream.job()
        await worked.ack("n", [1])  # or the end of the stream would release it, some time later
    await watched.put()
    await watched.add(1)
    watch = await made(http, watched)
    async with watching(http, watch) as events:
        await events.records(1)
        await events.event("caught-up")
    for headers in (NOBODY, limited, {"accept": "image/png"}):
        await http.get(watch["stream_url"], headers=headers)
        await http.post("/v0/watch", json={"topics": {absent: {}}}, headers=headers)
    await http.get(watch["stream_url"], headers={"last-event-id": "x"})
    await http.get("/v0/watch/wid_unknown")
    for kind, content in (("text/plain", b"{}"), ("application/json", b"{}"), ("application/json", b"x" * 3_000)):
        await http.post("/v0/watch", content=content, headers={"content-type": kind})


async def probes(http: httpx.AsyncClient, topic: str, limited: dict[str, str]) -> None:
    """Health, metrics and what the service says of itself."""
    for path in (*PROBES, "/metrics", "/v0/metrics", *ABOUT):
        assert (await http.get(path)).is_success
    accepted_json = await http.get("/v0/metrics", headers={"accept": "application/json"})
    assert accepted_json.headers["content-type"] == "application/json"
    for path in ("/metrics", "/v0/metrics"):
        await http.get(path, headers=NOBODY)
        await http.get(path, headers=limited)
    for headers, status in ((NOBODY, 401), (limited, 403), (KEY, 200)):
        assert (await http.get("/v0/admin/horizon", headers=headers)).status_code == status
    refused(await http.get("/v0/admin/horizon?x=1"), 400, "invalid_request")


AREAS = {
    "keys": every_key_exchange,  # first: it shows the whole audit trail
    "topics": topics,
    "streams": streams,
    "probes": probes,
    "messages": exchanges.every_exchange,
    "message-logs": exchanges.every_log_exchange,
    "views": every_exchange_about_views,
    "topic-configs": topic_configs,
    "schemas": exchanges.every_schema_exchange,
    "requeues": exchanges.every_requeue_exchange,
    "failures": exchanges.every_failure_exchange,
    "explanations": every_explanation_exchange,
    "controls": every_control_exchange,
    "jobs": every_exchange_about_jobs,
    "schedules": exchanges.every_schedule_exchange,
    "ingestion": every_ingestion_exchange,
    "user-events": every_exchange_about_users_events,
    "reapers": reapers,
    "users": exchanges.every_exchange_about_users,
}


async def test_real_answers_are_as_it_says(http: httpx.AsyncClient, checked: Checked, recorder: Recorder) -> None:
    """Each described answer of each route, successes and refusals, as recorded; but for those that other tests have."""
    for area, every in AREAS.items():
        await every(http, f"t.{area}", LIMITED)
        recorder.check(area)
    assert {file.stem for file in FOLDER.iterdir()} == set(AREAS)

    described = {
        (method.upper(), path, status)
        for path, methods in DOCUMENT["paths"].items()
        for method, one in methods.items()
        for status in one["responses"]
    }
    left = {answer for answer in described - checked.seen if answer[2] not in {*SOMETIMES, "202"}}
    assert sorted(left - ELSEWHERE) == sorted(ELSEWHERE - left) == []
