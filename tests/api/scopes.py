"""Who may call what: what the routes declare, and what a key of other topics meets."""

from __future__ import annotations

from dataclasses import dataclass

from tests.api.dialect import Body
from tests.routes import scopes

FOREIGN = "foreign.topic"
NO_WATCH = f"wid_{'A' * 22}"
OF_BROWSERS = {("GET", "/v0/topics/{topic}/work"), ("GET", "/v0/watch/{wid}")}


@dataclass(frozen=True, slots=True)
class Row:
    """`foreign`: what a key of other prefixes meets. 403 where the topic is in the path, or named by `body`, or where
    this is about the whole server; 404 where what the path names is out of its reach; 200 where the answer holds only
    what is within it. tests/security/test_objects.py holds each route to it."""

    foreign: int = 403
    body: Body | None = None
    query: str = ""


T = "/v0/topics/{topic}"
SETTLES: Body = {"node": "n", "seqs": []}
# In the order in which they are tried; others come behind.
ROWS = {
    ("PUT", T): Row(body={"type": "queue"}),
    ("POST", T): Row(body={"records": [{"data": 1}]}),
    ("POST", f"{T}/diff"): Row(body={}),
    ("POST", f"{T}/delete"): Row(body={"before_seq": 1}),
    ("GET", f"{T}/asof"): Row(query="?at=2999-01-01T00:00:00Z"),
    ("GET", f"{T}/asof/jobs"): Row(query="?at=2999-01-01T00:00:00Z"),
    ("PATCH", f"{T}/jobs/{{seq}}"): Row(body={"tag": "t"}),
    ("POST", f"{T}/cancel"): Row(body={"seqs": []}),
    ("POST", f"{T}/release"): Row(body={"seqs": []}),
    ("POST", f"{T}/operations"): Row(body={"kind": "cancel", "filter": {"tag": "t"}}),
    ("GET", f"{T}/stats"): Row(query="?by=tenant"),
    ("POST", f"{T}/claim"): Row(body={"node": "n"}),
    ("POST", "/v0/claim"): Row(body={"node": "n", "topics": [FOREIGN]}),
    **{("POST", f"{T}/{verb}"): Row(body=SETTLES) for verb in ("ack", "nack", "fail")},
    ("POST", f"{T}/extend"): Row(body=SETTLES | {"lease_ms": 1_000}),
    ("GET", f"{T}/work"): Row(query="?node=n"),
    ("POST", f"{T}/requeue"): Row(body={"filter": {}, "dry_run": True}),
    ("GET", "/v0/operations/{id}"): Row(404),
    ("POST", "/v0/operations/{id}/cancel"): Row(404),
    ("POST", "/v0/watch"): Row(body={"topics": {FOREIGN: {}}}),
    ("GET", "/v0/watch/{wid}"): Row(404),
    ("GET", "/v0/topics"): Row(200),
    ("GET", "/v0/overview"): Row(200),
    ("POST", "/v0/keys"): Row(body={"name": "k", "scopes": ["read"], "prefixes": [FOREIGN]}),
    ("GET", "/v0/keys"): Row(200),
    ("GET", "/v0/keys/{id}"): Row(404),
    ("POST", "/v0/keys/{id}/rotate"): Row(404, body={}),
    ("DELETE", "/v0/keys/{id}"): Row(404),
    ("GET", "/v0/views"): Row(200),
    ("DELETE", "/v0/views/{name}"): Row(404),
    ("PUT", "/v0/views/{name}"): Row(200, body={"address": "/admin/"}),
    ("GET", "/v0/admin/audit"): Row(200),
    ("GET", "/v0/schedules"): Row(200),
    ("PUT", "/v0/schedules/{name}"): Row(body={"topic": FOREIGN, "cron": "0 0 1 1 *", "record": {"data": 1}}),
    ("GET", "/v0/schedules/{name}"): Row(404),
    **{("POST", f"/v0/schedules/{{name}}/{verb}"): Row(404) for verb in ("run", "pause", "resume")},
    ("DELETE", "/v0/schedules/{name}"): Row(404),
    ("POST", "/api/messages"): Row(body={"topic": FOREIGN, "payload": "x"}),
    ("POST", "/api/messages/batch"): Row(body={"topic": FOREIGN, "messages": [{"payload": "x"}]}),
    ("POST", "/api/messages/dequeue"): Row(body={"topic": FOREIGN}),
    ("POST", "/api/messages/ack"): Row(200, body={"ids": []}),
    **{("POST", f"/api/messages/{{id}}/{verb}"): Row(404) for verb in ("ack", "nack", "extend", "requeue")},
    ("POST", "/api/topics/{topic}/requeue"): Row(body={"filter": {}, "dry_run": True}),
    ("GET", "/api/messages/{id}"): Row(404),
    ("GET", "/api/stats"): Row(200),
    ("POST", "/api/topics/{topic}/replay"): Row(body={}),
    ("DELETE", "/api/topics/{topic}/message-log"): Row(query="?before=2000-01-01T00:00:00Z"),
    ("PUT", "/api/admin/delete-reaper/schedule"): Row(body={"schedule": ""}),
    ("GET", "/api/topic-configs"): Row(200),
    ("PUT", "/api/topic-configs/{topic}"): Row(body={}),
    ("GET", "/api/topic-schemas"): Row(200),
    ("PUT", "/api/topic-schemas/{topic}"): Row(body={"schema_json": "{}"}),
    ("POST", "/api/users"): Row(body={"username": "made-here", "password": "twelve chars and more"}),
    ("PUT", "/api/users/{id}"): Row(body={}),
    ("POST", "/api/users/{id}/grants"): Row(body={"action": "read"}),
    ("POST", "/v0/users/{id}/token"): Row(body={}),
    ("POST", "/v0/users/{id}/events"): Row(200, body={"event": "e"}),
    ("GET", "/metrics"): Row(200),
    ("GET", "/v0/metrics"): Row(200),
}
DECLARED = {route: needs for route, needs in scopes().items() if route != ("GET", "/openapi.json")}
OPEN, SIGNED_IN, OF_TOKENS = (
    {route for route, needs in DECLARED.items() if needs == word} for word in ("none", "any", "token")
)
TABLE = ROWS | {route: Row() for route in DECLARED if route not in {*ROWS, *OPEN, *SIGNED_IN, *OF_TOKENS}}
